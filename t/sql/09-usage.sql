-- The usage row of a tenant: its table, what meterd does to it, who may list
-- all of them. The statements are the ones that meterd runs.

\set ensure `cat sql/statements/project/usage_row_ensure.sql`
\set lock `cat sql/statements/project/usage_row_lock.sql`
\set apply `cat sql/statements/project/usage_row_apply.sql`
\set write `cat sql/statements/project/usage_row_write.sql`
\set read `cat sql/statements/api/tenant_read.sql`
\set list `cat sql/statements/api/tenant_list.sql`

SELECT plan(47);

SELECT columns_are(
    'meter', 'tenant_usage_metrics',
    ARRAY['tenant_id', 'entry_count', 'storage_bytes', 'api_call_count',
        'status', 'last_updated_at'],
    'columns of a usage row'
);
SELECT col_is_pk(
    'meter', 'tenant_usage_metrics', 'tenant_id', 'one row per tenant'
);
SELECT has_index(
    'meter', 'tenant_usage_metrics', 'idx_tenant_usage_metrics_status',
    ARRAY['status', 'tenant_id'], 'tenants by their status'
);

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE ensure AS :ensure
PREPARE lock AS :lock
PREPARE apply AS :apply
PREPARE write AS :write

-- One fold on the row of acme: of entries, of bytes, of calls.
CREATE FUNCTION pg_temp.fold(
    entry_add bigint, entry_floor bigint, storage_add bigint,
    storage_floor bigint, call_add bigint, call_floor bigint,
    status text, at timestamptz
)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'EXECUTE apply(ARRAY[''acme''], ARRAY[%L]::bigint[],'
            ' ARRAY[%L]::bigint[], ARRAY[%L]::bigint[], ARRAY[%L]::bigint[],'
            ' ARRAY[%L]::bigint[], ARRAY[%L]::bigint[], ARRAY[%L], %L)',
        entry_add, entry_floor, storage_add, storage_floor, call_add,
        call_floor, status, at
    );
END
$$;

CREATE FUNCTION pg_temp.row(tenant text) RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(
        ' ', entry_count, storage_bytes, api_call_count, status,
        to_char(last_updated_at AT TIME ZONE 'UTC', 'DD')
    )
    FROM meter.tenant_usage_metrics
    WHERE tenant_id = tenant
$$;

-- Made where missing, and said which.
SELECT results_eq(
    $$ EXECUTE ensure(ARRAY['acme'], '2026-01-05Z') $$,
    $$ VALUES ('acme'::varchar COLLATE "C") $$,
    'a row is made'
);
SELECT is(
    pg_temp.row('acme'), '0 0 0 active 05', 'of zeros, active, at that time'
);
SELECT results_eq(
    $$ EXECUTE ensure(ARRAY['acme', 'globex'], '2026-01-06Z') $$,
    $$ VALUES ('globex'::varchar COLLATE "C") $$,
    'only those that were not there are named'
);
SELECT is(pg_temp.row('acme'), '0 0 0 active 05', 'the old one is untouched');
SELECT results_eq(
    $$ EXECUTE lock(ARRAY['acme', 'globex', 'nobody']) $$,
    $$
    VALUES
        ('acme'::varchar COLLATE "C", 0::bigint, 0::bigint, 0::bigint,
            'active'::varchar, '2026-01-05Z'::timestamptz),
        ('globex', 0, 0, 0, 'active', '2026-01-06Z')
    $$,
    'locked in the order given; what is not there is left out'
);

-- Folds.
SELECT pg_temp.fold(3, 0, 50, 0, 0, NULL, NULL, '2026-01-07Z') \g /dev/null
SELECT is(
    pg_temp.row('acme'), '3 50 0 active 07', 'value + a; untouched ones stay'
);
SELECT pg_temp.fold(-5, 0, 0, NULL, 9, 0, NULL, '2026-01-06Z') \g /dev/null
SELECT is(
    pg_temp.row('acme'), '0 50 9 active 07',
    'clamped at zero; the time never goes back'
);

