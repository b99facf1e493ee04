-- levels: 5s 1m 1h 1d 7d
-- series_recount_rows - a tenant's rows of series_5s in a stretch of time.
--
-- $1::text         tenant
-- $2::text[]       series
-- $3::bigint[]     version
-- $4::timestamptz  bucket at or after
-- $5::timestamptz  bucket before
--
-- Rows, in no order: series text, dimension_key bytea, bucket timestamptz,
-- count bigint, sum, min, max, last numeric or NULL, last_at,
-- last_recorded_at timestamptz or NULL, last_writer uuid or NULL, last_seq
-- bigint or NULL, labels text[] or NULL, counts bigint[] or NULL.
SELECT
    part.series,
    part.dimension_key,
    part.bucket,
    part.count,
    part.sum,
    part.min,
    part.max,
    part.last,
    part.last_at,
    part.last_recorded_at,
    part.last_writer,
    part.last_seq,
    part.labels,
    part.counts
FROM meter.series_5s AS part
WHERE part.tenant = $1::text
    AND (part.series, part.version) IN (
        SELECT
            known.series,
            known.version
        FROM unnest($2::text[], $3::bigint[]) AS known (series, version)
    )
    AND part.bucket >= $4::timestamptz
    AND part.bucket < $5::timestamptz;
