-- partition_make - makes one day of a partitioned table, if it is missing.
--
-- $1::text  parent: 'event' or 'duplicate_audit'
-- $2::date  day
--
-- Row: made boolean, false when it was there. Runs as meter_owner.
SELECT meter.partition_make($1::text, $2::date) AS made;
