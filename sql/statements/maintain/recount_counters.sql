-- recount_counters - counter rows of a tenant as they are.
--
-- $1::text  tenant
-- $2::text  counter_name, NULL: all
--
-- Rows: counter_name text, dimension_key bytea, dimensions text, value
-- bigint, updated_at timestamptz, made_at timestamptz or NULL.
SELECT
    counter_name,
    dimension_key,
    dimensions,
    value,
    updated_at,
    made_at
FROM meter.counter
WHERE tenant = $1::text
    AND ($2::text IS NULL OR counter_name = $2::text);
