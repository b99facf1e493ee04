-- Billing meters: folds, watermarks, unique values, adjustments, closes. The
-- statements are the ones that meterd runs.

\set meter_closed `cat sql/statements/project/meter_closed.sql`
\set meter_upsert `cat sql/statements/project/meter_upsert.sql`
\set meter_ensure `cat sql/statements/project/meter_ensure.sql`
\set meter_lock `cat sql/statements/project/meter_lock.sql`
\set meter_write `cat sql/statements/project/meter_write.sql`
\set meter_unique_fold `cat sql/statements/project/meter_unique_fold.sql`
\set meter_unique_read `cat sql/statements/project/meter_unique_read.sql`
\set meter_unique_write `cat sql/statements/project/meter_unique_write.sql`
\set meter_adjustment_insert `cat sql/statements/project/meter_adjustment_insert.sql`

SELECT plan(42);

BEGIN;
SET LOCAL ROLE meter_writer;
SET LOCAL timezone = 'UTC';
PREPARE closed AS :meter_closed
PREPARE upsert AS :meter_upsert
PREPARE ensure AS :meter_ensure
PREPARE lock AS :meter_lock
PREPARE write AS :meter_write
PREPARE unique_fold AS :meter_unique_fold
PREPARE unique_read AS :meter_unique_read
PREPARE unique_write AS :meter_unique_write
PREPARE adjust AS :meter_adjustment_insert

CREATE FUNCTION pg_temp.row(name text)
RETURNS meter.meter_counter LANGUAGE sql AS $$
    SELECT * FROM meter.meter_counter
    WHERE tenant = 'acme' AND metric = name AND customer = ''
$$;

-- One event of acme on one row: value, ts, recorded_at, writer, number. The
-- lateness is an hour. False: the row was passed over.
CREATE FUNCTION pg_temp.fold(
    name text, value numeric, ts timestamptz, recorded timestamptz,
    writer uuid DEFAULT '00000000-0000-4000-8000-000000000001',
    seq bigint DEFAULT 1, groups text DEFAULT '{}', amount bigint DEFAULT 1
)
RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    before bigint := (SELECT count FROM pg_temp.row(name));
BEGIN
    EXECUTE format(
        'EXECUTE upsert(ARRAY[''acme''], ARRAY[%1$L],'
            ' ARRAY[''2026-09-01Z'']::timestamptz[], ARRAY[''''],'
            ' ARRAY[''k'']::bytea[], ARRAY[%7$L], ARRAY[%2$L]::numeric[],'
            ' ARRAY[%8$L]::bigint[], ARRAY[%2$L]::numeric[],'
            ' ARRAY[%2$L]::numeric[], ARRAY[%2$L]::numeric[],'
            ' ARRAY[%3$L]::timestamptz[], ARRAY[%6$L]::bigint[],'
            ' ARRAY[LEAST(%3$L::timestamptz, %4$L::timestamptz)],'
            ' ARRAY[%3$L::timestamptz + interval ''1h''], %5$L, %4$L, %4$L)',
        name, value, ts, recorded, writer, seq, groups, amount
    );
    RETURN (SELECT count FROM pg_temp.row(name)) IS DISTINCT FROM before;
END
$$;

-- Values of folded events, on the row of a metric.
CREATE FUNCTION pg_temp.values_fold(name text, VARIADIC given text[])
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    n int := cardinality(given);
BEGIN
    EXECUTE format(
        'EXECUTE unique_fold(array_fill(''acme''::text, ARRAY[%1$s]),'
            ' array_fill(%2$L::text, ARRAY[%1$s]),'
            ' array_fill(''2026-09-01Z''::timestamptz, ARRAY[%1$s]),'
            ' array_fill(''''::text, ARRAY[%1$s]),'
            ' array_fill(''k''::bytea, ARRAY[%1$s]), %3$L)',
        n, name, given
    );
END
$$;

