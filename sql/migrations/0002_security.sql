-- 0002 security: row-level security, policies and grants.
--
--   meter_owner    owns everything; subject to the policies too (FORCE)
--   meter_writer   writes for all tenants; never changes or deletes what is
--                  in registry, ledger and audit
--   meter_reader   every client read: rows of app.current_tenant only
--
-- app.current_tenant is set by meter.set_tenant for one transaction. After
-- it the setting is '', not NULL, on that connection: NULLIF makes both see
-- nothing. Policies of a partitioned table do not guard its partitions:
-- no one has a grant on those (meter.partition_make).

REVOKE ALL ON SCHEMA meter FROM PUBLIC;
GRANT USAGE ON SCHEMA meter TO meter_writer, meter_reader;
REVOKE ALL ON ALL TABLES IN SCHEMA meter
    FROM PUBLIC, meter_writer, meter_reader;
ALTER DEFAULT PRIVILEGES IN SCHEMA meter
    REVOKE ALL ON TABLES FROM PUBLIC, meter_writer, meter_reader;

-- Every tenant table.

ALTER TABLE meter.event_registry ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.event_registry FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.event ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.event FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.duplicate_audit ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.duplicate_audit FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.dead_letter ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.dead_letter FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.counter ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.counter FORCE ROW LEVEL SECURITY;
ALTER TABLE meter.api_token ENABLE ROW LEVEL SECURITY;
ALTER TABLE meter.api_token FORCE ROW LEVEL SECURITY;

-- Reads for a client.

CREATE POLICY reader_tenant ON meter.event_registry
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.event
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.duplicate_audit
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.dead_letter
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));
CREATE POLICY reader_tenant ON meter.counter
    FOR SELECT TO meter_reader
    USING (tenant = NULLIF(current_setting('app.current_tenant', true), ''));

GRANT SELECT
    ON meter.event_registry, meter.event, meter.duplicate_audit,
       meter.counter, meter.schema_migration
    TO meter_reader;

-- Writes for all tenants. The policies serve where meter_writer could not
-- get BYPASSRLS; grants alone say which commands it has.

CREATE POLICY writer_any ON meter.event_registry
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.event
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.duplicate_audit
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.dead_letter
    TO meter_writer USING (true) WITH CHECK (true);
CREATE POLICY writer_any ON meter.counter
    TO meter_writer USING (true) WITH CHECK (true);

GRANT SELECT, INSERT ON meter.event_registry TO meter_writer;
GRANT INSERT
    ON meter.event, meter.duplicate_audit, meter.dead_letter
    TO meter_writer;
GRANT SELECT, INSERT ON meter.counter TO meter_writer;
GRANT UPDATE (value, updated_at, step_add, step_floor)
    ON meter.counter
    TO meter_writer;
GRANT SELECT, INSERT, UPDATE
    ON meter.writer, meter.writer_seq, meter.writer_flush,
       meter.edge_session
    TO meter_writer;
GRANT SELECT
    ON meter.secret, meter.partition_floor, meter.schema_migration
    TO meter_writer;

-- Tokens: seen by the owner alone. meter.token_find, which runs as the
-- owner, serves the look-up before any tenant is known.

CREATE POLICY owner_any ON meter.api_token
    TO meter_owner USING (true) WITH CHECK (true);
