-- bucket_write - sets locked buckets to what was decided for them.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
-- $5::bigint[]       added
-- $6::bigint[]       subbed
-- $7::timestamptz[]  expires_at, or NULL
--
-- No rows. Only buckets that bucket_lock has locked in this transaction: each
-- exists, so each meets ON CONFLICT, which finds its partition without a plan
-- that knows all of them.
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
    decided.tenant,
    decided.name,
    decided.duration_seconds,
    decided.time_start,
    decided.added,
    decided.subbed,
    decided.expires_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[],
    $5::bigint[],
    $6::bigint[],
    $7::timestamptz[]
) AS decided (
    tenant, name, duration_seconds, time_start, added, subbed, expires_at
)
ON CONFLICT (tenant, name, duration_seconds, time_start) DO UPDATE
SET
    added = excluded.added,
    subbed = excluded.subbed,
    expires_at = excluded.expires_at;
