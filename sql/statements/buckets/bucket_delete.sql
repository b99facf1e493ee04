-- bucket_delete - deletes locked buckets that have expired.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
--
-- No rows. Only buckets that bucket_lock has locked, or made, in this
-- transaction, and that nothing came into.
DELETE FROM meter.bucket_counter AS held
USING unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[]
) AS gone (tenant, name, duration_seconds, time_start)
WHERE held.tenant = gone.tenant
    AND held.name = gone.name
    AND held.duration_seconds = gone.duration_seconds
    AND held.time_start = gone.time_start;
