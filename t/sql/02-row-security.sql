-- Row-level security: a reader sees the rows of one tenant, or none. Tables
-- and partitions are taken from the catalog: one that nobody has thought of
-- here fails the test.

SELECT plan(33);

-- Every table of tenants, its column, and who may read it; the owner does so
-- through functions only.
CREATE TEMP TABLE guarded (
    name     name,
    tenant   name,
    reader   boolean,
    writer   boolean,
    owner    boolean
);
GRANT SELECT ON guarded TO PUBLIC;
INSERT INTO guarded
VALUES
    ('api_idempotency', 'tenant', false, true, false),
    ('api_token', 'tenant', false, false, true),
    ('bucket_counter', 'tenant', true, true, false),
    ('counter', 'tenant', true, true, false),
    ('counter_audit', 'tenant', true, true, false),
    ('counter_keys', 'tenant', false, true, false),
    ('dead_letter', 'tenant', false, true, false),
    ('duplicate_audit', 'tenant', true, false, false),
    ('entity_state', 'tenant', false, true, false),
    ('event', 'tenant', true, true, false),
    ('event_index', 'tenant', true, true, false),
    ('event_registry', 'tenant', true, true, false),
    ('meter_adjustment', 'tenant', true, true, false),
    ('meter_billed', 'tenant', true, true, false),
    ('meter_close', 'tenant', true, true, false),
    ('meter_counter', 'tenant', true, true, false),
    ('meter_reopen', 'tenant', true, true, false),
    ('meter_unique', 'tenant', true, true, false),
    ('series_1d', 'tenant', true, true, false),
    ('series_1h', 'tenant', true, true, false),
    ('series_1m', 'tenant', true, true, false),
    ('series_5s', 'tenant', true, true, false),
    ('series_7d', 'tenant', true, true, false),
    ('series_dirty', 'tenant', true, true, true),
    ('series_key', 'tenant', true, true, false),
    ('tenant_usage_metrics', 'tenant_id', true, true, true);

SELECT bag_eq(
    $$
    SELECT class.relname, attribute.attname
    FROM pg_class AS class
    INNER JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p')
        AND NOT class.relispartition
        AND NOT attribute.attisdropped
        AND attribute.attname ~ 'tenant'
    $$,
    $$ SELECT name, tenant FROM guarded $$,
    'the tables of tenants'
);
SELECT bag_eq(
    $$
    SELECT relname
    FROM pg_class
    WHERE relnamespace = 'meter'::regnamespace
        AND relkind IN ('r', 'p')
        AND NOT relispartition
        AND relname NOT IN (SELECT name FROM guarded)
    $$,
    $$
    VALUES
        ('bucket_lane'::name),
        ('edge_loss'),
        ('edge_session'),
        ('partition_floor'),
        ('reconcile_result'),
        ('retention_kept'),
        ('rule_rebuilt'),
        ('rule_use'),
        ('schema_migration'),
        ('secret'),
        ('writer'),
        ('writer_flush'),
        ('writer_seq')
    $$,
    'all others are of the installation'
);

-- A value that a column takes.
CREATE FUNCTION pg_temp.sample(name name, type text) RETURNS text
LANGUAGE sql AS $$
    SELECT CASE
        WHEN name = 'status' THEN quote_literal('active')
        WHEN name ~ 'tenant' THEN 't'
        WHEN type ~ '^(text|character varying)' AND type !~ '\[\]$'
            THEN quote_literal('of ') || ' || t'
        WHEN type = 'text[]' THEN 'ARRAY[''read'']'
        WHEN type = 'bigint[]' THEN 'ARRAY[1]'
        WHEN type = 'bytea' THEN 'sha256(t::bytea)'
        WHEN type = 'uuid' THEN 'gen_random_uuid()'
        WHEN type = 'boolean' THEN 'true'
        WHEN type = 'date' THEN quote_literal('2001-02-03') || '::date'
        WHEN name = 'bucket' THEN quote_literal('2001-02-03Z')
            || '::timestamptz'
        WHEN type ~ '^timestamp' THEN 'now()'
        WHEN type ~ '^(bigint|integer|smallint|numeric)' THEN '1'
    END
$$;

-- One row of each of two tenants everywhere; seen by whoever asks next.
CREATE FUNCTION pg_temp.fill() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    one      record;
    columns  text;
    samples  text;
