-- Persistent counters: folds, clamps, overflow, collisions. The statements
-- are the ones that meterd runs.

\set counter_upsert `cat sql/statements/counter_upsert.sql`
\set counter_ensure `cat sql/statements/counter_ensure.sql`
\set counter_lock `cat sql/statements/counter_lock.sql`
\set counter_write `cat sql/statements/counter_write.sql`
\set counter_read `cat sql/statements/counter_read.sql`

SELECT plan(19);

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE upsert AS :counter_upsert
PREPARE ensure AS :counter_ensure
PREPARE lock AS :counter_lock
PREPARE write AS :counter_write

-- One fold on one row of acme.
CREATE FUNCTION pg_temp.fold(name text, a bigint, b bigint)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'EXECUTE upsert(ARRAY[''acme''], ARRAY[%L], ARRAY[''k''::bytea],'
            ' ARRAY[''{}''], ARRAY[%L::bigint], ARRAY[%L::bigint],'
            ' ''2026-01-02Z'')',
        name, a, b
    );
END
$$;

CREATE FUNCTION pg_temp.value(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT value FROM meter.counter
    WHERE tenant = 'acme' AND counter_name = name AND dimension_key = 'k'
$$;

-- A row that does not exist counts as 0.
EXECUTE upsert(
    ARRAY['acme'], ARRAY['raw'], ARRAY['k']::bytea[], ARRAY['{}'],
    ARRAY[3]::bigint[], ARRAY[NULL]::bigint[], '2026-01-01Z'
);
SELECT is(:ROW_COUNT, 1, 'a new row is touched');
SELECT is(pg_temp.value('raw'), 3::bigint, 'and is 0 + a');
EXECUTE upsert(
    ARRAY['acme'], ARRAY['raw'], ARRAY['k']::bytea[], ARRAY['{}'],
    ARRAY[-5]::bigint[], ARRAY[NULL]::bigint[], '2026-01-02Z'
);
SELECT is(:ROW_COUNT, 1, 'an old one too');
SELECT is(pg_temp.value('raw'), -2::bigint, 'raw counters go below 0');

-- +1 -3 +2 under the clamp: a = 0, b = 2.
SELECT pg_temp.fold('floor', 0, 2) \g /dev/null
SELECT is(pg_temp.value('floor'), 2::bigint, 'clamped fold on a new row');
SELECT pg_temp.fold('floor', -1, 0) \g /dev/null
SELECT is(pg_temp.value('floor'), 1::bigint, 'value + a where it is above b');
SELECT pg_temp.fold('floor', -9, 4) \g /dev/null
SELECT is(pg_temp.value('floor'), 4::bigint, 'b where value + a is below');

-- The helper columns never outlive an update and never act twice.
SELECT results_eq(
    $$
    SELECT step_add, step_floor FROM meter.counter
    WHERE counter_name = 'floor'
    $$,
    $$ VALUES (NULL::bigint, NULL::bigint) $$,
    'an update clears the helper columns'
);

SELECT pg_temp.fold('edge', 9223372036854775807, NULL) \g /dev/null
SELECT throws_ok(
    $$ SELECT pg_temp.fold('edge', 1, NULL) $$, '22003', NULL,
    'overflow is an error, not a wrong number'
);
SELECT throws_ok(
    $$ SELECT pg_temp.fold('edge', 1, 0) $$, '22003', NULL,
    'under the clamp too'
);
SELECT is(
    pg_temp.value('edge'), 9223372036854775807, 'the value is what it was'
);

-- Two dimension sets with one key: nothing is added to the wrong one.
EXECUTE upsert(
    ARRAY['acme'], ARRAY['raw'], ARRAY['k']::bytea[], ARRAY['{"other":1}'],
    ARRAY[1]::bigint[], ARRAY[NULL]::bigint[], '2026-01-02Z'
);
SELECT is(:ROW_COUNT, 0, 'a collision touches no row');
SELECT is(pg_temp.value('raw'), -2::bigint, 'and changes nothing');

-- The careful path: ensure, lock, write.
EXECUTE ensure(
    ARRAY['acme', 'acme'], ARRAY['new', 'raw'], ARRAY['k', 'k']::bytea[],
    ARRAY['{}', '{}'], '2026-01-03Z'
);
SELECT results_eq(
    $$
    EXECUTE lock('acme', ARRAY['new', 'raw'], ARRAY['k', 'k']::bytea[])
    $$,
    $$
    VALUES
        ('new' COLLATE "C", 'k'::bytea, '{}', 0::bigint),
        ('raw', 'k'::bytea, '{}', -2::bigint)
    $$,
    'ensured rows are 0, others keep their value; locked in order'
);
EXECUTE write(
    ARRAY['acme', 'acme'], ARRAY['new', 'raw'], ARRAY['k', 'k']::bytea[],
    ARRAY[7, 8]::bigint[], '2026-01-01Z'
);
SELECT is(pg_temp.value('new'), 7::bigint, 'written absolutely');
SELECT is(pg_temp.value('raw'), 8::bigint, 'both of them');
SELECT is(
    (SELECT updated_at FROM meter.counter WHERE counter_name = 'raw'),
    '2026-01-02Z'::timestamptz, 'updated_at never goes back'
);

SET LOCAL ROLE meter_reader;
PREPARE read AS :counter_read
SELECT meter.set_tenant('acme') \g /dev/null
SELECT results_eq(
    $$ EXECUTE read('acme', 'new', ARRAY['k', 'other']::bytea[]) $$,
    $$ VALUES ('{}', 7::bigint, '2026-01-03Z'::timestamptz) $$,
    'read by one of its possible keys'
);
SELECT meter.set_tenant('globex') \g /dev/null
SELECT is_empty(
    $$ EXECUTE read('acme', 'new', ARRAY['k']::bytea[]) $$,
    'not for another tenant'
);
ROLLBACK;
