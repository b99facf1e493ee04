-- copy_audit - records observations of ids that were known.
--
-- Binary stream, 11 fields a row, in table order: tenant text, event_id
-- text, key uuid, verdict int2 (1 duplicate, 2 conflict), first_seen_at
-- timestamptz, duplicate_seen_at timestamptz, part_day date, type text, ts
-- timestamptz, payload text, item int4. type, ts and payload are NULL where
-- they are as stored. A day without a partition gives 23514.
COPY meter.duplicate_audit (
    tenant,
    event_id,
    key,
    verdict,
    first_seen_at,
    duplicate_seen_at,
    part_day,
    type,
    ts,
    payload,
    item
)
FROM STDIN (FORMAT binary);
