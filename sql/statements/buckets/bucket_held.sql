-- bucket_held - buckets as they are, once bucket_lock has locked them.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
--
-- Rows: place integer (of the key among those given, from 1), added bigint,
-- subbed bigint, expires_at timestamptz or NULL; one for each key.
SELECT
    asked.place::integer AS place,
    held.added,
    held.subbed,
    held.expires_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[]
) WITH ORDINALITY
    AS asked (tenant, name, duration_seconds, time_start, place)
INNER JOIN meter.bucket_counter AS held
    ON held.tenant = asked.tenant
    AND held.name = asked.name
    AND held.duration_seconds = asked.duration_seconds
    AND held.time_start = asked.time_start;
