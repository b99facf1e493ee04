-- Manual adjustments, closed periods and what clients read of meters. The
-- statements are the ones that meterd runs.

\set adjustment_make `cat sql/statements/api/adjustment_make.sql`
\set adjustment_list `cat sql/statements/api/adjustment_list.sql`
\set close_begin `cat sql/statements/api/close_begin.sql`
\set close_freeze `cat sql/statements/api/close_freeze.sql`
\set close_read `cat sql/statements/api/close_read.sql`
\set usage_list `cat sql/statements/api/usage_list.sql`
\set usage_groups `cat sql/statements/api/usage_groups.sql`

SELECT plan(62);

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE make AS :adjustment_make
PREPARE begin_close AS :close_begin
PREPARE end_close AS :close_freeze

-- Outcome and stored amount of one call.
CREATE FUNCTION pg_temp.adjust(
    id text, amount text, said text DEFAULT NULL, customer text DEFAULT 'c',
    period timestamptz DEFAULT '2025-03-01Z', tenant text DEFAULT 'acme'
)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    made record;
BEGIN
    EXECUTE format(
        'EXECUTE make(%L, ''m'', %L, %L, ''k'', ''{}'', %L, %L, ''why'', %L,'
            ' ''token'')',
        tenant, period, customer, id, amount, said
    ) INTO made;
    RETURN concat_ws(
        ' ', made.outcome, trim_scale(made.amount), made.actor
    );
END
$$;

CREATE FUNCTION pg_temp.manual(of_customer text) RETURNS numeric
LANGUAGE sql AS $$
    SELECT trim_scale(manual_sum) FROM meter.meter_counter
    WHERE tenant = 'acme' AND metric = 'm' AND customer = of_customer
$$;

SELECT is(pg_temp.adjust('a', '1.5'), '0 1.5 token', 'made');
SELECT results_eq(
    $$
    SELECT sum, count, uniques, watermark_ts, last_ts, late_sum, manual_sum
    FROM meter.meter_counter
    $$,
    $$
    VALUES (0::numeric, 0::bigint, 0::bigint, NULL::timestamptz,
        NULL::timestamptz, NULL::numeric, 1.5)
    $$,
    'a row without events'
);
SELECT is(pg_temp.adjust('a', '1.5'), '1 1.5 token', 'the same again');
SELECT is(pg_temp.adjust('a', '1.50'), '1 1.5 token', 'spelled otherwise');
SELECT is(pg_temp.manual('c'), 1.5, 'applied once');
SELECT is(
    (SELECT recorded_at = ts FROM meter.meter_adjustment), true,
    'ts is when it was booked'
);
SELECT is(left(pg_temp.adjust('a', '1.6'), 1), '2', 'another amount');
SELECT is(
    left(pg_temp.adjust('a', '1.5', customer => 'd'), 1), '2',
    'another customer'
);
SELECT is(
    left(pg_temp.adjust('a', '1.5', period => '2025-02-01Z'), 1), '2',
    'another period'
);
SELECT is(left(pg_temp.adjust('a', '1.5', 'ann'), 1), '2', 'another actor');
SELECT is(
    (SELECT count(*) FROM meter.meter_counter), 1::bigint,
    'a conflict leaves no row'
);
SELECT is(pg_temp.manual('c'), 1.5, 'nor an amount');
SELECT is(pg_temp.adjust('b', '2', 'ann'), '0 2 ann', 'an actor is said');
SELECT is(pg_temp.adjust('b', '2', 'ann'), '1 2 ann', 'and compared');
SELECT is(pg_temp.adjust('b', '2'), '1 2 ann', 'unless it is not said');
SELECT is(pg_temp.manual('c'), 3.5, 'amounts add up');
SELECT is(
    pg_temp.adjust('a', '9', tenant => 'globex'), '0 9 token',
    'ids are those of a tenant'
);
SELECT is(
    pg_temp.adjust('early', '1', period => now() + interval '1 minute'), '3',
    'a period that has not begun'
);
SELECT is_empty(
    $$ SELECT FROM meter.meter_adjustment WHERE id = 'early' $$,
    'leaves nothing'
);
SELECT is(
    pg_temp.adjust('big', repeat('9', 28), customer => 'big'),
    '0 ' || repeat('9', 28) || ' token', '28 digits'
);
SELECT throws_ok(
    $$ SELECT pg_temp.adjust('huge', repeat('9', 29), customer => 'huge') $$,
    '22003', NULL, 'past 10^28 the events of the row would have no room'
);
SELECT throws_ok(
    $$ SELECT pg_temp.adjust('bigger', '2', customer => 'big') $$, '22003',
    NULL, 'likewise by two amounts together'
);
SELECT is_empty(
    $$ SELECT FROM meter.meter_adjustment WHERE id = 'bigger' $$,
    'of which nothing remains'
);
-- Events that leave a total no room, in each figure that may be it.
INSERT INTO meter.meter_counter (
    tenant, metric, period_start, customer, group_key, groups, sum, count,
    min, max, uniques, late_sum, late_min, late_max, updated_at
)
VALUES
    ('acme', 'm', '2025-03-01Z', 'sum', 'k', '{}', 5e28, 1, 0, 0, 0, 49e27,
        0, 0, now()),
    ('acme', 'm', '2025-03-01Z', 'min', 'k', '{}', 0, 1, -1, 0, 0, 0,
        -99e27, 0, now()),
    ('acme', 'm', '2025-03-01Z', 'max', 'k', '{}', 0, 1, 0, 99e27, 0, NULL,
        NULL, NULL, now());
