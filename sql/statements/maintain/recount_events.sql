-- recount_events - ledger rows of a tenant, in the order of their effects.
--
-- $1::text         tenant
-- $2::uuid[]       writer
-- $3::bigint[]     rows of that writer with a greater writer_seq only; of
--                  other writers all
-- $4::timestamptz  ts at or after, NULL: any
-- $5::timestamptz  recorded_at after, NULL: any
--
-- Rows by recorded_at, writer, writer_seq: event_id text, type text, ts
-- timestamptz, customer text or NULL, resource text or NULL, quantity
-- numeric, count bigint, attributes text, source text or NULL, flags integer,
-- writer uuid, writer_seq bigint, recorded_at timestamptz, is_adjusted
-- boolean, from_state text or NULL, clock_at timestamptz: the clock then.
SELECT
    event.event_id,
    event.type,
    event.ts,
    event.customer,
    event.resource,
    event.quantity,
    event.count,
    event.attributes,
    event.source,
    event.flags,
    event.writer,
    event.writer_seq,
    event.recorded_at,
    event.disposition <> 0 AS is_adjusted,
    event.from_state,
    COALESCE(event.clock_at, event.recorded_at) AS clock_at
FROM meter.event AS event
WHERE event.tenant = $1::text
    AND ($4::timestamptz IS NULL OR event.ts >= $4::timestamptz)
    AND ($5::timestamptz IS NULL OR event.recorded_at > $5::timestamptz)
    AND event.writer_seq > COALESCE(
        (
            SELECT known.last
            FROM unnest($2::uuid[], $3::bigint[]) AS known (writer, last)
            WHERE known.writer = event.writer
        ),
        0
    )
ORDER BY
    event.recorded_at,
    event.writer,
    event.writer_seq;
