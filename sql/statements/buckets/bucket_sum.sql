-- bucket_sum - buckets of a counter, summed up.
--
-- $1::text         tenant
-- $2::text         name
-- $3::bigint       duration_seconds
-- $4::timestamptz  time_start of the first bucket
-- $5::timestamptz  time_start of the last one
--
-- One row of decimal texts, since sums may pass 64 bits: net text, added text,
-- subbed text. Runs as meter_reader with the tenant set.
SELECT
    coalesce(sum(held.added) - sum(held.subbed), 0)::text AS net,
    coalesce(sum(held.added), 0)::text AS added,
    coalesce(sum(held.subbed), 0)::text AS subbed
FROM meter.bucket_counter AS held
WHERE held.tenant = $1::text
    AND held.name = $2::text
    AND held.duration_seconds = $3::bigint
    AND held.time_start BETWEEN $4::timestamptz AND $5::timestamptz
    AND (held.expires_at IS NULL OR held.expires_at > clock_timestamp());
