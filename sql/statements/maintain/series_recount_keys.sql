-- series_recount_keys - what the dictionary has of some dimension sets.
--
-- $1::text      tenant
-- $2::text[]    series
-- $3::bigint[]  version
-- $4::bytea[]   dimension_key
--
-- Rows, in no order: series text, dimension_key bytea, dimensions text.
SELECT
    known.series,
    known.dimension_key,
    known.dimensions
FROM unnest($2::text[], $3::bigint[], $4::bytea[])
    AS asked (series, version, dimension_key)
JOIN meter.series_key AS known
    ON known.tenant = $1::text
    AND known.series = asked.series
    AND known.version = asked.version
    AND known.dimension_key = asked.dimension_key;
