-- audit_list - observations of a known id, newest first.
--
-- $1::text     tenant
-- $2::uuid     key
-- $3::text     event_id
-- $4::date     day on which the id was first seen
-- $5::integer  at most this many
--
-- Rows: verdict integer (1 duplicate, 2 conflict), duplicate_seen_at
-- timestamptz, type text, ts timestamptz, payload text (canonical JSON), all
-- three NULL where they are as stored, duplicates bigint and conflicts bigint (of all
-- observations, the same in each row).
SELECT
    verdict::integer AS verdict,
    duplicate_seen_at,
    type,
    ts,
    payload,
    count(*) FILTER (WHERE verdict = 1) OVER () AS duplicates,
    count(*) FILTER (WHERE verdict = 2) OVER () AS conflicts
FROM meter.duplicate_audit
WHERE tenant = $1::text
    AND key = $2::uuid
    AND event_id = $3::text
    AND part_day >= $4::date
ORDER BY
    duplicate_seen_at DESC,
    item DESC
LIMIT $5::integer;
