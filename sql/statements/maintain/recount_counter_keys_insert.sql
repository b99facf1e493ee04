-- recount_counter_keys_insert - puts numbers of keys in.
--
-- $1::text      tenant
-- $2::text[]    counter_name
-- $3::bigint[]  keys
--
-- No rows.
INSERT INTO meter.counter_keys (
    tenant,
    counter_name,
    keys
)
SELECT
    $1::text,
    made.counter_name,
    made.keys
FROM unnest($2::text[], $3::bigint[]) AS made (counter_name, keys);
