-- Persistent counters: folds, clamps, order, overflow, collisions, keys, the
-- log, entities. The statements are the ones that meterd runs.

\set counter_upsert `cat sql/statements/project/counter_upsert.sql`
\set counter_ensure `cat sql/statements/project/counter_ensure.sql`
\set counter_lock `cat sql/statements/project/counter_lock.sql`
\set counter_write `cat sql/statements/project/counter_write.sql`
\set counter_audit_insert `cat sql/statements/project/counter_audit_insert.sql`
\set entity_state_ensure `cat sql/statements/project/entity_state_ensure.sql`
\set entity_state_lock `cat sql/statements/project/entity_state_lock.sql`
\set entity_state_write `cat sql/statements/project/entity_state_write.sql`
\set counter_read `cat sql/statements/api/counter_read.sql`

SELECT plan(46);

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE upsert AS :counter_upsert
PREPARE ensure AS :counter_ensure
PREPARE lock AS :counter_lock
PREPARE write AS :counter_write
PREPARE audit AS :counter_audit_insert
PREPARE state_ensure AS :entity_state_ensure
PREPARE state_lock AS :entity_state_lock
PREPARE state_write AS :entity_state_write

-- One fold on one row of acme; how many rows were touched.
CREATE FUNCTION pg_temp.fold(
    name text,
    a bigint,
    b bigint,
    recorded_at timestamptz DEFAULT '2026-01-02Z'
)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    answer record;
BEGIN
    EXECUTE format(
        'EXECUTE upsert(ARRAY[''acme''], ARRAY[%L], ARRAY[''k''::bytea],'
            ' ARRAY[''{}''], ARRAY[%L::bigint], ARRAY[%L::bigint], %L)',
        name, a, b, recorded_at
    ) INTO answer;
    RETURN answer.touched;
END
$$;

CREATE FUNCTION pg_temp.value(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT value FROM meter.counter
    WHERE tenant = 'acme' AND counter_name = name AND dimension_key = 'k'
$$;

CREATE FUNCTION pg_temp.updated(name text)
RETURNS timestamptz LANGUAGE sql AS $$
    SELECT updated_at FROM meter.counter
    WHERE tenant = 'acme' AND counter_name = name AND dimension_key = 'k'
$$;

CREATE FUNCTION pg_temp.keys(name text) RETURNS bigint LANGUAGE sql AS $$
    SELECT keys FROM meter.counter_keys
    WHERE tenant = 'acme' AND counter_name = name
$$;

-- A row that does not exist counts as 0.
SELECT is(
    pg_temp.fold('raw', 3, NULL, '2026-01-01Z'), 1::bigint,
    'a new row is touched'
);
SELECT is(pg_temp.value('raw'), 3::bigint, 'and is 0 + a');
SELECT is(
    pg_temp.fold('raw', -5, NULL), 1::bigint, 'an old one too'
);
SELECT is(pg_temp.value('raw'), -2::bigint, 'raw counters go below 0');
SELECT is(
    pg_temp.fold('raw', 1, NULL, '2026-01-01Z'), 1::bigint,
    'a raw row takes transactions in any order'
);
SELECT is(
    pg_temp.updated('raw'), '2026-01-02Z'::timestamptz,
    'its updated_at never goes back'
);

-- +1 -3 +2 under the clamp: a = 0, b = 2.
SELECT is(
    pg_temp.fold('floor', 0, 2, '2026-01-02Z'), 1::bigint, 'a clamped fold'
);
SELECT is(pg_temp.value('floor'), 2::bigint, 'on a new row');
SELECT pg_temp.fold('floor', -1, 0, '2026-01-03Z') \g /dev/null
SELECT is(pg_temp.value('floor'), 1::bigint, 'value + a where it is above b');
SELECT pg_temp.fold('floor', -9, 4, '2026-01-04Z') \g /dev/null
SELECT is(pg_temp.value('floor'), 4::bigint, 'b where value + a is below');

-- Clamps have an order: only a later transaction.
SELECT is(
    pg_temp.fold('floor', 1, 0, '2026-01-04Z'), 0::bigint,
    'a clamped row is passed over at the same time'
);
SELECT is(
    pg_temp.fold('floor', 1, 0, '2026-01-03Z'), 0::bigint,
    'and by an earlier transaction'
);
SELECT is(pg_temp.value('floor'), 4::bigint, 'which changes nothing');
SELECT is(
    pg_temp.fold('floor', 1, 0, '2026-01-04 00:00:00.000001Z'), 1::bigint,
    'a microsecond later it is taken'
);
SELECT is(
    pg_temp.updated('floor'), '2026-01-04 00:00:00.000001Z'::timestamptz,
    'and leaves its time'
);

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
    $$ SELECT pg_temp.fold('edge', 1, 0, '2026-01-05Z') $$, '22003', NULL,
    'under the clamp too'
);
SELECT is(
    pg_temp.value('edge'), 9223372036854775807, 'the value is what it was'
);

