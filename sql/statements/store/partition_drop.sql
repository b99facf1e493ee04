-- partition_drop - drops the partition that holds a day, if it is there.
--
-- $1::text  parent, as in meter.partition_span
-- $2::date  day
--
-- Row: dropped boolean, false when it was gone. Runs as meter_owner.
SELECT meter.partition_drop($1::text, $2::date) AS dropped;
