-- Partitions of the partitioned tables: made, listed, dropped.

SELECT plan(46);

BEGIN;
SET LOCAL ROLE meter_owner;

SELECT is(
    meter.partition_make('event', '2001-02-03'), true, 'a missing day is made'
);
SELECT is(
    meter.partition_make('event', '2001-02-03'), false,
    'a second time it is there'
);
SELECT is(
    meter.partition_make('duplicate_audit', '2001-02-03'), true,
    'parents have days of their own'
);
SELECT ok(
    DATE '2001-02-03' IN (SELECT meter.partition_days('event')),
    'partition_days lists it'
);
SELECT ok(
    DATE '2001-02-04' NOT IN (SELECT meter.partition_days('event')),
    'and not its neighbour'
);
SELECT results_eq(
    $$
    SELECT relrowsecurity, relforcerowsecurity, relowner::regrole::text
    FROM pg_class
    WHERE oid = 'meter.event_20010203'::regclass
    $$,
    $$ VALUES (true, true, 'meter_owner') $$,
    'row-level security is enabled and forced on it'
);
SELECT is(
    (
        SELECT pg_get_expr(relpartbound, oid)
        FROM pg_class
        WHERE oid = 'meter.event_20010203'::regclass
    ),
    $$FOR VALUES FROM ('2001-02-03') TO ('2001-02-04')$$,
    'it holds just that day'
);
SELECT is(
    (
        SELECT count(*)::integer
        FROM pg_index AS child
        INNER JOIN pg_inherits AS link ON link.inhrelid = child.indexrelid
        WHERE child.indrelid = 'meter.event_20010203'::regclass
    ),
    2, 'its indexes belong to those of the parent'
);

-- CREATE ... PARTITION OF would take ACCESS EXCLUSIVE on the parent.
SELECT is(
    (
        SELECT max(mode)
        FROM pg_locks
        WHERE relation = 'meter.event'::regclass
            AND pid = pg_backend_pid()
            AND mode IN ('AccessExclusiveLock', 'ExclusiveLock',
                'ShareRowExclusiveLock', 'ShareLock')
    ),
    NULL, 'no lock on the parent stops reads or writes'
);

SELECT is(meter.partition_make('event', '0001-01-01'), true, 'first day');
SELECT is(meter.partition_make('event', '9999-12-30'), true, 'last day');
SELECT set_eq(
    $$
    SELECT day FROM meter.partition_days('event') AS day
    WHERE day < '2002-01-01' OR day > '9000-01-01'
    $$,
    $$ VALUES (DATE '0001-01-01'), ('2001-02-03'), ('9999-12-30') $$,
    'days are read back as they were made'
);
SELECT throws_ok(
    $$ SELECT meter.partition_make('event', 'infinity') $$, '22008', NULL,
    'a day out of range is refused'
);
SELECT throws_ok(
    $$ SELECT meter.partition_make('counter', '2001-02-03') $$, '22023', NULL,
    'other tables have no days'
);
SELECT throws_ok(
    $$ SELECT meter.partition_make('event; DROP TABLE x', '2001-02-03') $$,
    '22023', NULL, 'the parent is one of a list'
);
SELECT throws_ok(
    $$ SELECT * FROM meter.partition_days('secret') $$, '22023', NULL,
    'for reading too'
);

-- Partitions of more than one day: from Monday 1970-01-05, on and back.