SELECT throws_ok(
    format(
        $$ SELECT pg_temp.adjust('%s', '%s1e27', customer => '%s') $$, name,
        sign, name
    ),
    '22003', NULL, 'past 38 digits nobody could read it: ' || name
)
FROM (VALUES ('sum', ''), ('min', '-'), ('max', '')) AS figure (name, sign);
SELECT is(
    pg_temp.adjust('less', '-1e27', customer => 'sum'),
    '0 -1' || repeat('0', 27) || ' token', 'back within them'
);

-- An event's correction may have the same id: another key.
INSERT INTO meter.meter_adjustment (
    tenant, metric, period_start, customer, group_key, groups, is_manual, id,
    amount, reason, ts, recorded_at
)
VALUES (
    'acme', 'm', '2025-03-01Z', 'c', 'k', '{}', false, 'x', 1, 'late', now(),
    now()
);
SELECT is(pg_temp.adjust('x', '1'), '0 1 token', 'an event has this id');

-- Two sets of groups with one key: nothing is added to the wrong one.
UPDATE meter.meter_counter SET groups = '{"other":1}' WHERE customer = 'big';
SELECT throws_ok(
    $$ SELECT pg_temp.adjust('key', '-1', customer => 'big') $$, 'P0001',
    NULL, 'a collision is an error'
);

-- Closes.
EXECUTE begin_close(
    'acme', 'm', '2025-03-01Z', '2025-04-01Z', 'token'
) \g /dev/null
SELECT results_eq(
    $$ SELECT actor, frozen_at IS NULL FROM meter.meter_close $$,
    $$ VALUES ('token', true) $$, 'begun'
);
CREATE TEMP TABLE first AS SELECT closed_at FROM meter.meter_close;
EXECUTE begin_close(
    'acme', 'm', '2025-03-01Z', '2025-04-01Z', 'other'
) \g /dev/null
SELECT results_eq(
    $$ EXECUTE end_close('acme', 'm', '2025-03-01Z', '2025-03', 'sum') $$,
    'TABLE first',
    'again: closed when it was closed first'
);
SELECT isnt(
    (SELECT frozen_at FROM meter.meter_close), NULL, 'and frozen'
);
SELECT results_eq(
    $$
    SELECT customer, trim_scale(value), trim_scale(total)
    FROM meter.meter_billed
    ORDER BY customer
    $$,
    $$
    SELECT customer, trim_scale(sum),
        trim_scale(sum + COALESCE(late_sum, 0) + COALESCE(manual_sum, 0))
    FROM meter.meter_counter
    WHERE tenant = 'acme' AND metric = 'm' AND period_start = '2025-03-01Z'
    ORDER BY customer
    $$,
    'with the figures of that moment'
);
SELECT is(
    (SELECT figures FROM meter.meter_close),
    (SELECT count(*) FROM meter.meter_billed), 'and their number'
);
SELECT throws_ok(
    format('UPDATE meter.meter_close SET %s = NULL', name), '55000', NULL,
    name || ' of a close stays'
)
FROM unnest(ARRAY['frozen_at', 'period', 'figures']) AS name;
SELECT throws_ok(
    'UPDATE meter.meter_billed SET total = 0', '42501', NULL,
    'what was billed is never changed'
);
SELECT throws_ok(
    'DELETE FROM meter.meter_billed', '42501', NULL, 'nor deleted'
);
SELECT throws_ok(
    $$ UPDATE meter.meter_reopen SET reason = '' $$, '42501', NULL,
    'a reopening stays, too'
);
SELECT throws_ok(
    'DELETE FROM meter.meter_reopen', '42501', NULL, 'for ever'
);
SELECT results_eq(
    $$
    SELECT trim_scale(meter.mean(sum, count)) FROM (
        VALUES (1::numeric, 3::bigint), (2, 3), (0.000000001, 2),
            (0.000000003, 2), (-0.000000003, 2), (-1, 3), (0, 7),
            (99999999999999999999999999999.999999999, 7)
    ) AS given (sum, count)
    $$,
    $$
    VALUES (0.333333333), (0.666666667), (0::numeric), (0.000000002),
        (-0.000000002), (-0.333333333), (0),
        (14285714285714285714285714285.714285714)
    $$,
    'means are exact, halves go to the even digit'
);
CREATE TEMP TABLE frozen AS SELECT frozen_at FROM meter.meter_close;
GRANT SELECT ON frozen TO meter_reader;
EXECUTE end_close('acme', 'm', '2025-03-01Z', '2025-03', 'sum') \g /dev/null
SELECT results_eq(
    'SELECT frozen_at FROM meter.meter_close', 'TABLE frozen',
    'frozen once'
);
EXECUTE begin_close(
    'acme', 'm', now() - interval '1 hour', now() + interval '1 hour', 'token'
) \g /dev/null
SELECT is(
    (SELECT count(*) FROM meter.meter_close), 1::bigint,
    'not before the end of the period'
);
SELECT is_empty(
    $$ EXECUTE end_close('globex', 'm', '2025-03-01Z', '2025-03', 'sum') $$,
    'a close is of its tenant'
);
SELECT throws_ok(
    'DELETE FROM meter.meter_close', '42501', NULL, 'there is no reopening'
);
SELECT throws_ok(
    'UPDATE meter.meter_adjustment SET amount = 0', '42501', NULL,
    'adjustments are never changed'
);
SELECT throws_ok(
    'DELETE FROM meter.meter_adjustment', '42501', NULL, 'nor deleted'
);