-- Two dimension sets with one key: nothing is added to the wrong one.
SELECT results_eq(
    $$
    EXECUTE upsert(
        ARRAY['acme'], ARRAY['raw'], ARRAY['k']::bytea[],
        ARRAY['{"other":1}'], ARRAY[1]::bigint[], ARRAY[NULL]::bigint[],
        '2026-01-02Z'
    )
    $$,
    $$
    VALUES (
        NULL COLLATE "C", NULL COLLATE "C", 0::bigint, 0::bigint, 0::bigint
    )
    $$,
    'a collision touches no row'
);
SELECT is(pg_temp.value('raw'), -1::bigint, 'and changes nothing');

-- Keys are counted with the rows, for those that are new.
SELECT is(pg_temp.keys('raw'), 1::bigint, 'a key is counted once');
SELECT results_eq(
    $$
    EXECUTE upsert(
        ARRAY['acme', 'acme', 'acme', 'acme', 'globex'],
        ARRAY['floor', 'raw', 'raw', 'raw', 'raw'],
        ARRAY['l', 'k', 'l', 'm', 'k']::bytea[],
        ARRAY['{"l":1}', '{}', '{"l":1}', '{"m":1}', '{}'],
        ARRAY[7, -8, 2, 3, 4]::bigint[],
        ARRAY[0, NULL, NULL, NULL, NULL]::bigint[], '2026-01-05Z'
    )
    $$,
    $$
    VALUES
        (
            NULL COLLATE "C", NULL COLLATE "C", 5::bigint, -9::bigint,
            7::bigint
        ),
        ('acme', 'floor', 2::bigint, NULL, NULL),
        ('acme', 'raw', 3::bigint, NULL, NULL),
        ('globex', 'raw', 1::bigint, NULL, NULL)
    $$,
    'all values between the ends; keys of each counter that grew'
);
SELECT results_eq(
    $$
    EXECUTE upsert(
        ARRAY['acme', 'acme'], ARRAY['raw', 'raw'], ARRAY['k', 'l']::bytea[],
        ARRAY['{}', '{"l":1}'], ARRAY[1, 1]::bigint[],
        ARRAY[NULL, NULL]::bigint[], '2026-01-05Z'
    )
    $$,
    $$
    VALUES (
        NULL COLLATE "C", NULL COLLATE "C", 2::bigint, -8::bigint, 3::bigint
    )
    $$,
    'no keys where nothing is new'
);
SELECT results_eq(
    $$
    SELECT tenant, counter_name, keys FROM meter.counter_keys
    ORDER BY tenant, counter_name
    $$,
    $$
    SELECT tenant, counter_name, count(*) FROM meter.counter
    GROUP BY tenant, counter_name
    ORDER BY tenant, counter_name
    $$,
    'the count is that of the rows'
);

-- The careful path: ensure, lock, write.
SELECT results_eq(
    $$
    EXECUTE ensure(
        ARRAY['acme', 'acme', 'acme'], ARRAY['new', 'raw', 'raw'],
        ARRAY['k', 'k', 'n']::bytea[], ARRAY['{}', '{}', '{"n":1}']
    )
    $$,
    $$
    VALUES
        ('acme' COLLATE "C", 'new' COLLATE "C", 'k'::bytea, NULL::bigint),
        ('acme', 'raw', 'n'::bytea, NULL),
        ('acme', 'new', NULL, 1::bigint),
        ('acme', 'raw', NULL, 4::bigint)
    $$,
    'what was made, and the keys with it'
);
SELECT results_eq(
    $$
    EXECUTE lock(
        ARRAY['acme', 'acme', 'acme'], ARRAY['new', 'raw', 'raw'],
        ARRAY['k', 'k', 'n']::bytea[]
    )
    $$,
    $$
    VALUES
        (
            'acme' COLLATE "C", 'new' COLLATE "C", 'k'::bytea, '{}',
            0::bigint, to_timestamp(0)
        ),
        (
            'acme', 'raw', 'k'::bytea, '{}', -8::bigint,
            '2026-01-05Z'::timestamptz
        ),
        ('acme', 'raw', 'n'::bytea, '{"n":1}', 0::bigint, to_timestamp(0))
    $$,
    'ensured rows are 0 and old, others as they are; in order'
);
EXECUTE write(
    ARRAY['acme', 'acme', 'acme'], ARRAY['new', 'raw', 'raw'],
    ARRAY['k', 'k', 'n']::bytea[], ARRAY[7, 8, 9]::bigint[], '2026-01-03Z'
);
SELECT is(:ROW_COUNT, 3, 'all are written');
SELECT is(pg_temp.value('new'), 7::bigint, 'absolutely');
SELECT is(pg_temp.value('raw'), 8::bigint, 'all of them');
SELECT is(
    pg_temp.updated('raw'), '2026-01-05Z'::timestamptz,
    'updated_at never goes back'
);
SELECT is(
    pg_temp.updated('new'), '2026-01-03Z'::timestamptz,
    'a new row has the time of its transaction'
);
EXECUTE ensure(ARRAY['acme'], ARRAY['raw'], ARRAY['k']::bytea[], ARRAY['{}']);
SELECT is(:ROW_COUNT, 0, 'nothing is made, nothing counted again');
SELECT is(pg_temp.keys('raw'), 4::bigint, 'the count stands');

