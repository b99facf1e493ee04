-- counter_lock - values of one tenant's counter rows, locked in key order.
--
-- $1::text     tenant
-- $2::text[]   counter_name
-- $3::bytea[]  dimension_key
--
-- Rows, in order of (counter_name, dimension_key): counter_name text,
-- dimension_key bytea, dimensions text, value bigint. One tenant per
-- statement, tenants in bytewise order; rows exist after counter_ensure.
SELECT
    counter.counter_name,
    counter.dimension_key,
    counter.dimensions,
    counter.value
FROM unnest($2::text[], $3::bytea[]) AS asked (counter_name, dimension_key)
INNER JOIN meter.counter
    ON counter.tenant = $1::text
    AND counter.counter_name = asked.counter_name
    AND counter.dimension_key = asked.dimension_key
ORDER BY
    counter.counter_name,
    counter.dimension_key
FOR UPDATE OF counter;
