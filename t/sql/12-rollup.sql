-- Rolling up: marks are taken, buckets above made and locked, computed from
-- all that is below. The statements are the ones that meterd runs, of 1m from
-- 5s; the other levels are the same text.

\set take `cat sql/statements/series/series_dirty_take.sql`
\set mark `cat sql/statements/series/series_dirty_mark.sql`
\set floors `cat sql/statements/series/rollup_floors.sql`
\set lag `cat sql/statements/series/rollup_lag.sql`
\set ensure `cat sql/statements/series/series_ensure.sql`
\set recompute `cat sql/statements/series/series_recompute.sql`
\set delete `cat sql/statements/series/series_empty_delete.sql`

SELECT plan(26);

BEGIN;
SELECT meter.partition_make('series_5s', '2026-01-05') \g /dev/null
SELECT meter.partition_make('series_1m', '2026-01-05') \g /dev/null
SELECT meter.partition_make('series_5s', '2026-01-06') \g /dev/null
SELECT meter.partition_make('series_1m', '2026-01-06') \g /dev/null
SET LOCAL ROLE meter_writer;
PREPARE take AS :take
PREPARE mark AS :mark
PREPARE floors AS :floors
PREPARE lag AS :lag
PREPARE ensure AS :ensure
PREPARE recompute AS :recompute
PREPARE delete AS :delete

-- Marks.
SELECT lives_ok(
    $$
    EXECUTE mark(
        1, '{acme,acme,globex}', '{s,s,s}', '{1,1,1}', '{a,a,b}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z,2026-01-05 12:01Z}',
        '{2026-01-05 13:00Z,2026-01-05 14:00Z,2026-01-05 15:00Z}'
    )
    $$,
    'buckets are marked'
);
SELECT lives_ok(
    $$
    EXECUTE mark(
        2, '{acme}', '{s}', '{1}', '{a}', '{2026-01-05 12:00Z}',
        '{2026-01-05 12:30Z}'
    )
    $$,
    'of another level, too'
);
SELECT is(
    (SELECT count(*) FROM meter.series_dirty), 4::bigint,
    'the same bucket twice is two marks'
);
SELECT throws_ok(
    $$
    EXECUTE mark(
        5, '{acme}', '{s}', '{1}', '{a}', '{2026-01-05Z}', '{2026-01-05Z}'
    )
    $$,
    '23514', NULL, 'nothing is above 7d'
);
SELECT results_eq(
    $$ EXECUTE take(1, 2) $$,
    $$
    VALUES
        ('acme' COLLATE "C", 's' COLLATE "C", 1::bigint, 'a'::bytea,
            '2026-01-05 12:00Z'::timestamptz,
            '2026-01-05 13:00Z'::timestamptz),
        ('acme', 's', 1, 'a', '2026-01-05 12:00Z', '2026-01-05 14:00Z')
    $$,
    'the oldest ones are taken, as many as asked for'
);
SELECT results_eq(
    $$ SELECT level, tenant FROM meter.series_dirty ORDER BY level $$,
    $$ VALUES (1::smallint, 'globex' COLLATE "C"), (2::smallint, 'acme') $$,
    'all others stay'
);
SELECT is_empty($$ EXECUTE take(3, 10) $$, 'a level without marks');

-- How far behind. EXECUTE cannot stand in a FROM.
CREATE FUNCTION pg_temp.lag_now()
RETURNS TABLE (level integer, marks bigint, oldest timestamptz,
    now timestamptz)
LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY EXECUTE 'EXECUTE lag(10)';
END
$$;
SELECT results_eq(
    $$
    SELECT level, marks, oldest
    FROM pg_temp.lag_now() ORDER BY level
    $$,
    $$
    VALUES
        (1, 1::bigint, '2026-01-05 15:00Z'::timestamptz),
        (2, 1, '2026-01-05 12:30Z'), (3, 0, NULL), (4, 0, NULL)
    $$,
    'marks of each level, and since when'
);
SELECT bag_eq(
    $$ EXECUTE floors $$,
    $$
    VALUES
        ('series_5s' COLLATE "C", DATE '0001-01-01'),
        ('series_1m', '0001-01-01'), ('series_1h', '0001-01-01'),
        ('series_1d', '0001-01-01'), ('series_7d', '0001-01-01')
    $$,
    'floors of the five levels'
);

