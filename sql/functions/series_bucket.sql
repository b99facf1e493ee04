-- meter.series_bucket(level, at) - start of the bucket that holds an instant.
--
-- level: 0 5s, 1 1m, 2 1h, 3 1d, 4 7d. The first day of year 1 is a Monday,
-- as the buckets of 7d want it; for all others any midnight would do. The
-- twin of meter_level_bucket in shared/meter_level.c.
CREATE OR REPLACE FUNCTION meter.series_bucket(level smallint, at timestamptz)
RETURNS timestamptz
LANGUAGE sql
IMMUTABLE
STRICT
PARALLEL SAFE
SECURITY INVOKER
AS $$
    SELECT pg_catalog.date_bin(
        (
            '{5 s,1 min,1 h,24 h,168 h}'::pg_catalog.interval[]
        )[level + 1],
        at,
        pg_catalog.timestamptz '0001-01-01 00:00:00+00'
    )
$$;

REVOKE ALL ON FUNCTION meter.series_bucket(smallint, timestamptz) FROM PUBLIC;
GRANT EXECUTE
    ON FUNCTION meter.series_bucket(smallint, timestamptz)
    TO meter_writer, meter_reader;
