-- meter.zone_exists(zone) - does PostgreSQL's time zone data have this name?
--
-- The view pg_timezone_names would open every file there is.
CREATE OR REPLACE FUNCTION meter.zone_exists(zone text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
STRICT
SECURITY INVOKER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM timezone(zone, TIMESTAMP '2000-01-01 00:00:00');
    RETURN true;
EXCEPTION
    WHEN invalid_parameter_value THEN
        RETURN false;
END
$$;

REVOKE ALL ON FUNCTION meter.zone_exists(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.zone_exists(text) TO meter_reader;
