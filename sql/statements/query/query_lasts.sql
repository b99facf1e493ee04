-- levels: 5s 1m 1h 1d 7d
-- query_lasts - the last sample of a gauge in each window.
--
-- $1::text           tenant
-- $2::text           series
-- $3::bigint         version
-- $4::bytea[]        dimension_key
-- $5::integer[]      for each the group that it is of
-- $6::timestamptz[]  starts of the windows, ascending
-- $7::timestamptz    start of the first bucket
-- $8::timestamptz    end: buckets that start before it
-- $9::bigint         limit
--
-- Rows, in no order: place integer (the group), slot integer (the window, 1
-- is the first), count bigint, last numeric(38, 9), floor timestamptz. The
-- later of two samples is the one with the later time; then that of the later
-- commit. Where place is NULL, floor says from where on the level is kept, the
-- rest is NULL; elsewhere floor is. Runs as meter_reader with the tenant set.
SELECT
    NULL::integer AS place,
    NULL::integer AS slot,
    NULL::bigint AS count,
    NULL::numeric(38, 9) AS last,
    stored.floor::timestamp AT TIME ZONE 'UTC' AS floor
FROM meter.partition_floor AS stored
WHERE stored.parent = 'series_5s'
UNION ALL
(
    SELECT
        asked.place,
        width_bucket(held.bucket, $6::timestamptz[]) AS slot,
        sum(held.count)::bigint AS count,
        (
            array_agg(
                held.last
                ORDER BY
                    held.last_at DESC,
                    held.last_recorded_at DESC,
                    held.last_writer DESC,
                    held.last_seq DESC
            )
        )[1] AS last,
        NULL AS floor
    FROM unnest($4::bytea[], $5::integer[]) AS asked (dimension_key, place)
    CROSS JOIN LATERAL (
        SELECT
            level.bucket,
            level.count,
            level.last,
            level.last_at,
            level.last_recorded_at,
            level.last_writer,
            level.last_seq
        FROM meter.series_5s AS level
        WHERE level.tenant = $1::text
            AND level.series = $2::text
            AND level.version = $3::bigint
            AND level.dimension_key = asked.dimension_key
            AND level.bucket >= $7::timestamptz
            AND level.bucket < $8::timestamptz
            AND level.last_at IS NOT NULL
        OFFSET 0
    ) AS held
    GROUP BY
        asked.place,
        slot
    LIMIT $9::bigint
);
