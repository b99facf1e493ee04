-- series_recount_floors_hold - likewise, and no floor is raised until the
-- transaction ends.
--
-- No parameters. Rows, in no order: parent text, floor date.
SELECT
    parent,
    floor
FROM meter.partition_floor
FOR SHARE;
