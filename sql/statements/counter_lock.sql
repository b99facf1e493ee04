-- counter_lock - values of one tenant's counter rows, locked in key order.
--
-- $1::text     tenant
-- $2::text[]   counter_name
-- $3::bytea[]  dimension_key
--
-- Rows, in the order given: counter_name text, dimension_key bytea,
-- dimensions text, value bigint. One tenant per statement, tenants in
-- bytewise order, keys of a tenant in bytewise order; rows exist after
-- counter_ensure. LATERAL: one probe of the primary key for each, whatever
-- the planner thinks of the table's size.
SELECT
    locked.counter_name,
    locked.dimension_key,
    locked.dimensions,
    locked.value
FROM unnest($2::text[], $3::bytea[]) AS asked (counter_name, dimension_key)
CROSS JOIN LATERAL (
    SELECT
        counter.counter_name,
        counter.dimension_key,
        counter.dimensions,
        counter.value
    FROM meter.counter
    WHERE counter.tenant = $1::text
        AND counter.counter_name = asked.counter_name
        AND counter.dimension_key = asked.dimension_key
    FOR UPDATE
) AS locked;
