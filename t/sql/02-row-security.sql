-- Row-level security: a reader sees the rows of one tenant, or none.

SELECT plan(35);

-- One row of each of two tenants everywhere; seen by whoever asks next.
CREATE FUNCTION pg_temp.fill() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM meter.partition_make('event', '2001-02-03');
    PERFORM meter.partition_make('duplicate_audit', '2001-02-03');
    INSERT INTO meter.event_registry
    SELECT t, gen_random_uuid(), t, 1, 2, now(), '2001-02-03', now()
    FROM unnest(ARRAY['acme', 'globex']) AS t;
    INSERT INTO meter.event
    SELECT t, 'id', 'type', now(), '2001-02-03', NULL, NULL, 1, 1, '{}',
        NULL, 0, NULL, NULL, gen_random_uuid(), 1, now(), 0, NULL
    FROM unnest(ARRAY['acme', 'globex']) AS t;
    INSERT INTO meter.duplicate_audit
    SELECT t, 'id', gen_random_uuid(), 1, now(), now(), '2001-02-03',
        0, 'type', now(), '{}'
    FROM unnest(ARRAY['acme', 'globex']) AS t;
    INSERT INTO meter.counter
    SELECT t, 'c', 'k', '{}', 1, now()
    FROM unnest(ARRAY['acme', 'globex']) AS t;
END
$$;

CREATE TEMP TABLE readable (name text);
GRANT SELECT ON readable TO PUBLIC;
INSERT INTO readable
VALUES ('event_registry'), ('event'), ('duplicate_audit'), ('counter');

-- The tenants that the current role sees in a table.
CREATE FUNCTION pg_temp.seen(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    tenants text;
BEGIN
    EXECUTE format(
        'SELECT string_agg(DISTINCT tenant, '' '' ORDER BY tenant)'
            ' FROM meter.%I',
        name
    ) INTO tenants;
    RETURN COALESCE(tenants, 'nothing');
END
$$;

BEGIN;
SELECT pg_temp.fill() \g /dev/null
SELECT is_empty(
    $$
    SELECT class.oid::regclass
    FROM pg_class AS class
    INNER JOIN pg_attribute AS attribute
        ON attribute.attrelid = class.oid
        AND attribute.attname = 'tenant'
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p')
        AND NOT (class.relrowsecurity AND class.relforcerowsecurity)
    $$,
    'every tenant table and partition has row-level security, forced'
);
SELECT cmp_ok(
    (
        SELECT count(*)::integer
        FROM pg_class
        WHERE relnamespace = 'meter'::regnamespace
            AND relispartition AND relkind = 'r' AND relforcerowsecurity
    ),
    '>=', 2, 'partitions are among them'
);
ROLLBACK;

-- A connection on which no tenant was ever set.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT is(
    current_setting('app.current_tenant', true), NULL,
    'fresh connection: the setting is NULL'
);
SELECT is(pg_temp.seen(name), 'nothing', 'fresh connection: ' || name)
FROM readable;

SELECT meter.set_tenant('acme') \g /dev/null
SELECT is(pg_temp.seen(name), 'acme', 'acme sees its own: ' || name)
FROM readable;
SELECT meter.set_tenant('globex') \g /dev/null
SELECT is(pg_temp.seen(name), 'globex', 'globex sees its own: ' || name)
FROM readable;
SELECT meter.set_tenant('nobody') \g /dev/null
SELECT is(pg_temp.seen(name), 'nothing', 'an unknown tenant: ' || name)
FROM readable;
SELECT is_empty(
    $$ SELECT FROM meter.counter WHERE tenant = 'acme' $$,
    'asking for another tenant by name gives nothing'
);
ROLLBACK;

-- A connection that served a tenant before.
BEGIN;
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
COMMIT;
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT is(
    current_setting('app.current_tenant', true), '',
    'used connection: the setting is empty, not NULL'
);
SELECT is(pg_temp.seen(name), 'nothing', 'used connection: ' || name)
FROM readable;
ROLLBACK;

-- The owner is subject to the policies too.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_owner;
SELECT is(pg_temp.seen('event'), 'nothing', 'the owner sees no events');
SELECT is(pg_temp.seen('counter'), 'nothing', 'nor counters');
ROLLBACK;

-- Partitions, tables without a grant, writes.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
SELECT throws_ok(
    'SELECT * FROM meter.event_20010203', '42501', NULL,
    'a ledger partition cannot be read directly'
);
SELECT throws_ok(
    'SELECT * FROM meter.duplicate_audit_20010203', '42501', NULL,
    'nor an audit partition'
);
SELECT throws_ok(
    'SELECT * FROM meter.secret', '42501', NULL,
    'the salt is not for readers'
);
SELECT throws_ok(
    $$ INSERT INTO meter.counter VALUES ('acme', 'x', 'x', '{}', 1, now()) $$,
    '42501', NULL, 'readers do not write'
);
SET LOCAL ROLE meter_writer;
SELECT throws_ok(
    'SELECT * FROM meter.event_20010203', '42501', NULL,
    'the writer has no right on partitions either'
);
SELECT throws_ok(
    'DELETE FROM meter.event_registry', '42501', NULL,
    'the writer cannot delete from the registry'
);
ROLLBACK;

-- No tenant is no tenant.
SELECT throws_ok(
    $$ SELECT meter.set_tenant('') $$, '22023', NULL, 'set_tenant: empty'
);
SELECT throws_ok(
    $$ SELECT meter.set_tenant(NULL) $$, '22023', NULL, 'set_tenant: NULL'
);
