-- bucket_insert - makes buckets that bucket_lock did not find.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
-- $5::bigint[]       added
-- $6::bigint[]       subbed
-- $7::timestamptz[]  expires_at, or NULL
--
-- No rows. 23505: another transaction has made one meanwhile; nothing decided
-- here holds any more, and the whole transaction starts over. Keys come in
-- bytewise order, so that two transactions wait in the same order.
INSERT INTO meter.bucket_counter (
    tenant,
    name,
    duration_seconds,
    time_start,
    added,
    subbed,
    expires_at
)
SELECT
    fresh.tenant,
    fresh.name,
    fresh.duration_seconds,
    fresh.time_start,
    fresh.added,
    fresh.subbed,
    fresh.expires_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[],
    $5::bigint[],
    $6::bigint[],
    $7::timestamptz[]
) AS fresh (
    tenant, name, duration_seconds, time_start, added, subbed, expires_at
);
