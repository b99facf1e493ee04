-- meter.set_tenant(tenant) - whose rows this transaction may read.
--
-- A function that executes SET LOCAL, since set_config does not reach the
-- shards of a distributed database. Ends with the transaction; outside of
-- one it has no effect, and the policies then show nothing.
CREATE OR REPLACE FUNCTION meter.set_tenant(tenant text)
RETURNS void
LANGUAGE plpgsql
SECURITY INVOKER
AS $$
BEGIN
    IF tenant IS NULL OR tenant = '' THEN
        RAISE EXCEPTION 'no tenant given'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    EXECUTE pg_catalog.format('SET LOCAL app.current_tenant = %L', tenant);
END
$$;

REVOKE ALL ON FUNCTION meter.set_tenant(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.set_tenant(text) TO meter_reader;