-- A row that does not exist is made by its first fold.
SELECT ok(
    pg_temp.fold('m', 10.5, '2026-09-01 12:00Z', '2026-09-01 12:30Z'),
    'a new row is touched'
);
SELECT results_eq(
    $$
    SELECT sum, count, min, max, last, last_ts, last_seq, uniques,
        watermark_ts, late_sum, manual_sum, updated_at
    FROM pg_temp.row('m')
    $$,
    $$
    VALUES (
        10.5::numeric, 1::bigint, 10.5::numeric, 10.5::numeric, 10.5::numeric,
        '2026-09-01 12:00Z'::timestamptz, 1::bigint, 0::bigint,
        '2026-09-01 12:00Z'::timestamptz, NULL::numeric, NULL::numeric,
        '2026-09-01 12:30Z'::timestamptz
    )
    $$,
    'and holds the fold'
);
SELECT ok(
    pg_temp.fold('m', -3, '2026-09-01 11:00Z', '2026-09-01 12:31Z'),
    'an event at the edge of the window is on time'
);
SELECT results_eq(
    $$
    SELECT sum, count, min, max, last, last_recorded_at, watermark_ts,
        updated_at, step_limit
    FROM pg_temp.row('m')
    $$,
    $$
    VALUES (
        7.5::numeric, 2::bigint, -3::numeric, 10.5::numeric, 10.5::numeric,
        '2026-09-01 12:30Z'::timestamptz, '2026-09-01 12:00Z'::timestamptz,
        '2026-09-01 12:31Z'::timestamptz, NULL::timestamptz
    )
    $$,
    'sums move, last and the watermark stay where they were'
);
SELECT ok(
    NOT pg_temp.fold(
        'm', 100, '2026-09-01 10:59:59.999999Z', '2026-09-01 12:32Z'
    ),
    'a microsecond older: the row is passed over'
);
SELECT is(
    (SELECT sum FROM pg_temp.row('m')), 7.5::numeric, 'and has not changed'
);
SELECT ok(
    NOT pg_temp.fold(
        'm', 100, '2026-09-01 12:00Z', '2026-09-01 12:32Z', groups => '{"a":1}'
    ),
    'so it is for other groups under the same key'
);
SELECT ok(
    pg_temp.fold('m', 1, '2026-09-01 13:00Z', '2026-09-01 12:45Z'),
    'an event of the future is taken'
);
SELECT is(
    (SELECT watermark_ts FROM pg_temp.row('m')), '2026-09-01 12:45Z',
    'and moves the watermark to the clock only'
);

-- Folded while the clock was ahead; it is 12:45 again.
SELECT pg_temp.fold('ahead', 1, '2026-09-01 23:00Z', '2027-09-01Z') \g /dev/null
SELECT ok(
    pg_temp.fold('ahead', 1, '2026-09-01 11:45Z', '2026-09-01 12:45Z'),
    'a watermark ahead of the clock counts as now'
);
SELECT ok(
    NOT pg_temp.fold('ahead', 1, '2026-09-01 11:44Z', '2026-09-01 12:45Z'),
    'an event can be late for it'
);
SELECT is(
    (SELECT watermark_ts FROM pg_temp.row('ahead')), '2026-09-01 23:00Z',
    'and stays what the ledger says'
);

-- last: ts, then recorded_at, then writer, then number.
SELECT pg_temp.fold('last', 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z',
    '00000000-0000-4000-8000-000000000005', 5) \g /dev/null
SELECT pg_temp.fold('last', 2, '2026-09-01 11:59Z', '2026-09-01 12:59Z',
    'ffffffff-0000-4000-8000-000000000005', 9) \g /dev/null
SELECT results_eq(
    $$ SELECT last, last_seq FROM pg_temp.row('last') $$,
    $$ VALUES (1::numeric, 5::bigint) $$,
    'older ts is not last'
);
SELECT pg_temp.fold('last', 3, '2026-09-01 12:00Z', '2026-09-01 12:29Z',
    'ffffffff-0000-4000-8000-000000000005', 9) \g /dev/null
SELECT is(
    (SELECT last FROM pg_temp.row('last')), 1::numeric,
    'nor is an earlier commit of the same ts'
);
SELECT pg_temp.fold('last', 4, '2026-09-01 12:00Z', '2026-09-01 12:30Z',
    '00000000-0000-4000-8000-000000000004', 9) \g /dev/null
