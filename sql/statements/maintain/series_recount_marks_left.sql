-- series_recount_marks_left - how far the marks of a level go.
--
-- $1::integer  level: 1 to 4
-- $2::bigint   marks up to this id only, NULL: all
--
-- Row, always one: marks bigint, last bigint: the greatest id, 0: none.
SELECT
    count(*) AS marks,
    COALESCE(max(mark.id), 0) AS last
FROM meter.series_dirty AS mark
WHERE mark.level = $1::integer
    AND ($2::bigint IS NULL OR mark.id <= $2::bigint);