-- Delete, then create, on 0: a = 0, b = 1.
SELECT pg_temp.fold(0, 1, 0, NULL, 0, NULL, NULL, '2026-01-07Z') \g /dev/null
SELECT is(pg_temp.row('acme'), '1 50 9 active 07', 'the order is in b');
SELECT pg_temp.fold(
    0, NULL, 0, NULL, 0, NULL, 'decommissioned', '2026-01-08Z'
) \g /dev/null
SELECT is(pg_temp.row('acme'), '1 50 9 decommissioned 08', 'a status is set');
SELECT pg_temp.fold(1, 0, 0, NULL, 0, NULL, NULL, '2026-01-09Z') \g /dev/null
SELECT is(
    pg_temp.row('acme'), '2 50 9 decommissioned 09',
    'events count all the same, the status stays'
);
SELECT pg_temp.fold(
    0, NULL, 0, NULL, 0, NULL, 'active', '2026-01-09Z'
) \g /dev/null
SELECT is(pg_temp.row('acme'), '2 50 9 active 09', 'and active again');
SELECT is(
    pg_temp.row('globex'), '0 0 0 active 06', 'nobody else was touched'
);
SELECT results_eq(
    $$
    EXECUTE apply(
        ARRAY['acme'], ARRAY[1], ARRAY[0], ARRAY[0], ARRAY[NULL]::bigint[],
        ARRAY[0], ARRAY[NULL]::bigint[], ARRAY[NULL]::text[], '2026-01-10Z'
    )
    $$,
    $$ VALUES ('acme'::varchar COLLATE "C", 3::bigint, 50::bigint, 9::bigint) $$,
    'the values are given back'
);
EXECUTE apply(
    ARRAY['acme', 'globex'], ARRAY[1, 4], ARRAY[0, 0], ARRAY[0, 0],
    ARRAY[NULL, NULL]::bigint[], ARRAY[0, 0], ARRAY[NULL, NULL]::bigint[],
    ARRAY[NULL, 'decommissioned'], '2026-01-10Z'
) \g /dev/null
SELECT is(
    concat_ws(', ', pg_temp.row('acme'), pg_temp.row('globex')),
    '4 50 9 active 10, 4 0 0 decommissioned 10', 'of many, each its own'
);
SELECT throws_ok(
    $$
    SELECT pg_temp.fold(
        9223372036854775807, 0, 0, NULL, 0, NULL, NULL, '2026-01-10Z'
    )
    $$,
    '22003', NULL, 'overflow is an error, not a wrong number'
);
SELECT lives_ok(
    $$
    SELECT pg_temp.fold(
        -9223372036854775807, 0, 0, NULL, 0, NULL, NULL, '2026-01-10Z'
    )
    $$,
    'the deepest fall ends at zero'
);
SELECT is(pg_temp.row('acme'), '0 50 9 active 10', 'as any other');

-- Decided values.
EXECUTE write(
    ARRAY['acme', 'globex'], ARRAY[7, 8], ARRAY[1, 2], ARRAY[3, 4],
    ARRAY['decommissioned', 'active'], '2026-01-09Z'
);
SELECT is(:ROW_COUNT, 2, 'both are written');
SELECT is(
    pg_temp.row('acme'), '7 1 3 decommissioned 10', 'absolutely'
);
SELECT is(pg_temp.row('globex'), '8 2 4 active 10', 'each its own');
SELECT throws_ok(
    $$ UPDATE meter.tenant_usage_metrics SET entry_count = -1 $$,
    '23514', NULL, 'no total is below zero'
);
SELECT throws_ok(
    $$ UPDATE meter.tenant_usage_metrics SET status = 'gone' $$,
    '23514', NULL, 'no other status'
);

-- A client reads its own row.
SET LOCAL ROLE meter_reader;
PREPARE read AS :read
PREPARE list AS :list
SELECT meter.set_tenant('acme') \g /dev/null
SELECT results_eq(
    $$ EXECUTE read('acme') $$,
    $$
    VALUES
        ('acme'::varchar COLLATE "C", 7::bigint, 1::bigint, 3::bigint,
            'decommissioned'::varchar, '2026-01-10Z'::timestamptz)
    $$,
    'a tenant reads its row'
);
SELECT is_empty($$ EXECUTE read('globex') $$, 'and no other');

-- Administrators list all, page by page, whoever is set. The database looks
-- at the token itself.
RESET ROLE;
INSERT INTO meter.api_token (
    token_id, tenant, digest, scopes, label, created_at, revoked_at, expires_at
)
VALUES
    ('boss', 'ops', sha256('boss'), '{read,admin}', '', now(), NULL, NULL),
    ('gone', 'ops', sha256('gone'), '{admin}', '', now(), now(), NULL),
    ('late', 'ops', sha256('late'), '{admin}', '', now(), NULL, now()),
    ('user', 'acme', sha256('user'), '{ingest,read,write}', '', now(), NULL,
        NULL);
