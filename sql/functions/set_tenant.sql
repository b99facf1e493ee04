-- meter.set_tenant(tenant) - whose rows this transaction may read.
--
-- Ends with the transaction; outside of one it has no effect, and the
-- policies then show nothing. No tenant, NULL or '', shows nothing either.
-- A function, and so plain that the planner puts it in place of the call:
-- where the database is distributed, one that executes SET LOCAL takes its
-- place, since set_config does not reach the shards.
CREATE OR REPLACE FUNCTION meter.set_tenant(tenant text)
RETURNS text
LANGUAGE sql
VOLATILE
SECURITY INVOKER
AS $$
    SELECT pg_catalog.set_config('app.current_tenant', tenant, true)
$$;

REVOKE ALL ON FUNCTION meter.set_tenant(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.set_tenant(text) TO meter_reader;
