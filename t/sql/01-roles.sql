-- Roles and grants: who may do what, and nothing more. The lists are whole:
-- a new table or grant must be added here on purpose.

SELECT plan(20);

SELECT bag_eq(
    $$
    SELECT rolname::text, rolsuper, rolcanlogin, rolinherit, rolcreaterole,
        rolcreatedb, rolreplication, rolbypassrls
    FROM pg_roles
    WHERE rolname IN ('meter_owner', 'meter_writer', 'meter_reader', 'meterd')
    $$,
    $$
    VALUES
        ('meter_owner', false, true, true, false, false, false, false),
        ('meter_writer', false, false, true, false, false, false, true),
        ('meter_reader', false, false, true, false, false, false, false),
        ('meterd', false, true, false, false, false, false, false)
    $$,
    'attributes of the roles'
);

SELECT bag_eq(
    $$
    SELECT member.rolname::text AS member, role.rolname::text AS role
    FROM pg_auth_members AS link
    INNER JOIN pg_roles AS role ON role.oid = link.roleid
    INNER JOIN pg_roles AS member ON member.oid = link.member
    WHERE member.rolname LIKE 'meter%'
    $$,
    $$ VALUES ('meterd', 'meter_writer'), ('meterd', 'meter_reader') $$,
    'meterd may become writer or reader; nobody may become owner'
);

-- Every grant on every relation of the schema, but the owner's own.
CREATE TEMP VIEW granted AS
SELECT
    class.relname::text AS relation,
    COALESCE(role.rolname::text, 'PUBLIC') AS grantee,
    string_agg(acl.privilege_type, ' ' ORDER BY acl.privilege_type) AS rights,
    class.relispartition
FROM pg_class AS class
CROSS JOIN LATERAL aclexplode(class.relacl) AS acl
LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
WHERE class.relnamespace = 'meter'::regnamespace
    AND acl.grantee <> class.relowner
GROUP BY 1, 2, 4;

SELECT bag_eq(
    $$ SELECT relation, rights FROM granted WHERE grantee = 'meter_reader' $$,
    $$
    VALUES
        ('event_registry', 'SELECT'),
        ('event', 'SELECT'),
        ('duplicate_audit', 'SELECT'),
        ('counter', 'SELECT'),
        ('counter_audit', 'SELECT'),
        ('tenant_usage_metrics', 'SELECT'),
        ('meter_counter', 'SELECT'),
        ('meter_unique', 'SELECT'),
        ('meter_adjustment', 'SELECT'),
        ('meter_close', 'SELECT'),
        ('meter_billed', 'SELECT'),
        ('meter_reopen', 'SELECT'),
        ('series_key', 'SELECT'),
        ('series_5s', 'SELECT'),
        ('series_1m', 'SELECT'),
        ('series_1h', 'SELECT'),
        ('series_1d', 'SELECT'),
        ('series_7d', 'SELECT'),
        ('series_dirty', 'SELECT'),
        ('event_index', 'SELECT'),
        ('bucket_counter', 'SELECT'),
        ('partition_floor', 'SELECT'),
        ('writer', 'SELECT'),
        ('writer_seq', 'SELECT'),
        ('writer_flush', 'SELECT'),
        ('schema_migration', 'SELECT')
    $$,
    'grants of meter_reader'
);

SELECT bag_eq(
    $$ SELECT relation, rights FROM granted WHERE grantee = 'meter_writer' $$,
    $$
    VALUES
        ('event_registry', 'INSERT SELECT'),
        ('event', 'INSERT SELECT'),
        ('duplicate_audit', 'INSERT'),
        ('dead_letter', 'DELETE INSERT SELECT'),
        ('counter', 'DELETE INSERT SELECT'),
        ('counter_keys', 'DELETE INSERT SELECT UPDATE'),
        ('counter_audit', 'INSERT SELECT'),
        ('entity_state', 'DELETE INSERT SELECT UPDATE'),
        ('tenant_usage_metrics', 'DELETE INSERT SELECT UPDATE'),
        ('meter_counter', 'DELETE INSERT SELECT UPDATE'),
        ('meter_unique', 'DELETE INSERT SELECT UPDATE'),
        ('meter_adjustment', 'INSERT SELECT'),
        ('meter_close', 'INSERT SELECT'),
        ('meter_billed', 'INSERT SELECT'),
        ('meter_reopen', 'INSERT SELECT'),
        ('series_key', 'DELETE INSERT SELECT'),
        ('series_5s', 'DELETE INSERT SELECT UPDATE'),
        ('series_1m', 'DELETE INSERT SELECT UPDATE'),
        ('series_1h', 'DELETE INSERT SELECT UPDATE'),
        ('series_1d', 'DELETE INSERT SELECT UPDATE'),
        ('series_7d', 'DELETE INSERT SELECT UPDATE'),
        ('series_dirty', 'DELETE INSERT SELECT'),
        ('event_index', 'DELETE INSERT SELECT'),
        ('bucket_counter', 'DELETE INSERT SELECT UPDATE'),
        ('api_idempotency', 'INSERT SELECT'),
        ('bucket_lane', 'INSERT SELECT UPDATE'),
        ('writer', 'INSERT SELECT UPDATE'),
        ('writer_seq', 'INSERT SELECT UPDATE'),
        ('writer_flush', 'INSERT SELECT UPDATE'),
        ('edge_session', 'INSERT SELECT UPDATE'),
        ('edge_loss', 'INSERT'),
        ('secret', 'SELECT'),
        ('partition_floor', 'SELECT'),
        ('retention_kept', 'SELECT'),
        ('reconcile_result', 'INSERT SELECT UPDATE'),
        ('rule_use', 'INSERT SELECT UPDATE'),
        ('rule_rebuilt', 'INSERT SELECT UPDATE'),
        ('schema_migration', 'SELECT')
    $$,
    'grants of meter_writer'
);

