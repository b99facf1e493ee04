-- series_recount_marks - a tenant's buckets that are still to be computed.
--
-- $1::integer      level: 1 to 4
-- $2::text         tenant
-- $3::text[]       series
-- $4::bigint[]     version
-- $5::timestamptz  bucket at or after
-- $6::timestamptz  bucket before
--
-- Rows, in no order: series text, dimension_key bytea, bucket timestamptz; a
-- bucket as often as it was marked.
SELECT
    mark.series,
    mark.dimension_key,
    mark.bucket
FROM meter.series_dirty AS mark
WHERE mark.level = $1::integer
    AND mark.tenant = $2::text
    AND (mark.series, mark.version) IN (
        SELECT
            known.series,
            known.version
        FROM unnest($3::text[], $4::bigint[]) AS known (series, version)
    )
    AND mark.bucket >= $5::timestamptz
    AND mark.bucket < $6::timestamptz;
