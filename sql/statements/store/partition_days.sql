-- partition_days - first days of the partitions of a partitioned table.
--
-- $1::text  parent, as in meter.partition_span
--
-- Rows: day date. Runs as meter_owner.
SELECT day
FROM meter.partition_days($1::text) AS day;