SELECT bag_eq(
    $$
    SELECT class.relname::text, attribute.attname::text, role.rolname::text,
        acl.privilege_type
    FROM pg_attribute AS attribute
    INNER JOIN pg_class AS class ON class.oid = attribute.attrelid
    CROSS JOIN LATERAL aclexplode(attribute.attacl) AS acl
    INNER JOIN pg_roles AS role ON role.oid = acl.grantee
    WHERE class.relnamespace = 'meter'::regnamespace
    $$,
    $$
    VALUES
        ('counter', 'value', 'meter_writer', 'UPDATE'),
        ('counter', 'updated_at', 'meter_writer', 'UPDATE'),
        ('counter', 'step_add', 'meter_writer', 'UPDATE'),
        ('counter', 'step_floor', 'meter_writer', 'UPDATE'),
        ('meter_close', 'frozen_at', 'meter_writer', 'UPDATE'),
        ('meter_close', 'period', 'meter_writer', 'UPDATE'),
        ('meter_close', 'figures', 'meter_writer', 'UPDATE'),
        ('partition_floor', 'parent', 'meter_writer', 'UPDATE'),
        ('series_dirty', 'id', 'meter_writer', 'UPDATE')
    $$,
    'grants on columns'
);

SELECT is_empty(
    $$
    SELECT * FROM granted
    WHERE grantee NOT IN ('meter_reader', 'meter_writer') OR relispartition
    $$,
    'nobody else has a grant, and no partition has one'
);

-- Asked of the server, whatever way a right may have come.
SELECT is_empty(
    $$
    SELECT class.relname, role.rolname
    FROM pg_class AS class
    CROSS JOIN (VALUES ('meter_reader'), ('meterd')) AS role (rolname)
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relkind IN ('r', 'p', 'v', 'm', 'f')
        AND (
            has_table_privilege(
                rolname, class.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER'
            )
            OR has_any_column_privilege(rolname, class.oid, 'INSERT, UPDATE')
        )
    $$,
    'the reader and the login of the daemon cannot write anything'
);

SELECT is_empty(
    $$
    SELECT oid::regclass FROM pg_class
    WHERE relnamespace = 'meter'::regnamespace
        AND relkind NOT IN ('r', 'p', 'i', 'I', 'S', 't', 'c')
    $$,
    'no view shows what row-level security hides'
);

SELECT is_empty(
    $$
    SELECT class.relname, role.rolname
    FROM pg_class AS class
    CROSS JOIN (
        VALUES ('meter_writer'), ('meter_reader'), ('meterd')
    ) AS role (rolname)
    WHERE class.relnamespace = 'meter'::regnamespace
        AND class.relname ~ '^(event|duplicate_audit|edge_loss|counter_audit'
            '|meter_adjustment|meter_billed|meter_reopen|api_idempotency)'
        AND class.relname !~ '^event_index' -- made from the ledger
        AND class.relkind IN ('r', 'p')
        AND (
            has_table_privilege(rolname, class.oid, 'DELETE, TRUNCATE')
            OR has_any_column_privilege(rolname, class.oid, 'UPDATE')
        )
    $$,
    'registry, ledger, audits, losses, adjustments, bills: never changed'
);

SELECT is_empty(
    $$
    SELECT role.rolname
    FROM (
        VALUES ('meter_writer'), ('meter_reader'), ('meterd')
    ) AS role (rolname)
    WHERE has_table_privilege(rolname, 'meter.dead_letter', 'TRUNCATE')
        OR has_any_column_privilege(rolname, 'meter.dead_letter', 'UPDATE')
    $$,
    'a dead letter is deleted when it is booked, and never changed'
);

SELECT is_empty(
    $$
    SELECT oid::regclass FROM pg_class
    WHERE relnamespace = 'meter'::regnamespace
        AND relowner <> 'meter_owner'::regrole
    $$,
    'meter_owner owns every relation'
);

