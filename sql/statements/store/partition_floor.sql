-- partition_floor - oldest live day of a partitioned table, if one is set.
--
-- $1::text  parent, as in meter.partition_span
--
-- Row, always one: floor date or NULL, now timestamptz, days integer or NULL:
-- those for which it is kept, -1: for ever.
SELECT
    (
        SELECT floor
        FROM meter.partition_floor
        WHERE parent = $1::text
    ) AS floor,
    clock_timestamp() AS now,
    (
        SELECT days
        FROM meter.retention_kept
        WHERE parent = $1::text
    ) AS days;
