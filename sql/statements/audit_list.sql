-- audit_list - observations of a known id, newest first.
--
-- $1::text     tenant
-- $2::uuid     key
-- $3::text     event_id
-- $4::integer  at most this many
--
-- Rows: verdict integer (1 duplicate, 2 conflict), first_seen_at
-- timestamptz, duplicate_seen_at timestamptz, type text, ts timestamptz,
-- payload text (canonical JSON).
SELECT
    verdict::integer AS verdict,
    first_seen_at,
    duplicate_seen_at,
    type,
    ts,
    payload
FROM meter.duplicate_audit
WHERE tenant = $1::text
    AND key = $2::uuid
    AND event_id = $3::text
ORDER BY
    duplicate_seen_at DESC,
    batch DESC,
    item DESC
LIMIT $4::integer;
