-- copy_event - appends to the ledger.
--
-- Binary stream, 20 fields a row, in table order: tenant text, event_id
-- text, type text, ts timestamptz, part_day date, customer text or NULL,
-- resource text or NULL, quantity numeric, count int8, attributes text,
-- source text or NULL, flags int4, session uuid or NULL, seq int8 or NULL,
-- writer uuid, writer_seq int8, recorded_at timestamptz, disposition int2,
-- from_state text or NULL, clock_at timestamptz or NULL. A day without a
-- partition gives 23514.
COPY meter.event (
    tenant,
    event_id,
    type,
    ts,
    part_day,
    customer,
    resource,
    quantity,
    count,
    attributes,
    source,
    flags,
    session,
    seq,
    writer,
    writer_seq,
    recorded_at,
    disposition,
    from_state,
    clock_at
)
FROM STDIN (FORMAT binary);
