-- meter.partition_drop(parent, day) - drops the partition that holds a day.
--
-- True: dropped now; false: it was not there. Refused for one that is not
-- wholly below the stored floor: whoever writes has to know first. DETACH
-- waits for those who use the table, and all others wait behind it, so the
-- caller sets a short lock_timeout and tries again. Runs as its caller, the
-- owner.
CREATE OR REPLACE FUNCTION meter.partition_drop(parent text, day date)
RETURNS boolean
LANGUAGE plpgsql
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span  integer := meter.partition_span(parent);
    first date := meter.partition_first(parent, day);
    name  text := parent || '_' || to_char(first, 'YYYYMMDD');
BEGIN
    IF NOT EXISTS (
        SELECT
        FROM meter.partition_floor AS stored
        WHERE stored.parent = partition_drop.parent
            AND stored.floor >= first + span
    ) THEN
        RAISE EXCEPTION 'still kept: % of %', first, parent
            USING ERRCODE = 'object_in_use';
    END IF;

    PERFORM pg_advisory_xact_lock(
        hashtextextended('meter.partition_make ' || parent, 0)
    );
    IF NOT EXISTS (
        SELECT
        FROM meter.partition_days(parent) AS existing
        WHERE existing = first
    ) THEN
        RETURN false;
    END IF;
    EXECUTE format(
        'ALTER TABLE meter.%I DETACH PARTITION meter.%I',
        parent,
        name
    );
    EXECUTE format('DROP TABLE meter.%I', name);
    RETURN true;
END
$$;

REVOKE ALL ON FUNCTION meter.partition_drop(text, date) FROM PUBLIC;
