-- levels: 5s 1m 1h 1d 7d
-- series_recount_next - a tenant's first bucket of series_5s in a stretch of
-- time.
--
-- $1::text         tenant
-- $2::text[]       series
-- $3::bigint[]     version
-- $4::timestamptz  bucket at or after
-- $5::timestamptz  bucket before
--
-- Row, always one: bucket timestamptz or NULL: none.
SELECT min(part.bucket) AS bucket
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