-- Made, of no samples; what is there is left as it is.
SELECT lives_ok(
    $$
    EXECUTE ensure(
        '{acme,acme}', '{s,s}', '{1,1}', '{a,b}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z}'
    )
    $$,
    'buckets are made'
);
UPDATE meter.series_1m SET count = 7 WHERE dimension_key = 'a';
SELECT lives_ok(
    $$
    EXECUTE ensure(
        '{acme,acme,acme}', '{s,s,s}', '{1,1,1}', '{a,b,c}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z,2026-01-05 12:00Z}'
    )
    $$,
    'once more, and another one'
);
SELECT results_eq(
    $$
    SELECT dimension_key, count FROM meter.series_1m ORDER BY dimension_key
    $$,
    $$ VALUES ('a'::bytea, 7::bigint), ('b', 0), ('c', 0) $$,
    'those that were there are as they were'
);

-- One bucket with the given parts: in 12:00, and some that are not in it.
INSERT INTO meter.series_5s (
    tenant, series, version, dimension_key, bucket, count, sum
)
VALUES
    ('acme', 's', 1, 'a', '2026-01-05 12:00:00Z', 1, 0.5),
    ('acme', 's', 1, 'a', '2026-01-05 12:00:30Z', 2, -1.25),
    ('acme', 's', 1, 'a', '2026-01-05 12:00:55Z', 3, 100),
    ('acme', 's', 1, 'a', '2026-01-05 11:59:55Z', 1000, 1000),
    ('acme', 's', 1, 'a', '2026-01-05 12:01:00Z', 1000, 1000),
    ('acme', 's', 1, 'a', '2026-01-06 12:00:00Z', 1000, 1000),
    ('acme', 's', 1, 'x', '2026-01-05 12:00:00Z', 1000, 1000),
    ('acme', 's', 2, 'a', '2026-01-05 12:00:00Z', 1000, 1000),
    ('acme', 't', 1, 'a', '2026-01-05 12:00:00Z', 1000, 1000),
    ('globex', 's', 1, 'a', '2026-01-05 12:00:00Z', 1000, 1000);
SELECT results_eq(
    $$
    EXECUTE recompute(
        '{acme}', '{s}', '{1}', '{a}', '{2026-01-05 12:00Z}',
        '{2026-01-05 12:01Z}', '2026-01-05 12:00Z', '2026-01-05 12:01Z'
    )
    $$,
    ARRAY[0::bigint],
    'a bucket is computed'
);
SELECT results_eq(
    $$
    SELECT count, sum, min, max, last, last_at, last_recorded_at,
        last_writer, last_seq, labels, counts
    FROM meter.series_1m WHERE dimension_key = 'a'
    $$,
    $$
    VALUES
        (6::bigint, 99.25::numeric(38, 9), NULL::numeric, NULL::numeric,
            NULL::numeric, NULL::timestamptz, NULL::timestamptz, NULL::uuid,
            NULL::bigint, NULL::text[], NULL::bigint[])
    $$,
    'a counter: of its own parts, whatever it was before'
);
SELECT is(
    (SELECT count(*) FROM meter.series_1m), 3::bigint, 'and no other bucket'
);

-- The last one of a gauge: by time, then by commit.
CREATE FUNCTION pg_temp.last_of(VARIADIC places text[])
RETURNS numeric LANGUAGE plpgsql AS $$
DECLARE
    result numeric;
BEGIN
    DELETE FROM meter.series_5s WHERE series = 'g';
    INSERT INTO meter.series_5s
    SELECT
        'acme', 'g', 1, 'g', '2026-01-05 12:00Z'::timestamptz
            + at * interval '5 s',
        1, at, at, at, at,
        '2026-01-05 12:00Z'::timestamptz + part[1]::int * interval '1 us',
        '2026-01-05 12:00Z'::timestamptz + part[2]::int * interval '1 us',
        ('00000000-0000-4000-8000-00000000000' || part[3])::uuid,
        part[4]::bigint, NULL, NULL
    FROM unnest(places) WITH ORDINALITY AS one (place, at)
    CROSS JOIN LATERAL string_to_array(place, ' ') AS part;
    EXECUTE $query$
        EXECUTE recompute(
            '{acme}', '{g}', '{1}', '{g}', '{2026-01-05 12:00Z}',
            '{2026-01-05 12:01Z}', '2026-01-05 12:00Z', '2026-01-05 12:01Z'
        )
    $query$;
    SELECT last INTO result FROM meter.series_1m WHERE series = 'g';
    RETURN result;
