-- recount_counters_insert - puts counter rows in.
--
-- $1::text           tenant
-- $2::text[]         counter_name
-- $3::bytea[]        dimension_key
-- $4::text[]         dimensions
-- $5::bigint[]       value
-- $6::timestamptz[]  updated_at
--
-- No rows.
INSERT INTO meter.counter (
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    value,
    updated_at
)
SELECT
    $1::text,
    made.counter_name,
    made.dimension_key,
    made.dimensions,
    made.value,
    made.updated_at
FROM unnest(
    $2::text[],
    $3::bytea[],
    $4::text[],
    $5::bigint[],
    $6::timestamptz[]
) AS made (counter_name, dimension_key, dimensions, value, updated_at);
