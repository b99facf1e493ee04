-- levels: 5s 1m 1h 1d 7d
-- query_tallies - tallies of a level, summed up in windows by label.
--
-- $1::text           tenant
-- $2::text           series
-- $3::bigint         version
-- $4::bytea[]        dimension_key
-- $5::integer[]      for each the group that it is of
-- $6::timestamptz[]  starts of the windows, ascending
-- $7::timestamptz    start of the first bucket
-- $8::timestamptz    end: buckets that start before it
-- $9::bigint         limit of windows
-- $10::bigint        limit of labels
--
-- Rows, in no order: place integer (the group), slot integer (the window, 1
-- is the first), count bigint, sum numeric(57, 9), label text, floor
-- timestamptz. Where label is NULL it is the window itself; else count is
-- that of the label, and sum NULL. Where place is NULL, floor says from where
-- on the level is kept, the rest is NULL; elsewhere floor is. 22003: a count
-- passes 64 bits. Runs as meter_reader with the tenant set.
WITH held AS MATERIALIZED (
    SELECT
        asked.place,
        width_bucket(level.bucket, $6::timestamptz[]) AS slot,
        level.count,
        level.sum,
        level.labels,
        level.counts
    FROM unnest($4::bytea[], $5::integer[]) AS asked (dimension_key, place)
    CROSS JOIN LATERAL (
        SELECT
            one.bucket,
            one.count,
            one.sum,
            one.labels,
            one.counts
        FROM meter.series_5s AS one
        WHERE one.tenant = $1::text
            AND one.series = $2::text
            AND one.version = $3::bigint
            AND one.dimension_key = asked.dimension_key
            AND one.bucket >= $7::timestamptz
            AND one.bucket < $8::timestamptz
        OFFSET 0
    ) AS level
)
SELECT
    NULL::integer AS place,
    NULL::integer AS slot,
    NULL::bigint AS count,
    NULL::numeric(57, 9) AS sum,
    NULL::text AS label,
    stored.floor::timestamp AT TIME ZONE 'UTC' AS floor
FROM meter.partition_floor AS stored
WHERE stored.parent = 'series_5s'
UNION ALL
(
    SELECT
        held.place,
        held.slot,
        sum(held.count)::bigint AS count,
        sum(held.sum)::numeric(57, 9) AS sum,
        NULL AS label,
        NULL AS floor
    FROM held
    GROUP BY
        held.place,
        held.slot
    LIMIT $9::bigint
)
UNION ALL
(
    SELECT
        held.place,
        held.slot,
        sum(tally.count)::bigint AS count,
        NULL AS sum,
        tally.label,
        NULL AS floor
    FROM held
    CROSS JOIN LATERAL unnest(held.labels, held.counts) AS tally (label, count)
    GROUP BY
        held.place,
        held.slot,
        tally.label
    LIMIT $10::bigint
);
