-- meter.partition_floor_now(parent) - oldest live day of a partitioned table
-- at the moment of the call; NULL: none is set.
--
-- Volatile, so it looks with a snapshot of its own: called behind a row lock
-- it sees what was committed while the statement around it was waiting.
CREATE OR REPLACE FUNCTION meter.partition_floor_now(parent text)
RETURNS date
LANGUAGE plpgsql
VOLATILE
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT stored.floor
        FROM meter.partition_floor AS stored
        WHERE stored.parent = partition_floor_now.parent
    );
END
$$;

REVOKE ALL ON FUNCTION meter.partition_floor_now(text) FROM PUBLIC;
GRANT EXECUTE
    ON FUNCTION meter.partition_floor_now(text)
    TO meter_writer;