BEGIN
    FOR one IN
        SELECT guarded.name, class.oid, table_of_days.partstrat
        FROM guarded
        INNER JOIN pg_class AS class
            ON class.relname = guarded.name
            AND class.relnamespace = 'meter'::regnamespace
        LEFT JOIN pg_partitioned_table AS table_of_days
            ON table_of_days.partrelid = class.oid
            AND table_of_days.partstrat = 'r'
    LOOP
        IF one.partstrat IS NOT NULL THEN
            SET LOCAL ROLE meter_owner;
            PERFORM meter.partition_make(one.name::text, '2001-02-03');
            RESET ROLE;
        END IF;
        SELECT
            string_agg(quote_ident(attname), ', '),
            string_agg(
                pg_temp.sample(attname, format_type(atttypid, atttypmod)),
                ', '
            )
        INTO columns, samples
        FROM pg_attribute
        WHERE attrelid = one.oid
            AND attnum > 0
            AND NOT attisdropped
            AND attidentity = ''
            AND attgenerated = '';
        EXECUTE format(
            'INSERT INTO meter.%I (%s) SELECT %s'
                ' FROM unnest(ARRAY[''acme'', ''globex'']) AS t',
            one.name, columns, samples
        );
    END LOOP;
END
$$;

-- The tenants that the current role sees in a relation; or that it may not.
CREATE FUNCTION pg_temp.seen(name name, tenant name) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    tenants text;
BEGIN
    EXECUTE format(
        'SELECT string_agg(DISTINCT %1$I, '' '' ORDER BY %1$I) FROM meter.%2$I',
        tenant, name
    ) INTO tenants;
    RETURN COALESCE(tenants, 'nothing');
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 'denied';
END
$$;

-- What becomes of a command on each table.
CREATE FUNCTION pg_temp.tried(command text, name name, tenant name)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(command, name, tenant);
    RETURN 'done';
EXCEPTION WHEN insufficient_privilege THEN
    RETURN 'denied';
END
$$;

-- `readers` (a column of guarded) see `tenants`, others are denied.
CREATE FUNCTION pg_temp.all_see(
    readers text, tenants text, others text, description text
)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN results_eq(
        'SELECT name, pg_temp.seen(name, tenant) COLLATE "C"'
            ' FROM guarded ORDER BY name',
        format(
            'SELECT name, (CASE WHEN %I THEN %L ELSE %L END) COLLATE "C"'
                ' FROM guarded ORDER BY name',
            readers, tenants, others
        ),
        description
    );
END
$$;

CREATE FUNCTION pg_temp.partitions_are(outcome text, description text)
RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN is_empty(
        format(
            'SELECT relname, pg_temp.seen(relname, ''tenant'') FROM pg_class'
                ' WHERE relnamespace = ''meter''::regnamespace'
                ' AND relkind IN (''r'', ''p'') AND relispartition'
                ' AND pg_temp.seen(relname, ''tenant'') <> %L',
            outcome
        ),
        description
    );
END
$$;

BEGIN;
SELECT pg_temp.fill() \g /dev/null
SELECT results_eq(
    'SELECT pg_temp.seen(name, tenant) FROM guarded',
    $$ SELECT 'acme globex' COLLATE "C" FROM guarded $$,
    'there are rows of two tenants in every table'
);
SELECT is_empty(
    $$
    SELECT class.oid::regclass
    FROM pg_class AS class
    INNER JOIN pg_attribute AS attribute
        ON attribute.attrelid = class.oid
        AND attribute.attname ~ 'tenant'
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p')
        AND NOT (class.relrowsecurity AND class.relforcerowsecurity)
    $$,
    'every table and partition has row-level security, enabled and forced'
);
SELECT is(
    (
        SELECT count(DISTINCT pg_inherits.inhparent)
        FROM pg_inherits
        INNER JOIN pg_class AS class ON class.oid = pg_inherits.inhrelid
        WHERE class.relkind = 'r' AND class.relforcerowsecurity
    ),
    (
        SELECT count(*)
        FROM pg_class
        WHERE relnamespace = 'meter'::regnamespace AND relkind = 'p'
    ),
    'with a partition of each partitioned one among them'
);
ROLLBACK;

