-- recovery_events - opens the ledger rows of a writer that no flush has had.
--
-- $1::uuid         writer
-- $2::bigint       writer_seq after
-- $3::bigint       writer_seq up to
-- $4::timestamptz  recorded_at at or after
--
-- Rows by writer_seq: tenant text, event_id text, type text, ts timestamptz,
-- customer text or NULL, resource text or NULL, quantity numeric, count
-- bigint, attributes text, source text or NULL, flags integer, writer_seq
-- bigint, recorded_at timestamptz, from_state text or NULL; see
-- recovery_events_fetch. One scan: $4 is what finds the few blocks.
DECLARE recovery_events NO SCROLL CURSOR FOR
SELECT
    tenant,
    event_id,
    type,
    ts,
    customer,
    resource,
    quantity,
    count,
    attributes,
    source,
    flags,
    writer_seq,
    recorded_at,
    from_state
FROM meter.event
WHERE writer = $1::uuid
    AND writer_seq > $2::bigint
    AND writer_seq <= $3::bigint
    AND recorded_at >= $4::timestamptz
ORDER BY writer_seq;
