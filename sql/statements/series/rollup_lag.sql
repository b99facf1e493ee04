-- rollup_lag - how many buckets of each level are marked, and since when.
--
-- $1::bigint  how many marks of a level are looked at: the first ones
--
-- Rows, for levels 1 to 4 in no order: level integer, marks bigint, oldest
-- timestamptz or NULL, now timestamptz.
SELECT
    wanted.level,
    looked.marks,
    looked.oldest,
    clock_timestamp() AS now
FROM generate_series(1, 4) AS wanted (level)
CROSS JOIN LATERAL (
    SELECT
        count(*) AS marks,
        min(first_ones.marked_at) AS oldest
    FROM (
        SELECT mark.marked_at
        FROM meter.series_dirty AS mark
        WHERE mark.level = wanted.level
        ORDER BY mark.level, mark.id
        LIMIT $1::bigint
    ) AS first_ones
) AS looked;
