-- The statements of the ingest transaction, as meterd runs them.

\set ingest_known `cat sql/statements/ingest/ingest_known.sql`
\set ingest_register `cat sql/statements/ingest/ingest_register.sql`
\set ingest_event_insert `cat sql/statements/ingest/ingest_event_insert.sql`
\set ingest_audit_insert `cat sql/statements/ingest/ingest_audit_insert.sql`
\set ingest_lock_writer `cat sql/statements/ingest/ingest_lock_writer.sql`
\set ingest_lock_seq `cat sql/statements/ingest/ingest_lock_seq.sql`
\set ingest_seq_advance `cat sql/statements/ingest/ingest_seq_advance.sql`
\set writer_claim `cat sql/statements/store/writer_claim.sql`
\set writer_seq_ensure `cat sql/statements/store/writer_seq_ensure.sql`
\set lane_heartbeat_idle `cat sql/statements/store/lane_heartbeat_idle.sql`
\set event_find `cat sql/statements/api/event_find.sql`
\set event_read `cat sql/statements/api/event_read.sql`
\set event_read_minted `cat sql/statements/api/event_read_minted.sql`
\set audit_list `cat sql/statements/api/audit_list.sql`

\set key1 '''00000000-0000-4000-8000-000000000001'''

SELECT plan(32);

BEGIN;
SELECT meter.partition_make('event', '2001-02-03'),
    meter.partition_make('duplicate_audit', '2001-02-03') \g /dev/null
SET LOCAL ROLE meter_writer;
PREPARE known AS :ingest_known
PREPARE register AS :ingest_register
PREPARE event_insert AS :ingest_event_insert
PREPARE audit_insert AS :ingest_audit_insert
PREPARE lock_writer AS :ingest_lock_writer
PREPARE lock_seq AS :ingest_lock_seq
PREPARE seq_advance AS :ingest_seq_advance
PREPARE claim AS :writer_claim
PREPARE seq_ensure AS :writer_seq_ensure
PREPARE beat AS :lane_heartbeat_idle

-- Writer rows.
SELECT is_empty(
    format('EXECUTE lock_writer(%L)', :key1), 'no writer before the claim'
);
SELECT results_eq(
    format('EXECUTE claim(%L, %L)', :key1, 'gw-1'), ARRAY[1::bigint],
    'the first claim is epoch 1'
);
SELECT results_eq(
    format('EXECUTE claim(%L, %L)', :key1, 'gw-1'), ARRAY[2::bigint],
    'each later one is one more'
);
SELECT results_eq(
    format('EXECUTE lock_writer(%L)', :key1), ARRAY[2::bigint],
    'which the lock reads'
);
EXECUTE seq_ensure(:key1);
EXECUTE seq_advance(:key1, 10, 3, '2026-01-01Z', '2026-01-02Z');
EXECUTE seq_ensure(:key1);
CREATE TEMP TABLE seq AS EXECUTE lock_seq(:key1);
SELECT results_eq(
    'SELECT last, batch FROM seq', $$ VALUES (10::bigint, 3::bigint) $$,
    'numbers stay as they were advanced'
);
SELECT ok(
    (SELECT now > statement_timestamp() - interval '1 minute' FROM seq),
    'with the clock of the database'
);
SELECT ok((SELECT stamp = now FROM seq), 'which is the order, too');
SELECT is_empty(
    format('EXECUTE beat(%L, 1)', :key1), 'an old epoch has no heartbeat'
);
SELECT isnt_empty(
    format('EXECUTE beat(%L, 2)', :key1), 'the present one has'
);
SELECT ok(
    (
        SELECT heartbeat_at >= now() AND stamped_at >= now()
        FROM meter.writer_seq WHERE writer = :key1
    ),
    'which is the clock, for the order as well'
);

-- A writer that has seen a clock a year ahead.
EXECUTE seq_advance(
    :key1, 11, 4, clock_timestamp() + interval '1 year', '2300-01-01Z'
);
DROP TABLE seq;
CREATE TEMP TABLE seq AS EXECUTE lock_seq(:key1);
SELECT results_eq(
    'SELECT stamp FROM seq', ARRAY['2300-01-01 00:00:00.000001Z'::timestamptz],
    'the order goes on from there, by a microsecond'
);
SELECT ok(
    (SELECT now <= clock_timestamp() FROM seq), 'the clock is the clock'
);
SELECT isnt_empty(format('EXECUTE beat(%L, 2)', :key1), 'it lives');
SELECT results_eq(
    $$
    SELECT heartbeat_at <= clock_timestamp(), stamped_at
    FROM meter.writer_seq
    $$,
    $$ VALUES (true, '2300-01-01Z'::timestamptz) $$,
    'its heartbeat goes back with the clock, the order does not'
);

