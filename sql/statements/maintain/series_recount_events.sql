-- series_recount_events - ledger rows of a tenant and a stretch of time that
-- are in the series.
--
-- $1::text         tenant
-- $2::timestamptz  ts at or after
-- $3::timestamptz  ts before
-- $4::text[]       types that matter, NULL: all
-- $5::uuid[]       writer
-- $6::bigint[]     rows of that writer up to this writer_seq only; of other
--                  writers none
--
-- Rows, in no order: columns as recount_events has them.
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
    AND event.ts >= $2::timestamptz
    AND event.ts < $3::timestamptz
    AND ($4::text[] IS NULL OR event.type = ANY ($4::text[]))
    AND event.writer_seq <= COALESCE(
        (
            SELECT flushed.upto
            FROM unnest($5::uuid[], $6::bigint[]) AS flushed (writer, upto)
            WHERE flushed.writer = event.writer
        ),
        0
    );