SELECT is(
    (SELECT last FROM pg_temp.row('last')), 1::numeric,
    'nor a smaller writer of the same commit time'
);
SELECT pg_temp.fold('last', 5, '2026-09-01 12:00Z', '2026-09-01 12:30Z',
    '00000000-0000-4000-8000-000000000005', 4) \g /dev/null
SELECT is(
    (SELECT last FROM pg_temp.row('last')), 1::numeric,
    'nor a smaller number of the same writer'
);
SELECT pg_temp.fold('last', 6, '2026-09-01 12:00Z', '2026-09-01 12:30Z',
    '00000000-0000-4000-8000-000000000005', 6) \g /dev/null
SELECT results_eq(
    $$ SELECT last, last_seq FROM pg_temp.row('last') $$,
    $$ VALUES (6::numeric, 6::bigint) $$,
    'a greater number is'
);
SELECT pg_temp.fold('last', 7, '2026-09-01 12:00Z', '2026-09-01 12:31Z',
    '00000000-0000-4000-8000-000000000001', 1) \g /dev/null
SELECT results_eq(
    $$
    SELECT last, last_recorded_at, last_writer, last_seq
    FROM pg_temp.row('last')
    $$,
    $$
    VALUES (
        7::numeric, '2026-09-01 12:31Z'::timestamptz,
        '00000000-0000-4000-8000-000000000001'::uuid, 1::bigint
    )
    $$,
    'a later commit brings all that belongs to it'
);

