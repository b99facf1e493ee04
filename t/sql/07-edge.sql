-- The tables of rings and their statements, as meterd runs them.

\set ensure `cat sql/statements/ingest/edge_session_ensure.sql`
\set lock `cat sql/statements/ingest/edge_session_lock.sql`
\set advance `cat sql/statements/ingest/edge_session_advance.sql`
\set loss `cat sql/statements/ingest/edge_loss_insert.sql`
\set settle `cat sql/statements/ingest/edge_session_settle.sql`
\set letter `cat sql/statements/ingest/dead_letter_insert.sql`
\set list `cat sql/statements/maintain/dead_letter_list.sql`
\set reasons `cat sql/statements/maintain/dead_letter_reasons.sql`
\set identities `cat sql/statements/maintain/dead_letter_identities.sql`
\set read `cat sql/statements/maintain/dead_letter_read.sql`
\set take `cat sql/statements/ingest/dead_letter_take.sql`
\set incarnation `cat sql/statements/store/lane_incarnation.sql`

\set one '''01010101-0101-0101-0101-010101010101'''
\set two '''02020202-0202-0202-0202-020202020202'''
\set writer '''00000000-0000-4000-8000-000000000001'''

SELECT plan(31);

SELECT columns_are(
    'meter', 'edge_session',
    ARRAY['session', 'node', 'writer', 'last_seq', 'created_at', 'updated_at',
        'accepted', 'duplicate', 'conflict', 'rejected', 'lost'],
    'columns of a session'
);
SELECT columns_are(
    'meter', 'edge_loss',
    ARRAY['session', 'seq', 'node', 'count', 'reasons', 'first_at', 'last_at',
        'recorded_at'],
    'columns of a loss'
);
SELECT col_is_pk('meter', 'edge_loss', ARRAY['session', 'seq'], 'its key');
SELECT is_empty(
    $$
    SELECT attname FROM pg_attribute
    WHERE attrelid = 'meter.edge_session'::regclass AND attnum > 0
        AND NOT attnotnull
    $$,
    'a session knows everything of itself'
);

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE ensure AS :ensure
PREPARE lock AS :lock
PREPARE advance AS :advance
PREPARE loss AS :loss
PREPARE settle AS :settle
PREPARE letter AS :letter
PREPARE list AS :list
PREPARE reasons AS :reasons
PREPARE identities AS :identities
PREPARE read AS :read
PREPARE take AS :take
PREPARE incarnation AS :incarnation

-- Sessions.
EXECUTE ensure(ARRAY[:two]::uuid[], ARRAY['gw-2'], :writer);
EXECUTE ensure(ARRAY[:one, :two]::uuid[], ARRAY['gw-1', 'other'], :writer);
SELECT results_eq(
    'SELECT session, node, last_seq FROM meter.edge_session ORDER BY 1',
    format(
        $$ VALUES (%L::uuid, 'gw-1', 0::bigint), (%L, 'gw-2', 0) $$,
        :one, :two
    ),
    'a session is made once, at 0'
);
SELECT results_eq(
    format('EXECUTE lock(ARRAY[%L, %L, %L]::uuid[])', :two, :writer, :one),
    format(
        $$ VALUES (%L::uuid, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
            0::bigint, 0::bigint), (%L, 0, 0, 0, 0, 0, 0) $$,
        :one, :two
    ),
    'locked in their order; none for a session without a row'
);
SELECT lives_ok(
    format(
        $$
        EXECUTE advance(ARRAY[%L, %L]::uuid[], ARRAY['gw-3', 'gw-4'],
            ARRAY[7, 9]::bigint[], ARRAY[1, 2]::bigint[],
            ARRAY[3, 4]::bigint[], ARRAY[5, 6]::bigint[],
            ARRAY[7, 8]::bigint[], ARRAY[9, 10]::bigint[], %L, '2026-01-01Z')
        $$,
        :one, :two, :one
    ),
    'they move'
);
SELECT results_eq(
    format('EXECUTE lock(ARRAY[%L]::uuid[])', :two),
    format(
        $$ VALUES (%L::uuid, 9::bigint, 2::bigint, 4::bigint, 6::bigint,
            8::bigint, 10::bigint) $$,
        :two
    ),
    'each to its own values'
);
SELECT results_eq(
    'SELECT node, writer, updated_at FROM meter.edge_session ORDER BY session',
    format(
        $$ VALUES ('gw-3', %L::uuid, '2026-01-01Z'::timestamptz),
            ('gw-4', %L, '2026-01-01Z') $$,
        :one, :one
    ),
    'with who moved them'
);
SELECT lives_ok(
    format(
        $$
        EXECUTE settle(ARRAY[%L]::uuid[], ARRAY[11]::bigint[],
            ARRAY[12]::bigint[], ARRAY[13]::bigint[], ARRAY[14]::bigint[],
            ARRAY[15]::bigint[])
        $$,
        :two
    ),
    'requests get another verdict'
);
SELECT results_eq(
    $$
    SELECT node, last_seq, accepted, duplicate, conflict, rejected, lost,
        updated_at
    FROM meter.edge_session
    ORDER BY session
    $$,
    $$
    VALUES ('gw-3', 7::bigint, 1::bigint, 3::bigint, 5::bigint, 7::bigint,
        9::bigint, '2026-01-01Z'::timestamptz),
        ('gw-4', 9, 11, 12, 13, 14, 15, '2026-01-01Z')
    $$,
    'and nothing else moves'
);

