-- bucket_lock - locks buckets in key order; makes those that are not there.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
--
-- No rows. What is made has expired long ago, so it is as if it were not
-- there; what meets it is locked and not written. Keys come once each, in
-- bytewise order, which is the order of locking and of making, as in
-- bucket_add: an INSERT takes them as they come, whatever the plan.
INSERT INTO meter.bucket_counter AS held (
    tenant,
    name,
    duration_seconds,
    time_start,
    added,
    subbed,
    expires_at
)
SELECT
    asked.tenant,
    asked.name,
    asked.duration_seconds,
    asked.time_start,
    0,
    0,
    'epoch'
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[]
) AS asked (tenant, name, duration_seconds, time_start)
ON CONFLICT (tenant, name, duration_seconds, time_start) DO UPDATE
SET added = held.added
WHERE false;
