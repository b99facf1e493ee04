-- series_recount_floors - from where on ledger, index and levels are kept.
--
-- No parameters. Rows, in no order: parent text, floor date.
SELECT
    parent,
    floor
FROM meter.partition_floor;
