-- levels: 5s 1m 1h 1d 7d
-- series_recount_before - has series_5s rows of these series before a moment?
--
-- $1::text         tenant, NULL: any
-- $2::text[]       series
-- $3::bigint[]     version
-- $4::timestamptz  bucket at or after
-- $5::timestamptz  bucket before
--
-- Row, always one: is_there boolean.
SELECT EXISTS (
    SELECT
    FROM meter.series_5s AS part
    WHERE ($1::text IS NULL OR part.tenant = $1::text)
        AND (part.series, part.version) IN (
            SELECT
                known.series,
                known.version
            FROM unnest($2::text[], $3::bigint[]) AS known (series, version)
        )
        AND part.bucket >= $4::timestamptz
        AND part.bucket < $5::timestamptz
) AS is_there;
