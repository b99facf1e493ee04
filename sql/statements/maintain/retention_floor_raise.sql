-- retention_floor_raise - from now on nothing is written below; never back.
--
-- $1::text  parent, as in meter.partition_span
-- $2::date  floor
--
-- No rows. Runs as meter_owner.
INSERT INTO meter.partition_floor AS stored (parent, floor)
VALUES ($1::text, $2::date)
ON CONFLICT (parent) DO UPDATE
SET floor = GREATEST(stored.floor, excluded.floor);
