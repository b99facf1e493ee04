-- bucket_add - adds to buckets; makes those that are not there.
--
-- $1::text[]         tenant
-- $2::text[]         name
-- $3::bigint[]       duration_seconds
-- $4::timestamptz[]  time_start
-- $5::bigint[]       amount
--
-- Rows: added bigint, subbed bigint, as they are now; one for each key, in the
-- order given. 22003: some bucket would leave 64 bits. Keys come once each, in
-- bytewise order, which is the order of locking and of making: an INSERT takes
-- them as they come, whatever the plan. One that has expired when the
-- statement begins starts over.
INSERT INTO meter.bucket_counter AS held (
    tenant,
    name,
    duration_seconds,
    time_start,
    added,
    subbed
)
SELECT
    asked.tenant,
    asked.name,
    asked.duration_seconds,
    asked.time_start,
    asked.amount,
    0
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::timestamptz[],
    $5::bigint[]
) AS asked (tenant, name, duration_seconds, time_start, amount)
ON CONFLICT (tenant, name, duration_seconds, time_start) DO UPDATE
SET
    added = CASE
        WHEN held.expires_at <= statement_timestamp() THEN excluded.added
        ELSE held.added + excluded.added
    END,
    subbed = CASE
        WHEN held.expires_at <= statement_timestamp() THEN 0
        ELSE held.subbed
    END,
    expires_at = CASE
        WHEN held.expires_at <= statement_timestamp() THEN NULL
        ELSE held.expires_at
    END
RETURNING
    held.added,
    held.subbed;
