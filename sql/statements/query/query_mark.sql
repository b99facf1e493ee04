-- query_mark - how far a series can be answered, and its dimension sets.
--
-- $1::text         tenant
-- $2::text         series
-- $3::bigint       version
-- $4::text         dimensions asked for, a JSON object: each name with the
--                  list of values that will do; none: all sets
-- $5::bytea[]      keys that these may be at most; NULL: not known
-- $6::bigint       limit of keys
-- $7::integer      level, 0 to 4
-- $8::timestamptz  start of the first bucket to be read
-- $9::timestamptz  end of what is asked for; NULL: now
-- $10::bigint      limit of marks to look at
--
-- Rows, by kind integer:
--   0  at: now
--   1  at: what was committed by then is flushed
--   2  level, at: kept from there on; one of each level
--   3  level, at: a bucket that is to be computed again, of this level and
--      those below, in the range
--   4  there are more marks than the limit
--   5  dimension_key bytea, dimensions text: a set that fits, in no order
--
-- level is an integer. Runs as meter_reader with the tenant set, before the
-- buckets are read: what is newer may be in them or not.
WITH looked AS MATERIALIZED (
    SELECT
        mark.level,
        mark.bucket
    FROM meter.series_dirty AS mark
    WHERE mark.tenant = $1::text
        AND mark.series = $2::text
        AND mark.version = $3::bigint
        AND mark.level + 0 <= $7::integer -- not by the key of the workers
        AND mark.bucket > $8::timestamptz - INTERVAL '168 h'
        AND mark.bucket < coalesce($9::timestamptz, 'infinity')
    LIMIT $10::bigint
)
SELECT
    0 AS kind,
    NULL::integer AS level,
    statement_timestamp() AS at,
    NULL::bytea AS dimension_key,
    NULL::text AS dimensions
UNION ALL
SELECT
    1,
    NULL,
    coalesce(
        min(
            CASE
                WHEN writer_flush.flushed_at <= statement_timestamp()
                    THEN writer_flush.flushed_at
                ELSE writer.started_at -- not known, or of a clock ahead
            END
        ),
        statement_timestamp()
    ),
    NULL,
    NULL
FROM meter.writer
INNER JOIN meter.writer_seq ON writer.writer = writer_seq.writer
INNER JOIN meter.writer_flush ON writer.writer = writer_flush.writer
WHERE writer.retired_at IS NULL
    AND writer_seq.last > writer_flush.upto
UNION ALL
SELECT
    2,
    named.level,
    stored.floor::timestamp AT TIME ZONE 'UTC',
    NULL,
    NULL
FROM (
    VALUES
        (0, 'series_5s'),
        (1, 'series_1m'),
        (2, 'series_1h'),
        (3, 'series_1d'),
        (4, 'series_7d')
) AS named (level, parent)
INNER JOIN meter.partition_floor AS stored ON named.parent = stored.parent
UNION ALL
SELECT DISTINCT
    3,
    looked.level::integer,
    looked.bucket,
    NULL::bytea,
    NULL
FROM looked
UNION ALL
SELECT
    4,
    NULL,
    NULL,
    NULL,
    NULL
FROM looked
HAVING count(*) >= $10::bigint
UNION ALL
(
    SELECT
        5,
        NULL,
        NULL,
        candidate.dimension_key,
        candidate.dimensions
    FROM (
        SELECT
            held.dimension_key,
            held.dimensions
        FROM meter.series_key AS held
        WHERE $5::bytea[] IS NULL
            AND held.tenant = $1::text
            AND held.series = $2::text
            AND held.version = $3::bigint
        UNION ALL
        SELECT
            held.dimension_key,
            held.dimensions
        FROM meter.series_key AS held
        WHERE held.tenant = $1::text
            AND held.series = $2::text
            AND held.version = $3::bigint
            AND held.dimension_key = ANY ($5::bytea[])
    ) AS candidate
    WHERE NOT EXISTS (
        SELECT
        FROM jsonb_each($4::text::jsonb) AS asked (name, wanted)
        WHERE NOT asked.wanted @> jsonb_build_array(
            coalesce(candidate.dimensions::jsonb -> asked.name, 'null'::jsonb)
        )
    )
    LIMIT $6::bigint
);
