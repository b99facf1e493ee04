-- partition_days - the days that exist of a partitioned table.
--
-- $1::text  parent: 'event' or 'duplicate_audit'
--
-- Rows: day date. Runs as meter_owner.
SELECT day
FROM meter.partition_days($1::text) AS day;
