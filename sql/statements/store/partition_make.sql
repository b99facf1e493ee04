-- partition_make - makes the partition that holds a day, if it is missing.
--
-- $1::text  parent, as in meter.partition_span
-- $2::date  day
--
-- Row: made boolean, false when it was there. Runs as meter_owner.
SELECT meter.partition_make($1::text, $2::date) AS made;