-- Losses.
SELECT lives_ok(
    format(
        $$
        EXECUTE loss(ARRAY[%L, %L]::uuid[], ARRAY[1, 2]::bigint[],
            ARRAY['gw', 'gw'], ARRAY[5, 6]::bigint[], ARRAY[1, 8],
            ARRAY['2026-01-01Z', NULL]::timestamptz[],
            ARRAY['2026-01-01Z', NULL]::timestamptz[], '2026-01-02Z')
        $$,
        :one, :one
    ),
    'losses, told and found'
);
SELECT lives_ok(
    format(
        $$
        EXECUTE loss(ARRAY[%L, %L]::uuid[], ARRAY[2, 3]::bigint[],
            ARRAY['gw', 'gw'], ARRAY[99, 7]::bigint[], ARRAY[1, 1],
            ARRAY['2026-01-01Z', '2026-01-01Z']::timestamptz[],
            ARRAY['2026-01-01Z', '2026-01-01Z']::timestamptz[], '2026-01-02Z')
        $$,
        :one, :one
    ),
    'one of them again'
);
RESET ROLE;
SELECT results_eq(
    'SELECT seq, count, reasons FROM meter.edge_loss ORDER BY seq',
    $$ VALUES (1::bigint, 5::bigint, 1), (2, 6, 8), (3, 7, 1) $$,
    'stays as it was told first'
);

-- Dead letters.
SET LOCAL ROLE meter_writer;
SELECT lives_ok(
    format(
        $$
        EXECUTE letter(ARRAY['acme', '-'], ARRAY[%L, %L]::uuid[],
            ARRAY[1, 2]::bigint[], ARRAY['why', 'not'],
            ARRAY['\x00ff', '\x01']::bytea[], '2026-01-02Z')
        $$,
        :one, :one
    ),
    'records that were rejected'
);
SELECT throws_ok(
    $$ UPDATE meter.dead_letter SET reason = '' $$, '42501', NULL,
    'meter_writer does not change them'
);
SELECT throws_ok(
    'SELECT * FROM meter.edge_loss', '42501', NULL,
    'nor does it read losses'
);
RESET ROLE;
SELECT results_eq(
    'SELECT tenant, seq, reason, record FROM meter.dead_letter'
        ' ORDER BY seq',
    $$
    VALUES ('acme' COLLATE "C", 1::bigint, 'why', '\x00ff'::bytea),
        ('-', 2, 'not', '\x01')
    $$,
    'whole'
);

-- Where meter_writer has no BYPASSRLS the policies serve.
ALTER ROLE meter_writer NOBYPASSRLS;
SET LOCAL ROLE meter_writer;
SELECT results_eq(
    $$ EXECUTE list(NULL, NULL, 10) $$,
    format(
        $$
        VALUES ('-' COLLATE "C", %L::uuid, 2::bigint, 'not', '\x01'::bytea,
            '2026-01-02Z'::timestamptz, NULL::text),
            ('acme', %L, 1, 'why', '\x00ff', '2026-01-02Z', NULL)
        $$,
        :one, :one
    ),
    'listed, newest first'
);
SELECT is_empty(
    $$ EXECUTE list('acme', '2026-01-02 00:00:00.000001Z', 10) $$,
    'or those since a time'
);
SELECT results_eq(
    $$ EXECUTE reasons(NULL, NULL, 1) $$,
    $$ VALUES ('not', 1::bigint, 2::bigint) $$,
    'counted by reason, with the number of all'
);
SELECT results_eq(
    $$ EXECUTE identities('acme', 10) $$,
    format($$ VALUES (%L::uuid, 1::bigint) $$, :one),
    'named'
);
SELECT results_eq(
    format(
        'EXECUTE read(ARRAY[%L, %L, %L]::uuid[], ARRAY[2, 9, 1]::bigint[])',
        :one, :one, :one
    ),
    format(
        $$
        VALUES ('-' COLLATE "C", %L::uuid, 2::bigint, 'not', '\x01'::bytea,
            '2026-01-02Z'::timestamptz, 'gw-3'),
            ('acme', %L, 1, 'why', '\x00ff', '2026-01-02Z', 'gw-3')
        $$,
        :one, :one
    ),
    'read in the order asked for, with their node'
);
EXECUTE take(
    ARRAY[:one, :one, :two]::uuid[], ARRAY[9, 2, 1]::bigint[]
) \gset taken_
SELECT is(
    :taken_place, 2,
    'taken: one is not there, one is, one would be of another session'
);
SELECT results_eq(
    $$ EXECUTE identities(NULL, 10) $$,
    format($$ VALUES (%L::uuid, 1::bigint) $$, :one),
    'and that one is gone'
);
SELECT index_is_type('meter', 'dead_letter', 'dead_letter_identity', 'btree');
SELECT lives_ok(
    format(
        $$
        EXECUTE letter(ARRAY['acme'], ARRAY[%L]::uuid[], ARRAY[3]::bigint[],
            ARRAY['why'], ARRAY['\x00ff']::bytea[], '2026-01-02Z')
        $$,
        :one
    ),
    'dead letters without BYPASSRLS'
);

-- The incarnation.
CREATE TEMP TABLE told AS EXECUTE incarnation;
SELECT results_eq(
    'SELECT system_identifier <> 0, timeline FROM told',
    $$ VALUES (true, '00000001') $$,
    'an ordinary role may ask for cluster and timeline'
);
SET LOCAL ROLE meter_reader;
SELECT throws_ok(
    'SELECT * FROM meter.edge_session', '42501', NULL,
    'no client reads sessions'
);
SELECT throws_ok(
    'SELECT * FROM meter.edge_loss', '42501', NULL, 'nor losses'
);
SELECT throws_ok(
    'SELECT * FROM meter.dead_letter', '42501', NULL, 'nor dead letters'
);
ROLLBACK;
