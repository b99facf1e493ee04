-- Days of the partitioned tables.

SELECT plan(17);

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

SET LOCAL ROLE meter_writer;
SELECT throws_ok(
    $$ SELECT meter.partition_make('event', '2001-02-05') $$, '42501', NULL,
    'only the owner makes partitions'
);
ROLLBACK;
