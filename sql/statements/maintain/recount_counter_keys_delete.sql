-- recount_counter_keys_delete - takes numbers of keys away.
--
-- $1::text    tenant
-- $2::text[]  counter_name
--
-- No rows.
DELETE FROM meter.counter_keys
WHERE tenant = $1::text
    AND counter_name = ANY ($2::text[]);