-- What clients read. Two groups of one customer; the last by its mark.
INSERT INTO meter.meter_counter (
    tenant, metric, period_start, customer, group_key, groups, sum, count,
    min, max, last, last_ts, last_recorded_at, last_writer, last_seq,
    uniques, watermark_ts, late_sum, late_count, late_last, late_last_ts,
    late_last_recorded_at, late_last_writer, late_last_seq, late_min,
    late_max, late_uniques, updated_at
)
SELECT
    'acme', 'u', '2025-03-01Z', 'c', n::text::bytea, n::text, n, 1, n, n, n,
    '2025-03-02Z', '2025-03-03Z',
    '00000000-0000-4000-8000-000000000001', 10 - n,
    1, '2025-03-02Z'::timestamptz + n * interval '1 hour',
    CASE WHEN n = 2 THEN 5 END, CASE WHEN n = 2 THEN 1 END,
    CASE WHEN n = 2 THEN 5 END,
    CASE WHEN n = 2 THEN '2025-03-01Z'::timestamptz END,
    CASE WHEN n = 2 THEN '2025-03-09Z'::timestamptz END,
    CASE WHEN n = 2 THEN '00000000-0000-4000-8000-000000000002'::uuid END,
    CASE WHEN n = 2 THEN 3 END, CASE WHEN n = 2 THEN 5 END,
    CASE WHEN n = 2 THEN 5 END, CASE WHEN n = 2 THEN 0 END,
    now()
FROM generate_series(1, 3) AS n;
INSERT INTO meter.meter_adjustment (
    tenant, metric, period_start, customer, group_key, groups, is_manual, id,
    amount, reason, ts, recorded_at
)
SELECT
    'acme', 'u', '2025-03-01Z', 'c', 'k', '{}', is_manual, id, 1, 'why',
    '2025-03-04Z', '2025-03-04Z'
FROM unnest(ARRAY['u1', 'u2', 'u3']) AS id,
    unnest(ARRAY[true, false]) AS is_manual;
INSERT INTO meter.meter_unique VALUES
    ('acme', 'u', '2025-03-01Z', 'c', '1', '"a"', true),
    ('acme', 'u', '2025-03-01Z', 'c', '2', '"a"', false),
    ('acme', 'u', '2025-03-01Z', 'c', '2', '"b"', true),
    ('acme', 'u', '2025-03-01Z', 'c', '3', '"c"', false);

SET LOCAL ROLE meter_reader;
SELECT throws_ok(
    $$
    SELECT meter.adjust('acme', 'm', '2025-03-01Z', 'c', 'k', '{}', 'z', 1,
        'why', NULL, 'token')
    $$,
    '42501', NULL, 'a reader does not adjust'
);
PREPARE adjustments AS :adjustment_list
PREPARE closed AS :close_read
PREPARE merged AS :usage_list
PREPARE grouped AS :usage_groups

