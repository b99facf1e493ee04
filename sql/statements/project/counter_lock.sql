-- counter_lock - counter rows as they are, locked in key order.
--
-- $1::text[]   tenant
-- $2::text[]   counter_name
-- $3::bytea[]  dimension_key
--
-- Rows, in the order given: tenant text, counter_name text, dimension_key
-- bytea, dimensions text, value bigint, updated_at timestamptz. Keys in
-- bytewise order; rows exist, and are locked already, after counter_ensure:
-- this one only sees what is there then. LATERAL: one probe of the primary
-- key for each, whatever the planner thinks of the table's size.
SELECT
    locked.tenant,
    locked.counter_name,
    locked.dimension_key,
    locked.dimensions,
    locked.value,
    locked.updated_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[]
) AS asked (tenant, counter_name, dimension_key)
CROSS JOIN LATERAL (
    SELECT
        counter.tenant,
        counter.counter_name,
        counter.dimension_key,
        counter.dimensions,
        counter.value,
        counter.updated_at
    FROM meter.counter
    WHERE counter.tenant = asked.tenant
        AND counter.counter_name = asked.counter_name
        AND counter.dimension_key = asked.dimension_key
    FOR NO KEY UPDATE
) AS locked;
