-- audit_count - how often a known id was observed.
--
-- $1::text  tenant
-- $2::uuid  key
-- $3::text  event_id
--
-- Row: duplicates bigint, conflicts bigint. Runs as meter_reader with the
-- tenant set.
SELECT
    count(*) FILTER (WHERE verdict = 1) AS duplicates,
    count(*) FILTER (WHERE verdict = 2) AS conflicts
FROM meter.duplicate_audit
WHERE tenant = $1::text
    AND key = $2::uuid
    AND event_id = $3::text;
