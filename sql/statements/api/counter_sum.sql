-- counter_sum - the sum of a counter's keys.
--
-- $1::text    tenant
-- $2::text    counter_name
-- $3::text[]  names of the dimensions asked for; none: all keys
-- $4::text[]  for each the value, as JSON
-- $5::text[]  for each another one that will do, or the same
--
-- One row: sum text (may pass 64 bits; 0 of nothing), keys bigint, picked
-- text: for each name '0' or '1', which of its values it was; NULL without
-- names or keys, and is_mixed boolean: keys differ in it. Runs as
-- meter_reader with the tenant set; reads every key of the counter.
WITH asked AS MATERIALIZED (
    SELECT
        name,
        one::jsonb AS one,
        other::jsonb AS other,
        place
    FROM unnest($3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS given (name, one, other, place)
)
SELECT
    coalesce(sum(counter.value), 0)::text AS sum,
    count(*) AS keys,
    min(fit.picked) AS picked,
    coalesce(min(fit.picked) <> max(fit.picked), false) AS is_mixed
FROM meter.counter
CROSS JOIN LATERAL (
    SELECT
        coalesce(
            bool_and(held.value IN (asked.one, asked.other)), true
        ) AS fits,
        string_agg(
            CASE WHEN held.value = asked.one THEN '0' ELSE '1' END, ''
            ORDER BY asked.place
        ) COLLATE "C" AS picked
    FROM asked
    CROSS JOIN LATERAL (
        SELECT
            coalesce(
                counter.dimensions::jsonb -> asked.name, 'null'::jsonb
            ) AS value
        OFFSET 0
    ) AS held
) AS fit
WHERE counter.tenant = $1::text
    AND counter.counter_name = $2::text
    AND fit.fits;
