-- event_read_minted - a ledger row by an id that the edge minted.
--
-- $1::text         tenant
-- $2::timestamptz  ts, taken from the id
-- $3::text         event_id
--
-- Row, or none: as event_read. Minted ids have no registry row; the day is
-- that of ts, or a later one when that day was gone already.
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
WHERE part_day >= ($2::timestamptz AT TIME ZONE 'UTC')::date
    AND tenant = $1::text
    AND ts = $2::timestamptz
    AND event_id = $3::text
LIMIT 1;
