-- meter.partition_make(parent, day) - makes one day of a partitioned table.
--
-- True: made now; false: it was there. Two callers at once: the second one
-- waits and finds it. CREATE then ATTACH takes SHARE UPDATE EXCLUSIVE on
-- the parent, which stops neither reads nor writes, where CREATE ...
-- PARTITION OF would take ACCESS EXCLUSIVE. Runs as its caller, the owner.
CREATE OR REPLACE FUNCTION meter.partition_make(parent text, day date)
RETURNS boolean
LANGUAGE plpgsql
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    name text;
BEGIN
    IF parent IS NULL OR parent NOT IN ('event', 'duplicate_audit') THEN
        RAISE EXCEPTION 'no partitioned table: %', parent
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF day IS NULL OR day < DATE '0001-01-01' OR day > DATE '9999-12-30' THEN
        RAISE EXCEPTION 'day out of range: %', day
            USING ERRCODE = 'datetime_field_overflow';
    END IF;

    PERFORM pg_advisory_xact_lock(
        hashtextextended('meter.partition_make ' || parent, 0)
    );
    IF EXISTS (
        SELECT
        FROM meter.partition_days(parent) AS existing
        WHERE existing = day
    ) THEN
        RETURN false;
    END IF;

    name := parent || '_' || to_char(day, 'YYYYMMDD');
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
        day,
        day + 1
    );
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION meter.partition_make(text, date) FROM PUBLIC;
