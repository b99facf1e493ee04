-- series_dirty_take - takes the oldest marks of a level.
--
-- $1::integer  level of the marked buckets: 1 to 4
-- $2::bigint   how many at most
--
-- Rows, in no order: tenant text, series text, version bigint, dimension_key
-- bytea, bucket timestamptz, marked_at timestamptz; a bucket as often as it
-- was marked. They are gone when the transaction commits, and what another
-- one takes at this moment is passed over. Marks that come later stay, so
-- this goes before anything of the level below is read. An array, since a
-- join may be planned the wrong way round.
WITH taken AS (
    SELECT id
    FROM meter.series_dirty
    WHERE level = $1::integer
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
    mark.marked_at;