INSERT INTO meter.tenant_usage_metrics (tenant_id, status)
SELECT
    format('t%s', lpad(n::text, 3, '0')),
    CASE WHEN n % 2 = 0 THEN 'active' ELSE 'decommissioned' END
FROM generate_series(1, 20) AS n;
SET LOCAL ROLE meter_reader;

CREATE FUNCTION pg_temp.page(status text, after text, rows integer)
RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(tenant_id, ' ')
    FROM meter.tenant_list('boss', sha256('boss'), status, after, rows)
$$;
SELECT is(
    pg_temp.page(NULL, '', 4), 'acme globex t001 t002', 'the first page'
);
SELECT is(
    pg_temp.page(NULL, 't002', 3), 't003 t004 t005',
    'the next one begins behind its cursor'
);
SELECT is(
    pg_temp.page('decommissioned', '', 4), 'acme t001 t003 t005', 'by status'
);
SELECT is(
    pg_temp.page('decommissioned', 't015', 9), 't017 t019', 'to its end'
);
SELECT is(
    pg_temp.page('active', '', 3), 'globex t002 t004', 'the other status'
);
SELECT is(pg_temp.page(NULL, 't020', 5), NULL, 'behind the last: nothing');

-- A page is read from an index, wherever its rows lie: here all of one
-- status stand behind all of the other.
RESET ROLE;
INSERT INTO meter.tenant_usage_metrics (tenant_id, status)
SELECT
    format('u%s', lpad(n::text, 5, '0')),
    CASE WHEN n > 19000 THEN 'decommissioned' ELSE 'active' END
FROM generate_series(1, 20000) AS n;
ANALYZE meter.tenant_usage_metrics;
SET LOCAL ROLE meter_reader;
SET LOCAL enable_seqscan = off;

CREATE FUNCTION pg_temp.fetched() RETURNS bigint LANGUAGE sql AS $$
    SELECT seq_tup_read + idx_tup_fetch
    FROM pg_stat_xact_all_tables
    WHERE relid = 'meter.tenant_usage_metrics'::regclass
$$;

-- Rows that are read for a page of ten.
CREATE FUNCTION pg_temp.cost(status text, after text)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
BEGIN
    before := pg_temp.fetched();
    PERFORM
    FROM meter.tenant_list('boss', sha256('boss'), status, after, 10);
    RETURN pg_temp.fetched() - before;
END
$$;
SELECT is(pg_temp.cost(NULL, 'u10000'), 10::bigint, 'a page of all');
SELECT is(
    pg_temp.cost('decommissioned', 'u'), 10::bigint,
    'a page of a status that stands far behind'
);
SELECT is(
    pg_temp.cost('active', ''), 10::bigint, 'and of the one before it'
);

-- And nobody else may, whatever tenant is set.
SELECT results_eq(
    $$ EXECUTE list('boss', sha256('boss'), 'active', 't018', 1) $$,
    $$
    VALUES
        ('t020'::varchar, 0::bigint, 0::bigint, 0::bigint,
            'active'::varchar, now())
    $$,
    'a token with the scope admin lists'
);
SELECT throws_ok(
    format('EXECUTE list(%L, %L, NULL, %L, 1)', asker, proof, ''),
    'EM401', 'not the token of an administrator', why
)
FROM (
    VALUES
        ('user', sha256('user'), 'not one without the scope'),
        ('gone', sha256('gone'), 'nor one that is revoked'),
        ('late', sha256('late'), 'nor one that has expired'),
        ('boss', sha256('user'), 'nor another secret'),
        ('user', sha256('boss'), 'nor another id'),
        ('none', sha256('boss'), 'nor one that is not there'),
        (NULL, sha256('boss'), 'nor no id'),
        ('boss', NULL, 'nor no secret')
) AS bad (asker, proof, why);
SET LOCAL ROLE meter_writer;
SELECT throws_ok(
    $$ SELECT * FROM meter.tenant_list('boss', sha256('boss'), NULL, '', 1) $$,
    '42501', NULL,
    'the writer may not list'
);
SET LOCAL ROLE meterd;
SELECT throws_ok(
    $$ SELECT * FROM meter.tenant_list('boss', sha256('boss'), NULL, '', 1) $$,
    '42501', NULL,
    'nor may meterd by itself'
);
ROLLBACK;