SELECT meter.set_tenant('acme') \g /dev/null
SELECT results_eq(
    $$ EXECUTE closed('acme', 'm', '2025-03-01Z') $$, 'TABLE frozen', 'closed'
);
CREATE TEMP TABLE listed AS EXECUTE adjustments(
    'acme', 'u', '2025-04-01Z', 'c', '2025-03-01Z', '', '2001-01-01Z', '', 0,
    4
);
SELECT results_eq(
    'SELECT id, is_manual FROM listed LIMIT 3',
    $$
    VALUES ('u1' COLLATE "C", false), ('u1', true), ('u2', false)
    $$,
    'adjustments that differ in their kind only have an order'
);
CREATE TEMP TABLE behind AS EXECUTE adjustments(
    'acme', 'u', '2025-04-01Z', 'c', '2025-03-01Z', 'c', '2025-03-04Z', 'u2',
    0, 4
);
SELECT results_eq(
    'SELECT id, is_manual FROM behind',
    $$
    VALUES ('u2' COLLATE "C", true), ('u3', false), ('u3', true)
    $$,
    'and none is passed over'
);
CREATE TEMP TABLE usage AS EXECUTE merged(
    'acme', 'u', NULL, '{}', '2025-02-01Z', '', '2025-04-01Z', 10, 10
);
SELECT results_eq(
    $$
    SELECT customer, sum, count, min, max, last, last_seq, uniques, late_sum,
        late_last, late_last_seq, late_uniques, watermark, id
    FROM usage
    WHERE id IS NULL
    $$,
    $$
    VALUES ('c' COLLATE "C", 6::numeric, 3::bigint, 1::numeric, 3::numeric,
        1::numeric, 9::bigint, 2::bigint, 5::numeric, 5::numeric, 3::bigint,
        1::bigint, '2025-03-02 03:00Z'::timestamptz, NULL COLLATE "C")
    $$,
    'groups of a customer together'
);
CREATE TEMP TABLE one AS EXECUTE merged(
    'acme', 'u', 'c', '{2025-02-01Z,2025-03-01Z}', '2025-01-01Z', '',
    '2025-04-01Z', 10, 10
);
SELECT results_eq('TABLE one', 'TABLE usage', 'the same by its customer');
SELECT is_empty(
    $$
    EXECUTE merged('acme', 'u', NULL, '{}', '2025-03-01Z', 'c', '2025-04-01Z',
        10, 10)
    $$,
    'behind the last row'
);
CREATE TEMP TABLE each AS EXECUTE grouped(
    'acme', 'u', NULL, '{}', '2025-02-01Z', '', '', '2025-04-01Z', 10, 10,
    NULL
);
SELECT results_eq(
    'SELECT groups, sum, uniques FROM each',
    $$ VALUES ('1', 1::numeric, 1::bigint), ('2', 2, 1), ('3', 3, 1) $$,
    'each group for itself'
);
CREATE TEMP TABLE second AS EXECUTE grouped(
    'acme', 'u', 'c', '{2025-03-01Z}', '2025-03-01Z', 'c', '1',
    '2025-04-01Z', 10, 10, '{"\\x32","\\x31"}'
);
SELECT results_eq(
    'SELECT groups FROM second', $$ VALUES ('2') $$,
    'some of them, behind a row'
);
CREATE TEMP TABLE lines AS EXECUTE merged(
    'acme', 'm', 'c', '{2025-03-01Z}', '2025-02-01Z', '', '2025-04-01Z', 10,
    3
);
SELECT is(
    (SELECT count(*) FROM lines WHERE id IS NULL), 1::bigint, 'a figure'
);
SELECT is(
    (SELECT count(*) FROM lines WHERE id IS NOT NULL), 3::bigint,
    'and its adjustments, so many at most'
);
SELECT is(
    (SELECT bool_and(is_closed) FROM lines), true, 'of a closed period'
);

SELECT meter.set_tenant('globex') \g /dev/null
SELECT is_empty(
    $$
    EXECUTE merged('acme', 'u', NULL, '{}', '2025-02-01Z', '', '2025-04-01Z',
        10, 10)
    $$,
    'not for another tenant'
);
SELECT is_empty(
    $$
    EXECUTE adjustments('acme', 'm', '2025-04-01Z', NULL, '2001-01-01Z', '',
        '2001-01-01Z', '', 0, 10)
    $$,
    'nor adjustments'
);
ROLLBACK;
