-- levels: 5s 1m 1h 1d 7d
-- series_upsert - adds cells to the buckets of series_5s.
--
-- $1::text[]          tenant
-- $2::text[]          series
-- $3::bigint[]        version
-- $4::bytea[]         dimension_key
-- $5::timestamptz[]   bucket
-- $6::bigint[]        count
-- $7::numeric[]       sum
-- $8::numeric[]       min, NULL unless a gauge, as the next six
-- $9::numeric[]       max
-- $10::numeric[]      last
-- $11::timestamptz[]  last_at
-- $12::timestamptz[]  last_recorded_at
-- $13::uuid[]         last_writer
-- $14::bigint[]       last_seq
-- $15::text[]         labels, each an array literal, NULL: none
-- $16::text[]         counts, likewise
--
-- No rows; as many touched as given. Keys come once each, in bytewise order
-- of (tenant, series, version, dimension_key, bucket), which is the order of
-- locking. Adds, so it must run in the transaction that moves writer_flush.
INSERT INTO meter.series_5s (
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
    folded.tenant,
    folded.series,
    folded.version,
    folded.dimension_key,
    folded.bucket,
    folded.count,
    folded.sum,
    folded.min,
    folded.max,
    folded.last,
    folded.last_at,
    folded.last_recorded_at,
    folded.last_writer,
    folded.last_seq,
    folded.labels::text[],
    folded.counts::bigint[]
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bigint[],
    $4::bytea[],
    $5::timestamptz[],
    $6::bigint[],
    $7::numeric[],
    $8::numeric[],
    $9::numeric[],
    $10::numeric[],
    $11::timestamptz[],
    $12::timestamptz[],
    $13::uuid[],
    $14::bigint[],
    $15::text[],
    $16::text[]
) AS folded (
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
ON CONFLICT (tenant, series, version, dimension_key, bucket) DO UPDATE
SET
    count = series_5s.count + excluded.count,
    sum = COALESCE(
        series_5s.sum + excluded.sum,
        series_5s.sum,
        excluded.sum
    ),
    min = LEAST(series_5s.min, excluded.min),
    max = GREATEST(series_5s.max, excluded.max),
    last = CASE
        WHEN
            series_5s.last_at IS NULL
            OR (
                excluded.last_at,
                excluded.last_recorded_at,
                excluded.last_writer,
                excluded.last_seq
            ) > (
                series_5s.last_at,
                series_5s.last_recorded_at,
                series_5s.last_writer,
                series_5s.last_seq
            )
            THEN excluded.last
        ELSE series_5s.last
    END,
    last_at = CASE
        WHEN
            series_5s.last_at IS NULL
            OR (
                excluded.last_at,
                excluded.last_recorded_at,
                excluded.last_writer,
                excluded.last_seq
            ) > (
                series_5s.last_at,
                series_5s.last_recorded_at,
                series_5s.last_writer,
                series_5s.last_seq
            )
            THEN excluded.last_at
        ELSE series_5s.last_at
    END,
    last_recorded_at = CASE
        WHEN
            series_5s.last_at IS NULL
            OR (
                excluded.last_at,
                excluded.last_recorded_at,
                excluded.last_writer,
                excluded.last_seq
            ) > (
                series_5s.last_at,
                series_5s.last_recorded_at,
                series_5s.last_writer,
                series_5s.last_seq
            )
            THEN excluded.last_recorded_at
        ELSE series_5s.last_recorded_at
    END,
    last_writer = CASE
        WHEN
            series_5s.last_at IS NULL
            OR (
                excluded.last_at,
                excluded.last_recorded_at,
                excluded.last_writer,
                excluded.last_seq
            ) > (
                series_5s.last_at,
                series_5s.last_recorded_at,
                series_5s.last_writer,
                series_5s.last_seq
            )
            THEN excluded.last_writer
        ELSE series_5s.last_writer
    END,
    last_seq = CASE
        WHEN
            series_5s.last_at IS NULL
            OR (
                excluded.last_at,
                excluded.last_recorded_at,
                excluded.last_writer,
                excluded.last_seq
            ) > (
                series_5s.last_at,
                series_5s.last_recorded_at,
                series_5s.last_writer,
                series_5s.last_seq
            )
            THEN excluded.last_seq
        ELSE series_5s.last_seq
    END,
    labels = CASE
        WHEN excluded.labels IS NULL THEN series_5s.labels
        ELSE meter.tally_labels(series_5s.labels, excluded.labels)
    END,
    counts = CASE
        WHEN excluded.labels IS NULL THEN series_5s.counts
        ELSE meter.tally_counts(
            series_5s.labels,
            series_5s.counts,
            excluded.labels,
            excluded.counts
        )
    END;