SELECT set_eq(
    $$
    SELECT table_name::text, meter.partition_span(table_name)
    FROM unnest(
        '{event,duplicate_audit,event_index,series_5s,series_1m,series_1h,series_1d,series_7d}'::text[]
    ) AS table_name
    $$,
    $$
    VALUES ('event', 1), ('duplicate_audit', 1), ('event_index', 1),
        ('series_5s', 1), ('series_1m', 1), ('series_1h', 28),
        ('series_1d', 364), ('series_7d', 364)
    $$,
    'spans'
);
SELECT set_eq(
    $$
    SELECT table_name, day, meter.partition_first(table_name, day)
    FROM (
        VALUES ('series_1h', DATE '1970-01-05'), ('series_1h', '1970-02-01'),
            ('series_1h', '1970-02-02'), ('series_1h', '1970-01-04'),
            ('series_1h', '2026-05-01'), ('series_7d', '1970-01-05'),
            ('series_7d', '1971-01-03'), ('series_7d', '1971-01-04'),
            ('series_7d', '1970-01-04'), ('series_1d', '2026-05-01'),
            ('series_1m', '2026-05-01'), ('series_7d', '0001-01-01')
    ) AS days (table_name, day)
    $$,
    $$
    VALUES ('series_1h', DATE '1970-01-05', DATE '1970-01-05'),
        ('series_1h', '1970-02-01', '1970-01-05'),
        ('series_1h', '1970-02-02', '1970-02-02'),
        ('series_1h', '1970-01-04', '1969-12-08'),
        ('series_1h', '2026-05-01', '2026-04-13'),
        ('series_7d', '1970-01-05', '1970-01-05'),
        ('series_7d', '1971-01-03', '1970-01-05'),
        ('series_7d', '1971-01-04', '1971-01-04'),
        ('series_7d', '1970-01-04', '1969-01-06'),
        ('series_1d', '2026-05-01', '2025-10-27'),
        ('series_1m', '2026-05-01', '2026-05-01'),
        ('series_7d', '0001-01-01', '0001-01-01')
    $$,
    'the first day of the partition that holds a day'
);
SELECT is(
    (
        SELECT count(*)::integer
        FROM generate_series(-1000, 1000) AS number
        CROSS JOIN unnest('{series_1h,series_1d,series_7d}'::text[]) AS parent
        WHERE extract(
            isodow FROM meter.partition_first(
                parent, DATE '2026-01-01' + number
            )
        ) <> 1
    ),
    0, 'which is a Monday'
);
SELECT is(
    meter.partition_make('series_1h', '2001-02-03'), true,
    'the partition that holds a day is made'
);
SELECT is(
    meter.partition_make('series_1h', '2001-02-18'), false,
    'and is there for its last day'
);
SELECT is(
    meter.partition_make('series_1h', '2001-02-19'), true,
    'the next day is in the next one'
);
SET LOCAL TimeZone = 'Asia/Tokyo';
SELECT is(
    meter.partition_make('series_7d', '2001-02-03'), true,
    'one of 364 days, wherever the session is'
);
SELECT is(
    meter.partition_make('series_5s', '2001-02-03'), true, 'one of a day'
);
SET LOCAL TimeZone = 'UTC';
SELECT set_eq(
    $$
    SELECT relname::text, pg_get_expr(relpartbound, oid)
    FROM pg_class
    WHERE relname IN (
        'series_1h_20010122', 'series_1h_20010219', 'series_7d_20001127',
        'series_5s_20010203'
    )
    $$,
    $$
    VALUES (
        'series_1h_20010122',
        'FOR VALUES FROM (''2001-01-22 00:00:00+00'')'
            || ' TO (''2001-02-19 00:00:00+00'')'
    ), (
        'series_1h_20010219',
        'FOR VALUES FROM (''2001-02-19 00:00:00+00'')'
            || ' TO (''2001-03-19 00:00:00+00'')'
    ), (
        'series_7d_20001127',
        'FOR VALUES FROM (''2000-11-27 00:00:00+00'')'
            || ' TO (''2001-11-26 00:00:00+00'')'
    ), (
        'series_5s_20010203',
        'FOR VALUES FROM (''2001-02-03 00:00:00+00'')'
            || ' TO (''2001-02-04 00:00:00+00'')'
    )
    $$,
    'bounds are midnights UTC'
);
SELECT is(
    meter.partition_make('series_7d', '0001-01-01'), true, 'the first of all'
);
SELECT is(
    meter.partition_make('series_7d', '0001-12-31'), true,
    'the second one follows it'
);
SELECT is(
    meter.partition_make('series_7d', '9999-12-30'), true, 'and the last'
);
SELECT is(meter.partition_make('event_index', '2001-02-03'), true, 'index');

-- Drops.

SELECT throws_ok(
    $$ SELECT meter.partition_drop('event', '2001-02-03') $$, '55006', NULL,
    'without a floor nothing is dropped'
);
INSERT INTO meter.partition_floor (parent, floor)
VALUES ('event', '2001-02-03');
SELECT throws_ok(
    $$ SELECT meter.partition_drop('event', '2001-02-03') $$, '55006', NULL,
    'nor at the floor'
);
UPDATE meter.partition_floor
SET floor = '2001-02-04'
WHERE parent = 'event';
SELECT is(
    meter.partition_drop('event', '2001-02-03'), true, 'below it it goes'
);
SELECT is(
    meter.partition_drop('event', '2001-02-03'), false, 'and is gone then'
);
SELECT ok(to_regclass('meter.event_20010203') IS NULL, 'table and all');
SELECT ok(
    to_regclass('meter.duplicate_audit_20010203') IS NOT NULL,
    'those of others stay'
);
UPDATE meter.partition_floor
SET floor = '2001-02-18'
WHERE parent = 'series_1h';
SELECT throws_ok(
    $$ SELECT meter.partition_drop('series_1h', '2001-01-22') $$, '55006',
    NULL, 'one of many days has to lie wholly below'
);
UPDATE meter.partition_floor
SET floor = '2001-02-19'
WHERE parent = 'series_1h';
SELECT is(
    meter.partition_drop('series_1h', '2001-02-10'), true,
    'then any of its days names it'
);
SELECT set_eq(
    $$ SELECT * FROM meter.partition_days('series_1h') $$,
    $$ VALUES (DATE '2001-02-19') $$,
    'the next one is there'
);
SELECT throws_ok(
    $$ SELECT meter.partition_drop('counter', '2001-02-03') $$, '22023', NULL,
    'other tables have none to drop'
);

-- The floor as it is now, for who has waited for a lock.

SELECT is(
    meter.partition_floor_now('event'), DATE '2001-02-04', 'the floor'
);
SELECT is(
    meter.partition_floor_now('duplicate_audit'), NULL, 'of one that has none'
);
SELECT volatility_is(
    'meter', 'partition_floor_now', ARRAY['text'], 'volatile',
    'looked at with a snapshot of its own'
);

SET LOCAL ROLE meter_writer;
SELECT throws_ok(
    $$ SELECT meter.partition_make('event', '2001-02-05') $$, '42501', NULL,
    'only the owner makes partitions'
);
SELECT throws_ok(
    $$ SELECT meter.partition_drop('event', '2001-02-05') $$, '42501', NULL,
    'and drops them'
);
SELECT throws_ok(
    $$ UPDATE meter.partition_floor SET floor = '2001-02-05' $$, '42501',
    NULL, 'and raises floors'
);
SELECT lives_ok(
    $$ SELECT FROM meter.partition_floor FOR SHARE $$,
    'which the writer may lock'
);
ROLLBACK;
