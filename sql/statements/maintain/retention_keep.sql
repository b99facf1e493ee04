-- retention_keep - so many days of a table are kept from now on.
--
-- $1::text     parent, as in meter.partition_span
-- $2::integer  days, -1: for ever
--
-- No rows. Runs as meter_owner.
INSERT INTO meter.retention_kept AS kept (parent, days, since)
VALUES ($1::text, $2::integer, clock_timestamp())
ON CONFLICT (parent) DO UPDATE
SET
    days = excluded.days,
    since = excluded.since
WHERE kept.days <> excluded.days;