-- Registry.
SELECT results_eq(
    $$
    EXECUTE register(
        ARRAY['acme', 'acme'],
        ARRAY['00000000-0000-4000-8000-000000000001',
            '00000000-0000-4000-8000-000000000001']::uuid[],
        ARRAY['acme', 'acme'], ARRAY[1, 2]::bigint[], ARRAY[NULL, 5]::bigint[],
        ARRAY['2001-02-03Z', '2001-02-03Z']::timestamptz[],
        ARRAY['2001-02-03', '2001-02-03']::date[],
        ARRAY['2026-01-01Z', '2026-01-01Z']::timestamptz[]
    )
    $$,
    $$
    VALUES ('acme' COLLATE "C",
        '00000000-0000-4000-8000-000000000001'::uuid)
    $$,
    'one of two equal keys is registered'
);
SELECT results_eq(
    $$
    EXECUTE register(
        ARRAY['acme', 'globex'],
        ARRAY['00000000-0000-4000-8000-000000000001',
            '00000000-0000-4000-8000-000000000001']::uuid[],
        ARRAY['acme', 'globex'], ARRAY[3, 4]::bigint[],
        ARRAY[3, 4]::bigint[],
        ARRAY['2001-02-03Z', '2001-02-03Z']::timestamptz[],
        ARRAY['2001-02-03', '2001-02-03']::date[],
        ARRAY['2026-01-02Z', '2026-01-02Z']::timestamptz[]
    )
    $$,
    $$
    VALUES ('globex' COLLATE "C",
        '00000000-0000-4000-8000-000000000001'::uuid)
    $$,
    'a key known to one tenant is free for another'
);
SELECT set_eq(
    $$
    EXECUTE known(
        ARRAY['acme', 'acme', 'globex'],
        ARRAY['00000000-0000-4000-8000-000000000001',
            '00000000-0000-4000-8000-000000000002',
            '00000000-0000-4000-8000-000000000001']::uuid[],
        ARRAY[7, 8, 9]
    )
    $$,
    $$
    VALUES
        (7, NULL, 1::bigint, NULL::bigint, '2026-01-01Z'::timestamptz),
        (9, NULL, 4::bigint, 4::bigint, '2026-01-02Z'::timestamptz)
    $$,
    'known keys come back with their content, others do not'
);
SELECT throws_ok(
    $$
    EXECUTE register(ARRAY['x'],
        ARRAY['00000000-0000-4000-8000-000000000009']::uuid[], ARRAY[''],
        ARRAY[1]::bigint[], ARRAY[1]::bigint[],
        ARRAY['2001-02-03Z']::timestamptz[], ARRAY['2001-02-03']::date[],
        ARRAY['2026-01-01Z']::timestamptz[])
    $$,
    '23514', NULL, 'no row without a tenant'
);

