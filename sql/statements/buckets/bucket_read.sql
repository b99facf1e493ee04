-- bucket_read - one bucket of a counter.
--
-- $1::text         tenant
-- $2::text         name
-- $3::bigint       duration_seconds
-- $4::timestamptz  time_start
--
-- At most one row: added bigint, subbed bigint. None: there is no such bucket,
-- or it has expired. Runs as meter_reader with the tenant set.
SELECT
    held.added,
    held.subbed
FROM meter.bucket_counter AS held
WHERE held.tenant = $1::text
    AND held.name = $2::text
    AND held.duration_seconds = $3::bigint
    AND held.time_start = $4::timestamptz
    AND (held.expires_at IS NULL OR held.expires_at > clock_timestamp());