-- The reader on a connection on which no tenant was ever set.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT is(
    current_setting('app.current_tenant', true), NULL,
    'fresh connection: the setting is NULL'
);
SELECT pg_temp.all_see('reader', 'nothing', 'denied', 'fresh: nothing');
SELECT meter.set_tenant('acme') \g /dev/null
SELECT pg_temp.all_see('reader', 'acme', 'denied', 'acme sees its own');
SELECT meter.set_tenant('globex') \g /dev/null
SELECT pg_temp.all_see('reader', 'globex', 'denied', 'globex sees its own');
SELECT meter.set_tenant('nobody') \g /dev/null
SELECT pg_temp.all_see('reader', 'nothing', 'denied', 'an unknown tenant');
SELECT meter.set_tenant('acme') \g /dev/null
SELECT is_empty(
    $$ SELECT FROM meter.counter WHERE tenant = 'globex' $$,
    'asking for another tenant by name gives nothing'
);
SELECT pg_temp.partitions_are('denied', 'partitions are not for readers');
ROLLBACK;

-- The reader on a connection that served tenants before, one transaction
-- each.
BEGIN;
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
COMMIT;
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('globex') \g /dev/null
SELECT pg_temp.all_see(
    'reader', 'globex', 'denied', 'used by acme: globex sees its own'
);
ROLLBACK;
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT is(
    current_setting('app.current_tenant', true), '',
    'used connection: the setting is empty, not NULL'
);
SELECT pg_temp.all_see('reader', 'nothing', 'denied', 'used: nothing');
ROLLBACK;

-- The writer serves all tenants, set or not; never through a partition.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_writer;
SELECT pg_temp.all_see('writer', 'acme globex', 'denied', 'writer: all');
SELECT set_config('app.current_tenant', 'acme', true) \g /dev/null
SELECT pg_temp.all_see(
    'writer', 'acme globex', 'denied', 'writer: all, whoever is set'
);
SELECT pg_temp.partitions_are('denied', 'partitions are not for the writer');
ROLLBACK;

-- The owner is subject to the policies too.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_owner;
SELECT pg_temp.all_see(
    'owner', 'acme globex', 'nothing',
    'owner: tokens, the list of tenants, what is to be rolled up'
);
SELECT set_config('app.current_tenant', 'acme', true) \g /dev/null
SELECT pg_temp.all_see(
    'owner', 'acme globex', 'nothing', 'owner: whoever is set'
);
SELECT pg_temp.partitions_are('nothing', 'the owner sees none in partitions');
ROLLBACK;

-- The login of the daemon has no rights before it takes a role.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meterd;
SELECT set_config('app.current_tenant', 'acme', true) \g /dev/null
SELECT results_eq(
    'SELECT pg_temp.seen(name, tenant) FROM guarded',
    $$ SELECT 'denied' COLLATE "C" FROM guarded $$,
    'meterd: nothing by itself'
);
SELECT pg_temp.partitions_are('denied', 'nor in partitions');
ROLLBACK;

-- Writes.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
SELECT is_empty(
    $$
    SELECT name, command
    FROM guarded
    CROSS JOIN (
        VALUES
            ('INSERT INTO meter.%I (%I) VALUES (''acme'')'),
            ('UPDATE meter.%1$I SET %2$I = %2$I'),
            ('DELETE FROM meter.%I'),
            ('TRUNCATE meter.%I')
    ) AS try (command)
    WHERE pg_temp.tried(command, name, tenant) <> 'denied'
    $$,
    'readers do not write'
);
SELECT throws_ok(
    'SELECT * FROM meter.secret', '42501', NULL,
    'the salt is not for readers'
);
SET LOCAL ROLE meter_writer;
SELECT results_eq(
    $$
    SELECT
        name,
        pg_temp.tried('UPDATE meter.%1$I SET %2$I = %2$I', name, tenant),
        pg_temp.tried('DELETE FROM meter.%I', name, tenant),
        pg_temp.tried('TRUNCATE meter.%I', name, tenant)
    FROM guarded
    ORDER BY name
    $$,
    $$
    VALUES
        (
            'api_idempotency'::name,
            'denied' COLLATE "C", 'denied' COLLATE "C", 'denied' COLLATE "C"
        ),
        ('api_token', 'denied', 'denied', 'denied'),
        ('bucket_counter', 'done', 'done', 'denied'),
        ('counter', 'denied', 'done', 'denied'),
        ('counter_audit', 'denied', 'denied', 'denied'),
        ('counter_keys', 'done', 'done', 'denied'),
        ('dead_letter', 'denied', 'done', 'denied'),
        ('duplicate_audit', 'denied', 'denied', 'denied'),
        ('entity_state', 'done', 'done', 'denied'),
        ('event', 'denied', 'denied', 'denied'),
        ('event_index', 'denied', 'done', 'denied'),
        ('event_registry', 'denied', 'denied', 'denied'),
        ('meter_adjustment', 'denied', 'denied', 'denied'),
        ('meter_billed', 'denied', 'denied', 'denied'),
        ('meter_close', 'denied', 'denied', 'denied'),
        ('meter_counter', 'done', 'done', 'denied'),
        ('meter_reopen', 'denied', 'denied', 'denied'),
        ('meter_unique', 'done', 'done', 'denied'),
        ('series_1d', 'done', 'done', 'denied'),
        ('series_1h', 'done', 'done', 'denied'),
        ('series_1m', 'done', 'done', 'denied'),
        ('series_5s', 'done', 'done', 'denied'),
        ('series_7d', 'done', 'done', 'denied'),
        ('series_dirty', 'denied', 'done', 'denied'),
        ('series_key', 'denied', 'done', 'denied'),
        ('tenant_usage_metrics', 'done', 'done', 'denied')
    $$,
    'the writer changes what can be made again from the ledger, and no more'
);
ROLLBACK;

