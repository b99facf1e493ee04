-- series_dirty_take_others - as series_dirty_take, but for some marks.
--
-- $1::integer   level of the marked buckets: 1 to 4
-- $2::bigint    how many at most
-- $3::bigint[]  id of marks that stay where they are
--
-- Rows as series_dirty_take has them, and id bigint.
WITH taken AS (
    SELECT id
    FROM meter.series_dirty
    WHERE level = $1::integer
        AND id <> ALL ($3::bigint[])
    ORDER BY level, id
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
)
DELETE FROM meter.series_dirty AS mark
WHERE mark.level = $1::integer
    AND mark.id = ANY (ARRAY(SELECT taken.id FROM taken))
RETURNING
    mark.tenant,
    mark.series,
    mark.version,
    mark.dimension_key,
    mark.bucket,
    mark.marked_at,
    mark.id;