SELECT bag_eq(
    $$
    SELECT proc.proname::text, role.rolname::text
    FROM pg_proc AS proc
    CROSS JOIN LATERAL aclexplode(
        COALESCE(proc.proacl, acldefault('f', proc.proowner))
    ) AS acl
    LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
    WHERE proc.pronamespace = 'meter'::regnamespace
        AND acl.grantee <> proc.proowner
    $$,
    $$
    VALUES
        ('adjust', 'meter_writer'),
        ('mean', 'meter_writer'),
        ('partition_floor_now', 'meter_writer'),
        ('series_bucket', 'meter_reader'),
        ('series_bucket', 'meter_writer'),
        ('tally_counts', 'meter_writer'),
        ('tally_labels', 'meter_writer'),
        ('set_tenant', 'meter_reader'),
        ('tenant_list', 'meter_reader'),
        ('token_find', 'meter_reader'),
        ('zone_exists', 'meter_reader')
    $$,
    'grants on functions'
);

SELECT is_empty(
    $$
    SELECT oid::regprocedure FROM pg_proc
    WHERE pronamespace = 'meter'::regnamespace
        AND prosecdef
        AND NOT COALESCE(proconfig, '{}')
            && ARRAY['search_path=pg_catalog, pg_temp']
    $$,
    'functions that run as the owner have a pinned search_path'
);

SELECT bag_eq(
    $$
    SELECT role.rolname::text, acl.privilege_type
    FROM pg_namespace AS space
    CROSS JOIN LATERAL aclexplode(space.nspacl) AS acl
    LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
    WHERE space.nspname = 'meter' AND acl.grantee <> space.nspowner
    $$,
    $$ VALUES ('meter_writer', 'USAGE'), ('meter_reader', 'USAGE') $$,
    'grants on the schema'
);

-- PUBLIC, which is every role of the server. What PostgreSQL cannot do without
-- stays: the schemas of its catalog, and what extensions bring for themselves.

SELECT bag_eq(
    $$
    SELECT COALESCE(role.rolname::text, 'PUBLIC'), acl.privilege_type
    FROM pg_database AS database
    CROSS JOIN LATERAL aclexplode(
        COALESCE(database.datacl, acldefault('d', database.datdba))
    ) AS acl
    LEFT JOIN pg_roles AS role ON role.oid = acl.grantee
    WHERE database.datname = current_database()
    $$,
    $$
    VALUES
        ('meter_owner', 'CONNECT'),
        ('meter_owner', 'CREATE'),
        ('meter_owner', 'TEMPORARY'),
        ('meterd', 'CONNECT'),
        ('meter_writer', 'TEMPORARY'), -- by tools/test: pgTAP needs it
        ('meter_reader', 'TEMPORARY')
    $$,
    'grants on the database: PUBLIC cannot connect, nor make temporary tables'
);

CREATE TEMP VIEW own_schema AS
SELECT oid, nspname, nspowner, nspacl
FROM pg_namespace
WHERE nspname NOT IN ('pg_catalog', 'information_schema', 'tap') -- pgTAP's
    AND nspname !~ '^pg_(toast|temp)';

SELECT is_empty(
    $$
    SELECT space.nspname, acl.privilege_type
    FROM own_schema AS space
    CROSS JOIN LATERAL aclexplode(
        COALESCE(space.nspacl, acldefault('n', space.nspowner))
    ) AS acl
    WHERE acl.grantee = 0
    $$,
    'PUBLIC has nothing in any schema'
);

SELECT is_empty(
    $$
    SELECT class.oid::regclass, acl.privilege_type
    FROM pg_class AS class
    CROSS JOIN LATERAL aclexplode(class.relacl) AS acl
    WHERE acl.grantee = 0
        AND class.relnamespace IN (SELECT oid FROM own_schema)
        AND NOT EXISTS (
            SELECT FROM pg_depend
            WHERE objid = class.oid AND deptype = 'e'
        )
    $$,
    'nothing on any relation'
);

SELECT is_empty(
    $$
    SELECT proc.oid::regprocedure
    FROM pg_proc AS proc
    CROSS JOIN LATERAL aclexplode(
        COALESCE(proc.proacl, acldefault('f', proc.proowner))
    ) AS acl
    WHERE acl.grantee = 0
        AND proc.pronamespace IN (SELECT oid FROM own_schema)
        AND NOT EXISTS (
            SELECT FROM pg_depend
            WHERE objid = proc.oid AND deptype = 'e'
        )
    $$,
    'nothing on any function'
);

-- Asked of the server, for a role that is nobody.
BEGIN;
CREATE ROLE nobody_in_particular;
SELECT is_empty(
    $$
    SELECT privilege
    FROM unnest(ARRAY['CONNECT', 'CREATE', 'TEMPORARY']) AS privilege
    WHERE has_database_privilege(
        'nobody_in_particular', current_database(), privilege
    )
    UNION ALL
    SELECT nspname
    FROM own_schema
    WHERE has_schema_privilege('nobody_in_particular', oid, 'USAGE, CREATE')
    $$,
    'a role without grants can do nothing here'
);
SET LOCAL ROLE meter_owner;
CREATE FUNCTION meter.made_later() RETURNS integer LANGUAGE sql AS 'SELECT 1';
SELECT is(
    has_function_privilege(
        'nobody_in_particular', 'meter.made_later()', 'EXECUTE'
    ),
    false, 'nor will it get what meter_owner makes later'
);
ROLLBACK;