-- No tenant is no tenant.
BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
SELECT meter.set_tenant('') \g /dev/null
SELECT is_empty('SELECT FROM meter.counter', 'set_tenant: empty');
SELECT meter.set_tenant('acme') \g /dev/null
SELECT meter.set_tenant(NULL) \g /dev/null
SELECT is_empty('SELECT FROM meter.counter', 'set_tenant: NULL');
ROLLBACK;

-- Ways around the policies, from the catalog. What runs as its owner, or is
-- readable without a policy, has to show here that it tells a reader nothing
-- of another tenant.
SELECT bag_eq(
    $$
    SELECT proc.oid::regprocedure::text, role.rolname::text
    FROM pg_proc AS proc
    CROSS JOIN LATERAL aclexplode(
        COALESCE(proc.proacl, acldefault('f', proc.proowner))
    ) AS acl
    LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
    WHERE proc.pronamespace = 'meter'::regnamespace
        AND proc.prosecdef
        AND acl.grantee <> proc.proowner
    $$,
    $$
    VALUES
        ('tenant_list(text,bytea,text,text,integer)', 'meter_reader'),
        ('token_find(text)', 'meter_reader')
    $$,
    'the functions that run as the owner, and who may call them'
);
SELECT bag_eq(
    $$
    SELECT class.relname
    FROM pg_class AS class
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND NOT class.relforcerowsecurity
        AND (
            has_table_privilege('meter_reader', class.oid, 'SELECT')
            OR has_any_column_privilege('meter_reader', class.oid, 'SELECT')
        )
    $$,
    $$
    VALUES
        ('partition_floor'::name),
        ('schema_migration'),
        ('writer'),
        ('writer_flush'),
        ('writer_seq')
    $$,
    'what the reader sees without a policy is of no tenant'
);
SELECT bag_eq(
    $$
    SELECT DISTINCT policies.qual
    FROM pg_policies AS policies
    WHERE policies.schemaname = 'meter'
        AND policies.roles && ARRAY['meter_reader', 'public']::name[]
    $$,
    $$
    SELECT format(
        '(%s = NULLIF(current_setting(%L::text, true), %L::text))',
        named, 'app.current_tenant', ''
    )
    FROM unnest(ARRAY['tenant', '(tenant_id)::text']) AS named
    $$,
    'every policy for the reader is that of the tenant that is set'
);

BEGIN;
SELECT pg_temp.fill() \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT throws_ok(
    $$ SELECT * FROM meter.tenant_list('of acme', NULL, NULL, '', 9) $$,
    'EM401', NULL, 'the list of tenants is not for a reader without a tenant'
);
SELECT meter.set_tenant('acme') \g /dev/null
SELECT throws_ok(
    $$
    SELECT *
    FROM meter.tenant_list('of acme', sha256('acme'), NULL, '', 9)
    $$,
    'EM401', NULL, 'nor for one with a tenant and its token'
);
ROLLBACK;
