-- bucket_lock - buckets as they are, locked in key order.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
--
-- Rows: place integer (of the key among those given, from 1), added bigint,
-- subbed bigint, expires_at timestamptz or NULL. No row: there is no such
-- bucket; it may be made by bucket_insert, later in the same transaction. Keys
-- come once each, in bytewise order, which is the order of locking.
-- LATERAL: one probe of the primary key for each.
SELECT
    asked.place::integer AS place,
    locked.added,
    locked.subbed,
    locked.expires_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[]
) WITH ORDINALITY
    AS asked (tenant, name, duration_seconds, time_start, place)
CROSS JOIN LATERAL (
    SELECT
        held.added,
        held.subbed,
        held.expires_at
    FROM meter.bucket_counter AS held
    WHERE held.tenant = asked.tenant
        AND held.name = asked.name
        AND held.duration_seconds = asked.duration_seconds
        AND held.time_start = asked.time_start
    FOR NO KEY UPDATE
) AS locked;