END
$$;
SELECT is(
    pg_temp.last_of('5 1 1 1', '7 1 1 1', '6 9 9 9'), 2.0,
    'last: the latest time'
);
SELECT is(
    pg_temp.last_of('5 1 9 9', '5 2 1 1', '5 1 9 8'), 2.0,
    'then the later commit'
);
SELECT is(
    pg_temp.last_of('5 1 2 9', '5 1 1 9', '5 1 3 1'), 3.0,
    'then the writer'
);
SELECT is(
    pg_temp.last_of('5 1 1 9', '5 1 1 10', '5 1 1 2'), 2.0,
    'then its number'
);
SELECT results_eq(
    $$
    SELECT count, sum, min, max, last_at, last_seq
    FROM meter.series_1m WHERE series = 'g'
    $$,
    $$
    VALUES
        (3::bigint, 6::numeric(38, 9), 1::numeric(38, 9), 3::numeric(38, 9),
            '2026-01-05 12:00:00.000005Z'::timestamptz, 10::bigint)
    $$,
    'and all else of a gauge'
);

-- Tallies.
INSERT INTO meter.series_5s (
    tenant, series, version, dimension_key, bucket, count, sum, labels, counts
)
VALUES
    ('acme', 'h', 1, 'h', '2026-01-05 12:00:00Z', 3, 3, '{10,5}', '{1,2}'),
    ('acme', 'h', 1, 'h', '2026-01-05 12:00:05Z', 0, 0, NULL, NULL),
    ('acme', 'h', 1, 'h', '2026-01-05 12:00:10Z', 9, 9, '{5,inf}', '{4,5}'),
    ('acme', 'h', 1, 'h', '2026-01-05 12:00:15Z', 1, 1,
        ARRAY['["Z","a"]', '["a","Z"]'], '{1,1}'),
    ('acme', 'h', 1, 'h', '2026-01-05 12:01:00Z', 1, 1, '{10}', '{1000}');
SELECT results_eq(
    $$
    EXECUTE recompute(
        '{acme,acme}', '{h,s}', '{1,1}', '{h,b}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z}',
        '{2026-01-05 12:01Z,2026-01-05 12:01Z}',
        '2026-01-05 12:00Z', '2026-01-05 12:01Z'
    )
    $$,
    ARRAY[1::bigint],
    'several at once, and one that has nothing below'
);
SELECT results_eq(
    $$ SELECT count, labels, counts FROM meter.series_1m WHERE series = 'h' $$,
    $$
    VALUES
        (13::bigint,
            ARRAY['10', '5', '["Z","a"]', '["a","Z"]', 'inf'] COLLATE "C",
            ARRAY[1, 6, 1, 1, 5]::bigint[])
    $$,
    'tallies are added up by label, bytewise in order'
);

-- What has nothing below goes.
SELECT lives_ok(
    $$
    EXECUTE delete(
        'acme', 's', 1, '{a,b}', '2026-01-05 12:00Z', '2026-01-05 12:01Z'
    )
    $$,
    'empty buckets are deleted'
);
SELECT results_eq(
    $$
    SELECT dimension_key, count FROM meter.series_1m WHERE series = 's'
    ORDER BY dimension_key
    $$,
    $$ VALUES ('a'::bytea, 6::bigint), ('c', 0) $$,
    'only those that were asked for and have no samples'
);
DELETE FROM meter.series_5s WHERE series = 's' AND dimension_key = 'a';
SELECT results_eq(
    $$
    EXECUTE recompute(
        '{acme}', '{s}', '{1}', '{a}', '{2026-01-05 12:00Z}',
        '{2026-01-05 12:01Z}', '2026-01-05 12:00Z', '2026-01-05 12:01Z'
    )
    $$,
    ARRAY[1::bigint],
    'a bucket whose parts were removed is empty'
);
SELECT is(
    (
        SELECT format('%s %s', count, sum)
        FROM meter.series_1m WHERE series = 's' AND dimension_key = 'a'
    ),
    '0 ', 'and has a count of 0 until it is deleted'
);
ROLLBACK;
