-- counter_ensure - makes the counter rows that do not exist yet, at 0, and
-- locks all others.
--
-- $1::text[]   tenant
-- $2::text[]   counter_name
-- $3::bytea[]  dimension_key
-- $4::text[]   dimensions
--
-- Rows, in no order: tenant text, counter_name text, dimension_key bytea,
-- keys bigint. With a dimension_key and keys NULL: a row that was made. With
-- dimension_key NULL: as many keys as (tenant, counter_name) has with those
-- made. Keys come once each, in bytewise order of (tenant, counter_name,
-- dimension_key), and are locked in it, whether they are old or new: WHERE
-- false locks a row that is there and neither changes nor returns it. Then
-- those of counter_keys, likewise. The careful path calls counter_lock after
-- it, in the same transaction, and counter_write with what it decided. A new
-- row is older than all transactions until then.
WITH made AS (
    INSERT INTO meter.counter (
        tenant,
        counter_name,
        dimension_key,
        dimensions,
        value,
        updated_at
    )
    SELECT
        asked.tenant,
        asked.counter_name,
        asked.dimension_key,
        asked.dimensions,
        0,
        to_timestamp(0)
    FROM unnest(
        $1::text[],
        $2::text[],
        $3::bytea[],
        $4::text[]
    ) AS asked (tenant, counter_name, dimension_key, dimensions)
    ON CONFLICT (tenant, counter_name, dimension_key) DO UPDATE
    SET value = counter.value
    WHERE false
    RETURNING tenant, counter_name, dimension_key
),
counted AS (
    INSERT INTO meter.counter_keys (tenant, counter_name, keys)
    SELECT
        made.tenant,
        made.counter_name,
        count(*)
    FROM made
    GROUP BY made.tenant, made.counter_name
    ORDER BY made.tenant, made.counter_name
    ON CONFLICT (tenant, counter_name) DO UPDATE
    SET keys = counter_keys.keys + excluded.keys
    RETURNING tenant, counter_name, keys
)
SELECT
    made.tenant,
    made.counter_name,
    made.dimension_key,
    NULL::bigint AS keys
FROM made
UNION ALL
SELECT
    counted.tenant,
    counted.counter_name,
    NULL,
    counted.keys
FROM counted;
