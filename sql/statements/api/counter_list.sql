-- counter_list - a page of a counter's keys, in the order of their bytes.
--
-- $1::text    tenant
-- $2::text    counter_name
-- $3::bytea   dimension_key to go on behind; empty: from the start
-- $4::text[]  names of the dimensions asked for; none: all keys
-- $5::text[]  for each the value, as JSON
-- $6::text[]  for each another one that will do, or the same
-- $7::bigint  at most this many
--
-- Rows: dimension_key bytea, dimensions text (canonical JSON), value bigint,
-- updated_at timestamptz, at most now, picked text: for each name '0' or '1',
-- which of its values it was; NULL without names. A dimension that is not
-- there is null. Runs as meter_reader with the tenant set; reads the counter's
-- part of the primary key in order and stops at the last row.
WITH asked AS MATERIALIZED (
    SELECT
        name,
        one::jsonb AS one,
        other::jsonb AS other,
        place
    FROM unnest($4::text[], $5::text[], $6::text[])
        WITH ORDINALITY AS given (name, one, other, place)
)
SELECT
    counter.dimension_key,
    counter.dimensions,
    counter.value,
    LEAST(counter.updated_at, statement_timestamp()) AS updated_at,
    fit.picked
FROM meter.counter
CROSS JOIN LATERAL (
    SELECT
        coalesce(
            bool_and(held.value IN (asked.one, asked.other)), true
        ) AS fits,
        string_agg(
            CASE WHEN held.value = asked.one THEN '0' ELSE '1' END, ''
            ORDER BY asked.place
        ) AS picked
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
    AND counter.dimension_key > $3::bytea
    AND fit.fits
ORDER BY counter.dimension_key
LIMIT $7::bigint;
