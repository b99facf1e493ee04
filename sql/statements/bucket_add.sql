-- bucket_add - adds to buckets that are there.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
-- $5::bigint[]       amount
--
-- Rows: place integer (of the key among those given, from 1), added bigint,
-- subbed bigint, as they are now. No row: there is no such bucket, it has
-- expired, or it would leave 64 bits; then nothing of the transaction may
-- stay, and bucket_lock tells which. Keys come once each, in bytewise order,
-- which is the order of locking.
UPDATE meter.bucket_counter AS held
SET added = held.added + asked.amount
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[],
    $5::bigint[]
) WITH ORDINALITY
    AS asked (tenant, name, duration_seconds, time_start, amount, place)
WHERE held.tenant = asked.tenant
    AND held.name = asked.name
    AND held.duration_seconds = asked.duration_seconds
    AND held.time_start = asked.time_start
    AND held.added <= 9223372036854775807 - asked.amount
    AND (held.expires_at IS NULL OR held.expires_at > clock_timestamp())
RETURNING
    asked.place::integer AS place,
    held.added,
    held.subbed;
