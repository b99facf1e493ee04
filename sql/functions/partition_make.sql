-- meter.partition_make(parent, day) - makes the partition that holds a day.
--
-- True: made now; false: it was there. Two callers at once: the second one
-- waits and finds it. CREATE then ATTACH takes SHARE UPDATE EXCLUSIVE on
-- the parent, which stops neither reads nor writes, where CREATE ...
-- PARTITION OF would take ACCESS EXCLUSIVE. Series are partitioned by
-- bucket, from midnight UTC on. Runs as its caller, the owner.
CREATE OR REPLACE FUNCTION meter.partition_make(parent text, day date)
RETURNS boolean
LANGUAGE plpgsql
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span   integer := meter.partition_span(parent);
    first  date := meter.partition_first(parent, day);
    -- the one that holds the first day of year 1 may be shorter
    behind date := first + span
        - mod(mod(first - DATE '1970-01-05', span) + span, span);
    name   text := parent || '_' || to_char(first, 'YYYYMMDD');
    bound  text := CASE
        WHEN starts_with(parent, 'series_') THEN '%s 00:00:00+00'
        ELSE '%s'
    END;
BEGIN
    PERFORM pg_advisory_xact_lock(
        hashtextextended('meter.partition_make ' || parent, 0)
    );
    IF EXISTS (
        SELECT
        FROM meter.partition_days(parent) AS existing
        WHERE existing = first
    ) THEN
        RETURN false;
    END IF;

    EXECUTE format(
        'CREATE TABLE meter.%I (LIKE meter.%I INCLUDING ALL)',
        name,
        parent
    );
    EXECUTE format('ALTER TABLE meter.%I ENABLE ROW LEVEL SECURITY', name);
    EXECUTE format('ALTER TABLE meter.%I FORCE ROW LEVEL SECURITY', name);
    EXECUTE format(
        'REVOKE ALL ON TABLE meter.%I FROM PUBLIC, meter_writer, meter_reader',
        name
    );
    EXECUTE format(
        'ALTER TABLE meter.%I ATTACH PARTITION meter.%I'
            ' FOR VALUES FROM (%L) TO (%L)',
        parent,
        name,
        format(bound, to_char(first, 'YYYY-MM-DD')),
        format(bound, to_char(behind, 'YYYY-MM-DD'))
    );
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION meter.partition_make(text, date) FROM PUBLIC;
