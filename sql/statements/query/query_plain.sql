-- levels: 5s 1m 1h 1d 7d
-- query_plain - buckets of a level as they are: each one a window, each
-- dimension set a group of its own, so that nothing is to be summed up.
--
-- $1::text         tenant
-- $2::text         series
-- $3::bigint       version
-- $4::bytea[]      dimension_key
-- $5::integer[]    for each its group
-- $6::timestamptz  start of the first bucket
-- $7::timestamptz  end: buckets that start before it
-- $8::integer      figure: 0 sum, 1 min, 2 max, 3 last
--
-- Rows, in no order: place integer (the group), buckets timestamptz[], counts
-- bigint[], figures numeric(57, 9)[], as long as each other and in no order, or
-- NULL; floor timestamptz. Where place is NULL, floor says from where on the
-- level is kept, the rest is NULL; elsewhere floor is. Runs as meter_reader
-- with the tenant set: one range of the primary key for each dimension_key.
-- Arrays: a row for each bucket would take longer to send than to find.
SELECT
    NULL::integer AS place,
    NULL::timestamptz[] AS buckets,
    NULL::bigint[] AS counts,
    NULL::numeric(57, 9)[] AS figures,
    stored.floor::timestamp AT TIME ZONE 'UTC' AS floor
FROM meter.partition_floor AS stored
WHERE stored.parent = 'series_5s'
UNION ALL
(
    SELECT
        asked.place,
        held.buckets,
        held.counts,
        held.figures,
        NULL AS floor
    FROM unnest($4::bytea[], $5::integer[]) AS asked (dimension_key, place)
    CROSS JOIN LATERAL (
        SELECT
            array_agg(level.bucket) AS buckets,
            array_agg(level.count) AS counts,
            array_agg(
                CASE $8::integer
                    WHEN 0 THEN level.sum
                    WHEN 1 THEN level.min
                    WHEN 2 THEN level.max
                    ELSE level.last
                END
            ) AS figures
        FROM meter.series_5s AS level
        WHERE level.tenant = $1::text
            AND level.series = $2::text
            AND level.version = $3::bigint
            AND level.dimension_key = asked.dimension_key
            AND level.bucket >= $6::timestamptz
            AND level.bucket < $7::timestamptz
    ) AS held
);
