-- rollup_floors - from where on each level is kept, held against retention.
--
-- No parameters. Rows, in no order: parent text, floor date. Floors are
-- raised only when this transaction has ended.
SELECT
    parent,
    floor
FROM meter.partition_floor
WHERE parent IN (
    'series_5s', 'series_1m', 'series_1h', 'series_1d', 'series_7d'
)
FOR SHARE;
