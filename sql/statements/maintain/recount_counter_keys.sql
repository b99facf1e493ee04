-- recount_counter_keys - number of keys of a tenant's counters as it is.
--
-- $1::text  tenant
-- $2::text  counter_name, NULL: all
--
-- Rows: counter_name text, keys bigint.
SELECT
    counter_name,
    keys
FROM meter.counter_keys
WHERE tenant = $1::text
    AND ($2::text IS NULL OR counter_name = $2::text);
