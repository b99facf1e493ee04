-- levels: 5s 1m 1h 1d
-- series_recompute - computes buckets above series_5s from all that is in
-- series_5s.
--
-- $1::text[]         tenant
-- $2::text[]         series
-- $3::bigint[]       version
-- $4::bytea[]        dimension_key
-- $5::timestamptz[]  bucket
-- $6::timestamptz[]  where it ends
-- $7::timestamptz    the first of the buckets
-- $8::timestamptz    where the last of them ends
--
-- Row, always one: empty bigint, how many have nothing below. Those have a
-- count of 0 now, and series_empty_delete is to follow. Only after
-- series_ensure in the same transaction, since the level below must be read
-- behind the locks. $7 and $8 let the planner leave out partitions. Tallies
-- are read apart, and only where there are some.
WITH written AS (
    INSERT INTO meter.series_1m (
        tenant,
        series,
        version,
        dimension_key,
        bucket,
        count,
        sum,
        min,
        max,
        last,
        last_at,
        last_recorded_at,
        last_writer,
        last_seq,
        labels,
        counts
    )
    SELECT
        asked.tenant,
        asked.series,
        asked.version,
        asked.dimension_key,
        asked.bucket,
        total.count,
        total.sum,
        total.min,
        total.max,
        (total.latest).last,
        (total.latest).last_at,
        (total.latest).last_recorded_at,
        (total.latest).last_writer,
        (total.latest).last_seq,
        tally.labels,
        tally.counts
    FROM unnest(
        $1::text[],
        $2::text[],
        $3::bigint[],
        $4::bytea[],
        $5::timestamptz[],
        $6::timestamptz[]
    ) AS asked (
        tenant,
        series,
        version,
        dimension_key,
        bucket,
        bucket_end
    )
    CROSS JOIN LATERAL (
        SELECT
            coalesce(sum(part.count), 0)::bigint AS count,
            sum(part.sum) AS sum,
            min(part.min) AS min,
            max(part.max) AS max,
            (
                array_agg(
                    part
                    ORDER BY
                        part.last_at DESC,
                        part.last_recorded_at DESC,
                        part.last_writer DESC,
                        part.last_seq DESC
                ) FILTER (WHERE part.last_at IS NOT NULL)
            )[1] AS latest,
            count(part.labels) > 0 AS is_tally
        FROM meter.series_5s AS part
        WHERE part.tenant = asked.tenant
            AND part.series = asked.series
            AND part.version = asked.version
            AND part.dimension_key = asked.dimension_key
            AND part.bucket >= asked.bucket
            AND part.bucket < asked.bucket_end
            AND part.bucket >= $7::timestamptz
            AND part.bucket < $8::timestamptz
    ) AS total
    CROSS JOIN LATERAL (
        SELECT
            array_agg(summed.label ORDER BY summed.label) AS labels,
            array_agg(summed.count ORDER BY summed.label) AS counts
        FROM (
            SELECT
                one.label COLLATE "C" AS label,
                sum(one.count)::bigint AS count
            FROM meter.series_5s AS part
            CROSS JOIN LATERAL unnest(
                part.labels,
                part.counts
            ) AS one (label, count)
            WHERE total.is_tally
                AND part.tenant = asked.tenant
                AND part.series = asked.series
                AND part.version = asked.version
                AND part.dimension_key = asked.dimension_key
                AND part.bucket >= asked.bucket
                AND part.bucket < asked.bucket_end
                AND part.bucket >= $7::timestamptz
                AND part.bucket < $8::timestamptz
            GROUP BY one.label COLLATE "C"
        ) AS summed
    ) AS tally
    ON CONFLICT (tenant, series, version, dimension_key, bucket) DO UPDATE
    SET
        count = excluded.count,
        sum = excluded.sum,
        min = excluded.min,
        max = excluded.max,
        last = excluded.last,
        last_at = excluded.last_at,
        last_recorded_at = excluded.last_recorded_at,
        last_writer = excluded.last_writer,
        last_seq = excluded.last_seq,
        labels = excluded.labels,
        counts = excluded.counts
    RETURNING count
)
SELECT count(*) FILTER (WHERE written.count = 0) AS empty
FROM written;