-- The log: by id, each value follows from the one before it.
SELECT pg_temp.fold('logged', 5, 0, '2026-01-02Z') \g /dev/null
EXECUTE audit(
    ARRAY['acme'], ARRAY['logged'], ARRAY['k']::bytea[], ARRAY[5]::bigint[],
    ARRAY[0]::bigint[], ARRAY[11]::bigint[], ARRAY[12]::bigint[],
    '00000000-0000-0000-0000-000000000001', '2026-01-02Z'
);
SELECT is(:ROW_COUNT, 1, 'an update of an audited row is logged');
SELECT pg_temp.fold('logged', -9, 2, '2026-01-03Z') \g /dev/null
EXECUTE audit(
    ARRAY['acme', 'acme'], ARRAY['logged', 'raw'], ARRAY['k', 'k']::bytea[],
    ARRAY[-9, NULL]::bigint[], ARRAY[2, NULL]::bigint[],
    ARRAY[13, 14]::bigint[], ARRAY[13, 15]::bigint[],
    '00000000-0000-0000-0000-000000000001', '2026-01-03Z'
);
SELECT results_eq(
    $$
    SELECT dimensions, step_add, step_floor, value, seq_first, seq_last
    FROM meter.counter_audit
    WHERE counter_name = 'logged'
    ORDER BY id
    $$,
    $$
    VALUES
        ('{}', 5::bigint, 0::bigint, 5::bigint, 11::bigint, 12::bigint),
        ('{}', -9::bigint, 2::bigint, 2::bigint, 13::bigint, 13::bigint)
    $$,
    'with the fold and the value behind it'
);
SELECT is(
    (
        SELECT bool_and(value = GREATEST(before + step_add, step_floor))
        FROM (
            SELECT
                *,
                COALESCE(lag(value) OVER (ORDER BY id), 0) AS before
            FROM meter.counter_audit
            WHERE counter_name = 'logged'
        ) AS chain
    ),
    true, 'the chain holds'
);
SELECT results_eq(
    $$
    SELECT step_add, step_floor, value FROM meter.counter_audit
    WHERE counter_name = 'raw'
    $$,
    $$ VALUES (NULL::bigint, NULL::bigint, 8::bigint) $$,
    'what was decided one by one has a value only'
);

-- Entities.
EXECUTE state_ensure(
    ARRAY['acme', 'acme'], ARRAY['open', 'open'], ARRAY['"a"', '1']
);
SELECT results_eq(
    $$
    EXECUTE state_lock(
        ARRAY['acme', 'acme'], ARRAY['open', 'open'], ARRAY['"a"', '1']
    )
    $$,
    $$
    VALUES
        (
            'acme' COLLATE "C", 'open' COLLATE "C", '"a"' COLLATE "C",
            NULL::bytea, NULL, to_timestamp(0)
        ),
        ('acme', 'open', '1', NULL, NULL, to_timestamp(0))
    $$,
    'an entity that is new is counted nowhere'
);
EXECUTE state_write(
    ARRAY['acme', 'acme'], ARRAY['open', 'open'], ARRAY['"a"', '1'],
    ARRAY['k', NULL]::bytea[], ARRAY['{}', NULL], '2026-01-06Z'
);
SELECT is(:ROW_COUNT, 2, 'both are written, the one that stays too');
EXECUTE state_ensure(ARRAY['acme'], ARRAY['open'], ARRAY['"a"']);
SELECT results_eq(
    $$
    EXECUTE state_lock(
        ARRAY['acme', 'acme'], ARRAY['open', 'open'], ARRAY['"a"', '1']
    )
    $$,
    $$
    VALUES
        (
            'acme' COLLATE "C", 'open' COLLATE "C", '"a"' COLLATE "C",
            'k'::bytea, '{}', '2026-01-06Z'::timestamptz
        ),
        ('acme', 'open', '1', NULL, NULL, '2026-01-06Z'::timestamptz)
    $$,
    'and are as they were left'
);

-- WHERE false locks: a row that was made above and not touched since.
SELECT is(
    (SELECT xmax::text FROM meter.counter WHERE tenant = 'globex'), '0',
    'nobody has locked this row'
);
EXECUTE ensure(
    ARRAY['globex'], ARRAY['raw'], ARRAY['k']::bytea[], ARRAY['{}']
);
SELECT isnt(
    (SELECT xmax::text FROM meter.counter WHERE tenant = 'globex'), '0',
    'ensure locks a row that is there'
);

UPDATE meter.counter SET updated_at = now() + interval '1 year'
WHERE tenant = 'globex';
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
EXECUTE read('globex', 'raw', ARRAY['k']::bytea[]) \gset read_
SELECT ok(
    :'read_updated_at'::timestamptz <= clock_timestamp(),
    'no time later than now, though the row is ahead'
);
ROLLBACK;
