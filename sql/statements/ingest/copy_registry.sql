-- copy_registry - registers keys that ingest_known did not find.
--
-- Binary stream, 8 fields a row: scope text, key uuid, tenant text, head
-- int8, body int8 or NULL, ts timestamptz, part_day date, first_seen_at
-- timestamptz. A key registered meanwhile by another lane gives 23505.
COPY meter.event_registry (
    scope,
    key,
    tenant,
    head,
    body,
    ts,
    part_day,
    first_seen_at
)
FROM STDIN (FORMAT binary);
