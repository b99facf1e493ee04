-- event_read - a ledger row that the registry points to.
--
-- $1::date         part_day
-- $2::text         tenant
-- $3::timestamptz  ts
-- $4::text         event_id
--
-- Row, or none when retention dropped the day: type text, ts timestamptz,
-- customer text or NULL, resource text or NULL, quantity text, count
-- bigint, attributes text, source text or NULL, flags integer, recorded_at
-- timestamptz, by the clock. quantity is plain decimal text without trailing
-- zeros.
SELECT
    type,
    ts,
    customer,
    resource,
    trim_scale(quantity)::text AS quantity,
    count,
    attributes,
    source,
    flags,
    COALESCE(clock_at, recorded_at) AS recorded_at
FROM meter.event
WHERE part_day = $1::date
    AND tenant = $2::text
    AND ts = $3::timestamptz
    AND event_id = $4::text
LIMIT 1;