-- What is so large that a figure might leave its type is for the other path.
SELECT ok(
    pg_temp.fold('big', 1e28, '2026-09-01 12:00Z', '2026-09-01 12:30Z')
    AND pg_temp.fold('big', 1e28, '2026-09-01 12:00Z', '2026-09-01 12:30Z'),
    'a row of 10^28 takes a fold of 10^28'
);
SELECT ok(
    NOT pg_temp.fold('big', 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z'),
    'one of 2 * 10^28 is passed over'
);
SELECT pg_temp.fold('many', 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z',
    amount => 2305843009213693952) \g /dev/null
SELECT ok(
    pg_temp.fold('many', 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z')
    AND NOT pg_temp.fold('many', 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z'),
    'so is one of more than 2^61 events'
);
SELECT pg_temp.fold(name, 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z')
FROM unnest(ARRAY['l1', 'l2', 'l3', 'l4', 'l5', 'l6']) AS name \g /dev/null
UPDATE meter.meter_counter
SET late_sum = 0, late_count = 1, late_uniques = 0, late_min = 0, late_max = 0
WHERE metric LIKE 'l_';
UPDATE meter.meter_counter SET late_sum = -1.1e28 WHERE metric = 'l1';
UPDATE meter.meter_counter SET late_count = 2305843009213693953
WHERE metric = 'l2';
UPDATE meter.meter_counter SET late_max = 1.1e28 WHERE metric = 'l3';
UPDATE meter.meter_counter SET manual_sum = 1.1e28 WHERE metric = 'l4';
UPDATE meter.meter_counter SET min = -1.1e28 WHERE metric = 'l5';
SELECT results_eq(
    $$
    SELECT name, pg_temp.fold(name, 1, '2026-09-01 12:00Z', '2026-09-01 12:30Z')
    FROM unnest(ARRAY['l1', 'l2', 'l3', 'l4', 'l5', 'l6']) AS name
    $$,
    $$
    VALUES ('l1', false), ('l2', false), ('l3', false), ('l4', false),
        ('l5', false), ('l6', true)
    $$,
    'late events, manual amounts and single values count in that'
);

-- unique: no value is kept, values are counted once.
EXECUTE upsert(
    ARRAY['acme'], ARRAY['u'], ARRAY['2026-09-01Z']::timestamptz[], ARRAY[''],
    ARRAY['k']::bytea[], ARRAY['{}'], ARRAY[0]::numeric[], ARRAY[3]::bigint[],
    ARRAY[NULL]::numeric[], ARRAY[NULL]::numeric[], ARRAY[NULL]::numeric[],
    ARRAY[NULL]::timestamptz[], ARRAY[NULL]::bigint[],
    ARRAY['2026-09-01 12:00Z']::timestamptz[],
    ARRAY['2026-09-01 13:00Z']::timestamptz[],
    '00000000-0000-4000-8000-000000000001', '2026-09-01 12:30Z',
    '2026-09-01 12:30Z'
);
SELECT results_eq(
    $$
    SELECT count, min, max, last, last_ts, last_recorded_at, last_writer,
        last_seq
    FROM pg_temp.row('u')
    $$,
    $$
    VALUES (
        3::bigint, NULL::numeric, NULL::numeric, NULL::numeric,
        NULL::timestamptz, NULL::timestamptz, NULL::uuid, NULL::bigint
    )
    $$,
    'a fold without values leaves none'
);
SELECT pg_temp.values_fold('u', '"a"', '"b"') \g /dev/null
SELECT results_eq(
    $$ SELECT uniques, late_uniques FROM pg_temp.row('u') $$,
    $$ VALUES (2::bigint, NULL::bigint) $$,
    'new values are counted'
);
SELECT pg_temp.values_fold('u', '"a"', '"b"', '1') \g /dev/null
SELECT is(
    (SELECT uniques FROM pg_temp.row('u')), 3::bigint,
    'values that are there are not'
);
UPDATE meter.meter_counter
SET late_sum = 0, late_count = 2, late_uniques = 2 WHERE metric = 'u';
EXECUTE unique_write(
    ARRAY['acme', 'acme'], ARRAY['u', 'u'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[], ARRAY['"x"', '"y"'], ARRAY[false, false]
);
SELECT is(:ROW_COUNT, 2, 'late values are kept');
SELECT pg_temp.values_fold('u', '"a"', '"x"', '"z"') \g /dev/null
SELECT results_eq(
    $$ SELECT uniques, late_uniques FROM pg_temp.row('u') $$,
    $$ VALUES (5::bigint, 1::bigint) $$,
    'one that was late only moves over to the folded ones'
);
SELECT pg_temp.values_fold('u', '"a"', '"x"', '"z"') \g /dev/null
SELECT results_eq(
    $$ SELECT uniques, late_uniques FROM pg_temp.row('u') $$,
    $$ VALUES (5::bigint, 1::bigint) $$,
    'once'
);
SELECT results_eq(
    $$
    EXECUTE unique_read(
        ARRAY['acme', 'acme', 'acme', 'globex'], ARRAY['u', 'u', 'u', 'u'],
        array_fill('2026-09-01Z'::timestamptz, ARRAY[4]),
        ARRAY['', '', '', ''], ARRAY['k', 'k', 'k', 'k']::bytea[],
        ARRAY['"x"', '"y"', '"none"', '"x"'], ARRAY[7, 8, 9, 10]
    )
    $$,
    $$ VALUES (7, true), (8, false) $$,
    'values are read by the number of whoever asks'
);
EXECUTE unique_write(
    ARRAY['acme'], ARRAY['u'], ARRAY['2026-09-01Z']::timestamptz[],
    ARRAY[''], ARRAY['k']::bytea[], ARRAY['"y"'], ARRAY[true]
);
SELECT ok(
    (
        SELECT is_folded FROM meter.meter_unique
        WHERE metric = 'u' AND value = '"y"'
    ),
    'a late value becomes a folded one'
);

-- The careful path: made, locked, written.
EXECUTE ensure(
    ARRAY['acme', 'acme'], ARRAY['m', 'n'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[], ARRAY['other', '{}'], '2026-09-02Z'
);
SELECT is(:ROW_COUNT, 1, 'only rows that are not there are made');
CREATE TEMP TABLE locked AS EXECUTE lock(
    'acme', ARRAY['m', 'n'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[], ARRAY[4, 5]
);
SELECT results_eq(
    $$
    SELECT number, groups, sum, count, uniques, watermark_ts, late_sum,
        manual_sum
    FROM locked ORDER BY number
    $$,
    $$
    VALUES
        (
            4, '{}', 8.5::numeric, 3::bigint, 0::bigint,
            '2026-09-01 12:45Z'::timestamptz, NULL::numeric, NULL::numeric
        ),
        (
            5, '{}', 0::numeric, 0::bigint, 0::bigint, NULL::timestamptz,
            NULL::numeric, NULL::numeric
        )
    $$,
    'rows are locked as they are, new ones empty'
);
EXECUTE write(
    ARRAY['acme', 'acme'], ARRAY['m', 'n'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[],
    ARRAY[99999999999999999999999999999.999999999, 0]::numeric[],
    ARRAY[4, 0]::bigint[], ARRAY[-4, NULL]::numeric[],
    ARRAY[11, NULL]::numeric[], ARRAY[12, NULL]::numeric[],
    ARRAY['2026-09-01 14:00Z', NULL]::timestamptz[],
    ARRAY['2026-09-01 14:01Z', NULL]::timestamptz[],
    ARRAY['00000000-0000-4000-8000-000000000009', NULL]::uuid[],
    ARRAY[13, NULL]::bigint[], ARRAY[14, 0]::bigint[],
    ARRAY['2026-09-01 14:02Z', NULL]::timestamptz[],
    ARRAY[-0.000000001, NULL]::numeric[], ARRAY[15, NULL]::bigint[],
    ARRAY[16, NULL]::numeric[], ARRAY[17, NULL]::numeric[],
    ARRAY[18, NULL]::numeric[],
    ARRAY['2026-09-01 15:00Z', NULL]::timestamptz[],
    ARRAY['2026-09-01 15:01Z', NULL]::timestamptz[],
    ARRAY['00000000-0000-4000-8000-000000000008', NULL]::uuid[],
    ARRAY[19, NULL]::bigint[], ARRAY[20, NULL]::bigint[],
    '2026-09-01 16:00Z'
);
SELECT is(:ROW_COUNT, 2, 'as many rows are written as given');
UPDATE meter.meter_counter SET made_at = NULL;
SELECT is(
    pg_temp.row('m')::text,
    '(acme,m,"2026-09-01 00:00:00+00","","\\x6b",{},'
        '99999999999999999999999999999.999999999,4,-4.000000000,11.000000000,'
        '12.000000000,"2026-09-01 14:00:00+00","2026-09-01 14:01:00+00",'
        '00000000-0000-4000-8000-000000000009,13,14,"2026-09-01 14:02:00+00",'
        '-0.000000001,15,16.000000000,17.000000000,18.000000000,'
        '"2026-09-01 15:00:00+00","2026-09-01 15:01:00+00",'
        '00000000-0000-4000-8000-000000000008,19,20,,'
        '"2026-09-01 16:00:00+00",,)',
    'each figure in its column'
);
SELECT is(
    pg_temp.row('n')::text,
    '(acme,n,"2026-09-01 00:00:00+00","","\\x6b",{},0.000000000,0,,,,,,,,0,,'
        ',,,,,,,,,,,"2026-09-02 00:00:00+00",,)',
    'NULL where there is nothing; updated_at never goes back'
);

-- Adjustments of events, once per id.
EXECUTE adjust(
    ARRAY['acme', 'acme'], ARRAY['m', 'u'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[], ARRAY['{}', '{}'], ARRAY['e1', 'e1'],
    ARRAY[-3, 1]::numeric[], ARRAY['too late', 'closed'],
    ARRAY['2026-09-01 01:00Z', '2026-09-01 01:00Z']::timestamptz[],
    ARRAY[-1.5, NULL]::numeric[], ARRAY[-3, NULL]::numeric[],
    ARRAY[2, 2]::bigint[], ARRAY[NULL, '"v"'], ARRAY[8, 8]::bigint[],
    '00000000-0000-4000-8000-000000000001', '2026-09-05Z', NULL
);
SELECT is(:ROW_COUNT, 2, 'adjustments are booked');
EXECUTE adjust(
    ARRAY['acme', 'acme'], ARRAY['m', 'u'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['', ''],
    ARRAY['k', 'k']::bytea[], ARRAY['{}', '{}'], ARRAY['e1', 'e1'],
    ARRAY[-3, 1]::numeric[], ARRAY['too late', 'closed'],
    ARRAY['2026-09-01 01:00Z', '2026-09-01 01:00Z']::timestamptz[],
    ARRAY[-1.5, NULL]::numeric[], ARRAY[-3, NULL]::numeric[],
    ARRAY[2, 2]::bigint[], ARRAY[NULL, '"v"'], ARRAY[8, 8]::bigint[],
    '00000000-0000-4000-8000-000000000001', '2026-09-05Z', NULL
);
SELECT is(:ROW_COUNT, 0, 'the same ones are not booked again');
SELECT results_eq(
    $$
    SELECT metric, is_manual, id, amount, reason, actor, ts, value, sum, count,
        unique_value, writer_seq, recorded_at
    FROM meter.meter_adjustment ORDER BY metric
    $$,
    $$
    VALUES
        (
            'm' COLLATE "C", false, 'e1' COLLATE "C", -3::numeric,
            'too late', NULL,
            '2026-09-01 01:00Z'::timestamptz, -1.5::numeric, -3::numeric,
            2::bigint, NULL, 8::bigint, '2026-09-05Z'::timestamptz
        ),
        (
            'u', false, 'e1', 1::numeric, 'closed', NULL,
            '2026-09-01 01:00Z'::timestamptz, NULL, NULL, 2::bigint, '"v"',
            8::bigint, '2026-09-05Z'::timestamptz
        )
    $$,
    'each column of an adjustment'
);
SELECT throws_ok(
    $$ UPDATE meter.meter_adjustment SET amount = 0 $$, '42501', NULL,
    'and no one may change one'
);

-- Closed periods.
INSERT INTO meter.meter_close (tenant, metric, period_start, actor, closed_at)
VALUES
    ('acme', 'm', '2026-09-01Z', 'me', '2026-10-03Z'),
    ('globex', 'n', '2026-09-01Z', 'me', '2026-10-03Z');
SELECT results_eq(
    $$
    EXECUTE closed(
        ARRAY['acme', 'acme', 'acme', 'globex', 'globex'],
        ARRAY['m', 'm', 'n', 'n', 'm'],
        ARRAY[
            '2026-09-01Z', '2026-09-02Z', '2026-09-01Z', '2026-09-01Z',
            '2026-09-01Z'
        ]::timestamptz[],
        ARRAY[1, 2, 3, 4, 5]
    )
    $$,
    $$ VALUES (1), (4) $$,
    'tenant, metric and period make a close'
);

-- Several tenants in one statement.
EXECUTE upsert(
    ARRAY['acme', 'globex'], ARRAY['t', 't'],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[], ARRAY['c', 'c'],
    ARRAY['k', 'k']::bytea[], ARRAY['{}', '{}'], ARRAY[1, 2]::numeric[],
    ARRAY[1, 1]::bigint[], ARRAY[1, 2]::numeric[], ARRAY[1, 2]::numeric[],
    ARRAY[1, 2]::numeric[],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[],
    ARRAY[1, 2]::bigint[],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[],
    ARRAY['2026-09-01Z', '2026-09-01Z']::timestamptz[],
    '00000000-0000-4000-8000-000000000001', '2026-09-01Z',
    '2026-09-01Z'
);
SELECT results_eq(
    $$
    SELECT tenant, sum FROM meter.meter_counter
    WHERE metric = 't' ORDER BY tenant
    $$,
    $$ VALUES ('acme' COLLATE "C", 1::numeric), ('globex', 2::numeric) $$,
    'each tenant has its own row'
);

-- Clients read their own tenant only.
SET LOCAL ROLE meter_reader;
SELECT set_config('app.current_tenant', 'globex', true) \g /dev/null
SELECT results_eq(
    $$
    SELECT
        (SELECT count(*) FROM meter.meter_counter),
        (SELECT count(*) FROM meter.meter_unique),
        (SELECT count(*) FROM meter.meter_adjustment),
        (SELECT count(*) FROM meter.meter_close)
    $$,
    $$ VALUES (1::bigint, 0::bigint, 0::bigint, 1::bigint) $$,
    'row-level security holds for all four tables'
);

ROLLBACK;
