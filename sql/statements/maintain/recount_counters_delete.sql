-- recount_counters_delete - takes counter rows away.
--
-- $1::text     tenant
-- $2::text[]   counter_name
-- $3::bytea[]  dimension_key
--
-- No rows.
DELETE FROM meter.counter
USING unnest($2::text[], $3::bytea[]) AS wrong (counter_name, dimension_key)
WHERE counter.tenant = $1::text
    AND counter.counter_name = wrong.counter_name
    AND counter.dimension_key = wrong.dimension_key;