-- The lane's settings leave only the way over the index, even while the
-- table is small.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_hashjoin = off;
SET LOCAL enable_mergejoin = off;
SET LOCAL enable_bitmapscan = off;
SET LOCAL plan_cache_mode = force_generic_plan;
CREATE FUNCTION pg_temp.plan_of(statement text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    line text;
    lines text := '';
BEGIN
    FOR line IN EXECUTE 'EXPLAIN (COSTS off) EXECUTE ' || statement LOOP
        lines := lines || line || E'\n';
    END LOOP;
    RETURN lines;
END
$$;
SELECT alike(
    pg_temp.plan_of(
        $$ known(ARRAY['acme'],
            ARRAY['00000000-0000-4000-8000-000000000001']::uuid[],
            ARRAY[0]) $$
    ),
    'Nested Loop%Function Scan%Index Scan using event_registry_pkey%',
    'keys are looked up one by one in the index'
);

-- Ledger and audit without COPY.
SELECT lives_ok(
    $$
    EXECUTE event_insert(
        ARRAY['acme', 'globex'], ARRAY['id1', 'edge-1'],
        ARRAY['api.request', 'api.request'],
        ARRAY['2001-02-03T01:00Z', '2001-02-03T02:00Z']::timestamptz[],
        ARRAY['2001-02-03', '2001-02-03']::date[],
        ARRAY['c', NULL], ARRAY[NULL, 'r'], ARRAY[1.50, 2]::numeric[],
        ARRAY[1, 1]::bigint[], ARRAY['{"a":1}', '{}'], ARRAY[NULL, NULL],
        ARRAY[0, 1], ARRAY[NULL, NULL]::uuid[], ARRAY[NULL, NULL]::bigint[],
        '00000000-0000-4000-8000-000000000001', ARRAY[11, 12]::bigint[],
        '2026-01-01Z', ARRAY[0, 0]::smallint[], ARRAY[NULL, NULL], NULL
    )
    $$,
    'rows go to the ledger by INSERT'
);
SELECT throws_ok(
    $$
    EXECUTE event_insert(
        ARRAY['acme'], ARRAY['id1'], ARRAY['t'],
        ARRAY['2001-02-04Z']::timestamptz[], ARRAY['2001-02-04']::date[],
        ARRAY['c'], ARRAY['r'], ARRAY[1]::numeric[], ARRAY[1]::bigint[],
        ARRAY['{}'], ARRAY['s'], ARRAY[0], ARRAY[NULL]::uuid[],
        ARRAY[NULL]::bigint[], '00000000-0000-4000-8000-000000000001',
        ARRAY[11]::bigint[], '2026-01-01Z', ARRAY[0]::smallint[],
        ARRAY[NULL], NULL
    )
    $$,
    '23514', NULL, 'a day without a partition is a check violation'
);
CREATE FUNCTION pg_temp.constraint_of(statement text)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    name text;
BEGIN
    EXECUTE statement;
    RETURN 'no error';
EXCEPTION WHEN check_violation THEN
    GET STACKED DIAGNOSTICS name = CONSTRAINT_NAME;
    RETURN name;
END
$$;
SELECT is(
    pg_temp.constraint_of($$
        INSERT INTO meter.event (part_day) VALUES ('2001-02-04')
    $$),
    '', 'without a constraint name'
);
SELECT isnt(
    pg_temp.constraint_of($$
        INSERT INTO meter.counter VALUES ('', 'c', 'k', '{}', 1, now())
    $$),
    '', 'which a CHECK always has'
);
SELECT lives_ok(
    $$
    EXECUTE audit_insert(
        ARRAY['acme', 'acme'], ARRAY['id1', 'id1'],
        ARRAY['00000000-0000-4000-8000-000000000001',
            '00000000-0000-4000-8000-000000000001']::uuid[],
        ARRAY[1, 2]::smallint[],
        ARRAY['2026-01-01Z', '2026-01-01Z']::timestamptz[],
        ARRAY['2026-01-02Z', '2026-01-02Z']::timestamptz[],
        ARRAY['2001-02-03', '2001-02-03']::date[],
        ARRAY['api.request', 'api.request'],
        ARRAY['2001-02-03T01:00Z', '2001-02-03T01:00Z']::timestamptz[],
        ARRAY['{}', '{"b":1}'], ARRAY[0, 1]
    )
    $$,
    'two observations of one id in one batch'
);

-- What the reader gets back.
SET LOCAL ROLE meter_reader;
SET LOCAL TimeZone = 'UTC';
PREPARE find AS :event_find
PREPARE read AS :event_read
PREPARE read_minted AS :event_read_minted
PREPARE audit AS :audit_list
SELECT meter.set_tenant('acme') \g /dev/null
SELECT results_eq(
    format('EXECUTE find(%L, %L)', 'acme', :key1),
    $$
    VALUES ('2001-02-03Z'::timestamptz, DATE '2001-02-03',
        '2026-01-01Z'::timestamptz, 'acme' COLLATE "C")
    $$,
    'event_find: where the ledger row is'
);
SELECT is_empty(
    format('EXECUTE find(%L, %L)', 'globex', :key1),
    'event_find: not for another tenant'
);
SELECT results_eq(
    $$ EXECUTE read('2001-02-03', 'acme', '2001-02-03T01:00Z', 'id1') $$,
    $$
    VALUES ('api.request', '2001-02-03T01:00Z'::timestamptz, 'c',
        NULL::text, '1.5', 1::bigint, '{"a":1}', NULL::text, 0,
        '2026-01-01Z'::timestamptz)
    $$,
    'event_read: the row, quantity without trailing zeros'
);
SELECT is_empty(
    $$ EXECUTE read_minted('globex', '2001-02-03T02:00Z', 'edge-1') $$,
    'event_read_minted: not for another tenant'
);
SELECT results_eq(
    $$
    SELECT verdict, payload
    FROM meter.duplicate_audit
    ORDER BY item DESC
    $$,
    $$ VALUES (2::smallint, '{"b":1}'), (1::smallint, '{}') $$,
    'acme reads its audit'
);
CREATE TEMP TABLE audited AS EXECUTE audit(
    'acme', :key1, 'id1', '2001-02-03', 1
);
SELECT results_eq(
    'SELECT verdict, payload FROM audited', $$ VALUES (2, '{"b":1}') $$,
    'audit_list: newest first, as many as asked for'
);
SELECT meter.set_tenant('globex') \g /dev/null
SELECT isnt_empty(
    $$ EXECUTE read_minted('globex', '2001-02-03T02:00Z', 'edge-1') $$,
    'event_read_minted: found by the time in its id'
);
SELECT is_empty(
    format('EXECUTE audit(%L, %L, %L, %L, 10)', 'acme', :key1, 'id1',
        '2001-02-03'),
    'audit_list: not for another tenant'
);
ROLLBACK;
