-- series_recount_event_next - when a tenant's next event was.
--
-- $1::text         tenant
-- $2::timestamptz  ts at or after
--
-- Row, one or none: ts timestamptz. Each day's index is asked for its next
-- entry only.
SELECT event.ts
FROM meter.event AS event
WHERE event.tenant = $1::text
    AND event.ts >= $2::timestamptz
ORDER BY event.ts
LIMIT 1;
