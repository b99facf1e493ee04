-- retention_floor_lock - floor of a table, from those who write by it.
--
-- $1::text  parent, as in meter.partition_span
--
-- Row: floor date; none when it never had one. Runs as meter_owner.
SELECT floor
FROM meter.partition_floor
WHERE parent = $1::text
FOR UPDATE;
