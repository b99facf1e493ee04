-- query_floors - from where on each level of series is kept.
--
-- Rows, in no order: level integer, floor timestamptz; of a level of which
-- nothing was ever dropped 0001-01-01. Runs as meter_reader.
SELECT
    named.level,
    stored.floor::timestamp AT TIME ZONE 'UTC' AS floor
FROM (
    VALUES
        (0, 'series_5s'),
        (1, 'series_1m'),
        (2, 'series_1h'),
        (3, 'series_1d'),
        (4, 'series_7d')
) AS named (level, parent)
INNER JOIN meter.partition_floor AS stored ON named.parent = stored.parent;
