-- levels: 5s 1m 1h 1d 7d
-- query_rows - buckets of a level, summed up in windows.
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
-- is the first), count bigint, sum numeric(57, 9), min, max numeric(38, 9),
-- floor timestamptz. Where place is NULL, floor says from where on the level
-- is kept, the rest is NULL; elsewhere floor is. 22003: a count passes 64
-- bits. Runs as meter_reader with the tenant set: one range of the primary
-- key for each dimension_key.
SELECT
    NULL::integer AS place,
    NULL::integer AS slot,
    NULL::bigint AS count,
    NULL::numeric(57, 9) AS sum,
    NULL::numeric(38, 9) AS min,
    NULL::numeric(38, 9) AS max,
    stored.floor::timestamp AT TIME ZONE 'UTC' AS floor
FROM meter.partition_floor AS stored
WHERE stored.parent = 'series_5s'
UNION ALL
(
    SELECT
        asked.place,
        width_bucket(held.bucket, $6::timestamptz[]) AS slot,
        sum(held.count)::bigint AS count,
        sum(held.sum)::numeric(57, 9) AS sum,
        min(held.min) AS min,
        max(held.max) AS max,
        NULL AS floor
    FROM unnest($4::bytea[], $5::integer[]) AS asked (dimension_key, place)
    CROSS JOIN LATERAL (
        SELECT
            level.bucket,
            level.count,
            level.sum,
            level.min,
            level.max
        FROM meter.series_5s AS level
        WHERE level.tenant = $1::text
            AND level.series = $2::text
            AND level.version = $3::bigint
            AND level.dimension_key = asked.dimension_key
            AND level.bucket >= $7::timestamptz
            AND level.bucket < $8::timestamptz
        OFFSET 0
    ) AS held
    GROUP BY
        asked.place,
        slot
    LIMIT $9::bigint
);
