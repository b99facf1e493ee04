-- meter.partition_span(parent) - days that a partition of a table holds; an
-- error when there is no such table.
--
-- meter.partition_first(parent, day) - first day of the partition that holds
-- a day. Those of more than one day count from Monday 1970-01-05, on and
-- back; none begins before year 1.
--
-- The twins of partition_span and partition_first_day in meterd.
CREATE OR REPLACE FUNCTION meter.partition_span(parent text)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span integer := CASE parent
        WHEN 'event' THEN 1
        WHEN 'duplicate_audit' THEN 1
        WHEN 'event_index' THEN 1
        WHEN 'series_5s' THEN 1
        WHEN 'series_1m' THEN 1
        WHEN 'series_1h' THEN 28
        WHEN 'series_1d' THEN 364
        WHEN 'series_7d' THEN 364
    END;
BEGIN
    IF span IS NULL THEN
        RAISE EXCEPTION 'no partitioned table: %', parent
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN span;
END
$$;

CREATE OR REPLACE FUNCTION meter.partition_first(parent text, day date)
RETURNS date
LANGUAGE plpgsql
IMMUTABLE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span integer := meter.partition_span(parent);
BEGIN
    IF day IS NULL OR day < DATE '0001-01-01' OR day > DATE '9999-12-30' THEN
        RAISE EXCEPTION 'day out of range: %', day
            USING ERRCODE = 'datetime_field_overflow';
    END IF;
    RETURN greatest(
        day - mod(mod(day - DATE '1970-01-05', span) + span, span),
        DATE '0001-01-01'
    );
END
$$;

REVOKE ALL ON FUNCTION meter.partition_span(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION meter.partition_first(text, date) FROM PUBLIC;
