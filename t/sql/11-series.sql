-- Series: what a flush does to the tables. The statements are the ones that
-- meterd runs.

\set upsert `cat sql/statements/series/series_upsert.sql`
\set key `cat sql/statements/series/series_key_ensure.sql`
\set advance `cat sql/statements/series/writer_flush_advance.sql`
\set read `cat sql/statements/series/writer_flush_read.sql`
\set mark `cat sql/statements/series/series_dirty_mark.sql`
\set floors `cat sql/statements/series/rollup_floors.sql`
\set list `cat sql/statements/series/orphan_list.sql`
\set lock `cat sql/statements/series/orphan_lock.sql`
\set claim `cat sql/statements/series/orphan_claim.sql`
\set retire `cat sql/statements/series/orphan_retire.sql`

SELECT plan(45);

-- The functions that tallies are added with.
SELECT is(
    meter.tally_labels(NULL, ARRAY['a']), ARRAY['a'], 'no tally and one'
);
SELECT is(
    meter.tally_labels(ARRAY['10', '5'], ARRAY['5', 'inf']),
    ARRAY['10', '5', 'inf'], 'labels of both, bytewise'
);
SELECT is(
    meter.tally_counts(
        ARRAY['10', '5'], ARRAY[1, 2]::bigint[],
        ARRAY['5', 'inf'], ARRAY[3, 4]::bigint[]
    ),
    ARRAY[1, 5, 4]::bigint[], 'counts of the same label add up'
);
SELECT is(
    meter.tally_counts(
        ARRAY['B', 'a'], ARRAY[1, 2]::bigint[],
        ARRAY['a'], ARRAY[3]::bigint[]
    ),
    ARRAY[1, 5]::bigint[], 'whatever the collation of the database'
);
SELECT is(
    meter.tally_counts(ARRAY['a'], ARRAY[7]::bigint[], NULL, NULL),
    ARRAY[7]::bigint[], 'one tally and none'
);

-- Buckets.
SELECT is(
    meter.series_bucket(0::smallint, '1969-12-31 23:59:59.999999Z'),
    '1969-12-31 23:59:55Z'::timestamptz, '5s before 1970'
);
SELECT is(
    meter.series_bucket(4::smallint, '1970-01-04 23:59:59Z'),
    '1969-12-29Z'::timestamptz, '7d begin on Mondays'
);

SELECT ok(meter.partition_make('series_5s', '2026-03-01'), 'a day of 5s');

BEGIN;
SET LOCAL ROLE meter_writer;
PREPARE upsert AS :upsert
PREPARE key AS :key
PREPARE advance AS :advance
PREPARE read AS :read
PREPARE mark AS :mark
PREPARE floors AS :floors
PREPARE list AS :list
PREPARE lock AS :lock
PREPARE claim AS :claim
PREPARE retire AS :retire

-- One row of series g, dimension set x, 10:00:05.
CREATE FUNCTION pg_temp.add(
    count bigint, sum numeric, value numeric, at timestamptz,
    recorded timestamptz, writer uuid, seq bigint, labels text, counts text
)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'EXECUTE upsert(ARRAY[''acme''], ARRAY[''g''], ARRAY[1],'
            ' ARRAY[''x''::bytea],'
            ' ARRAY[''2026-03-01 10:00:05Z''::timestamptz],'
            ' ARRAY[%L]::bigint[], ARRAY[%L]::numeric[],'
            ' ARRAY[%L]::numeric[], ARRAY[%L]::numeric[],'
            ' ARRAY[%L]::numeric[], ARRAY[%L]::timestamptz[],'
            ' ARRAY[%L]::timestamptz[], ARRAY[%L]::uuid[],'
            ' ARRAY[%L]::bigint[], ARRAY[%L]::text[], ARRAY[%L]::text[])',
        count, sum, value, value, value, at, recorded, writer, seq, labels,
        counts
    );
END
$$;

CREATE FUNCTION pg_temp.row() RETURNS text LANGUAGE sql AS $$
    SELECT concat_ws(
        ' ', count, sum::float8, min::float8, max::float8, last::float8,
        last_seq, labels, counts
    )
    FROM meter.series_5s
    WHERE tenant = 'acme' AND series = 'g'
$$;

\set wa '''aaaaaaaa-0000-0000-0000-000000000000'''
\set wb '''bbbbbbbb-0000-0000-0000-000000000000'''
\set t5 '''2026-03-01 10:00:05Z'''
\set t6 '''2026-03-01 10:00:06Z'''

SELECT pg_temp.add(2, 10, 5, :t5, :t5, :wa, 7, NULL, NULL);
SELECT is(pg_temp.row(), '2 10 5 5 5 7', 'the first flush is the row');
SELECT pg_temp.add(1, 3, 3, :t5, :t5, :wa, 6, NULL, NULL);
SELECT is(pg_temp.row(), '3 13 3 5 5 7', 'a second one adds; last is later');
SELECT pg_temp.add(1, 9, 9, :t5, :t5, :wb, 1, NULL, NULL);
SELECT is(
    pg_temp.row(), '4 22 3 9 9 1', 'a tie in time: the later writer is last'
);
SELECT pg_temp.add(1, 1, 1, :t5, :t6, :wa, 8, NULL, NULL);
SELECT is(pg_temp.row(), '5 23 1 9 1 8', 'before that: the later commit');
SELECT pg_temp.add(1, 2, 2, :t6, :t5, :wa, 2, NULL, NULL);
SELECT is(pg_temp.row(), '6 25 1 9 2 2', 'before all: the later event');
SELECT pg_temp.add(1, 1, NULL, NULL, NULL, NULL, NULL, '{"5","inf"}', '{1,2}');
SELECT is(
    pg_temp.row(), '7 26 1 9 2 2 {5,inf} {1,2}', 'a tally where was none'
);
SELECT pg_temp.add(1, 1, NULL, NULL, NULL, NULL, NULL, '{"10","5"}', '{4,1}');
SELECT is(
    pg_temp.row(), '8 27 1 9 2 2 {10,5,inf} {4,2,2}', 'tallies add up'
);
SELECT pg_temp.add(1, 1, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT is(
    pg_temp.row(), '9 28 1 9 2 2 {10,5,inf} {4,2,2}', 'none changes none'
);
SELECT is(
    (SELECT count(*) FROM meter.series_5s), 1::bigint, 'one row it is'
);

-- Keys of the dictionary, once each.
SELECT lives_ok(
    $$ EXECUTE key(ARRAY['acme', 'acme'], ARRAY['g', 'g'], ARRAY[1, 1],
        ARRAY['x', 'y']::bytea[], ARRAY['{"a":1}', '{"a":2}']) $$,
    'dimension sets'
);
SELECT lives_ok(
    $$ EXECUTE key(ARRAY['acme', 'acme'], ARRAY['g', 'g'], ARRAY[1, 1],
        ARRAY['y', 'z']::bytea[], ARRAY['other', '{"a":3}']) $$,
    'one of them again'
);
SELECT results_eq(
    $$ SELECT dimensions FROM meter.series_key ORDER BY dimension_key $$,
    ARRAY['{"a":1}', '{"a":2}', '{"a":3}'], 'once each, as it was first'
);

-- Marks: each is a row of its own.
EXECUTE mark(1, ARRAY['acme'], ARRAY['g'], ARRAY[1], ARRAY['x'::bytea],
    ARRAY[:t5::timestamptz], ARRAY[:t5::timestamptz]);
EXECUTE mark(1, ARRAY['acme'], ARRAY['g'], ARRAY[1], ARRAY['x'::bytea],
    ARRAY[:t5::timestamptz], ARRAY[:t6::timestamptz]);
SELECT is(
    (SELECT count(*) FROM meter.series_dirty WHERE level = 1), 2::bigint,
    'a mark that is there does not keep the next one away'
);
SELECT set_eq(
    'EXECUTE floors',
    $$ VALUES ('series_1d', DATE '0001-01-01'),
        ('series_1h', '0001-01-01'), ('series_1m', '0001-01-01'),
        ('series_5s', '0001-01-01'), ('series_7d', '0001-01-01') $$,
    'floors of the levels, nothing dropped'
);

-- The cut.
INSERT INTO meter.writer (writer, node, epoch, started_at)
VALUES (:wa, 'a', 3, now()), (:wb, 'b', 1, now());
INSERT INTO meter.writer_seq (writer, last, batch, heartbeat_at, stamped_at)
VALUES
    (:wa, 10, 1, now() - interval '10 min', now() + interval '1 year'),
    (:wb, 5, 1, now(), now());
INSERT INTO meter.writer_flush (writer, upto) VALUES (:wa, 0), (:wb, 5);

SELECT results_eq(
    format('EXECUTE advance(%L, 0, 4, %L, %L)', :wa, :t6, :t5),
    ARRAY[:t5::timestamptz],
    'a cut before the end: flushed till the clock of its last row'
);
SELECT results_eq(
    format('EXECUTE read(%L)', :wa),
    format('VALUES (4::bigint, %L::timestamptz, %L::timestamptz)', :t6, :t5),
    'and its place in the order is known'
);
SELECT is_empty(
    format('EXECUTE advance(%L, 0, 4, %L, %L)', :wa, :t6, :t5),
    'the same once more'
);
SELECT is_empty(
    format('EXECUTE advance(%L, 3, 6, %L, %L)', :wa, :t6, :t5),
    'from elsewhere'
);
SELECT is_empty(
    format('EXECUTE advance(%L, 4, 11, %L, %L)', :wa, :t6, :t5),
    'a ledger row that the database does not have'
);
SELECT isnt_empty(
    format('EXECUTE advance(%L, 4, 9, NULL, NULL)', :wa), 'time not known'
);
SELECT results_eq(
    format('EXECUTE read(%L)', :wa),
    format('VALUES (9::bigint, %L::timestamptz, %L::timestamptz)', :t6, :t5),
    'then it stays'
);
SELECT isnt_empty(
    format('EXECUTE advance(%L, 9, 10, %L, %L)', :wa, :t6, :t6), 'the end'
);
SELECT ok(
    (
        SELECT flushed_at BETWEEN now() AND clock_timestamp()
        FROM meter.writer_flush WHERE writer = :wa
    ),
    'then all that is committed now is flushed'
);
SELECT is(
    (SELECT recorded_at FROM meter.writer_flush WHERE writer = :wa),
    (SELECT stamped_at FROM meter.writer_seq WHERE writer = :wa),
    'and what comes is later in the order than the writer is'
);
SELECT isnt_empty(
    format('EXECUTE advance(%L, 10, 10, NULL, NULL)', :wa),
    'nothing new: time moves'
);
UPDATE meter.writer_flush
SET upto = 4, flushed_at = now() + interval '1 year' WHERE writer = :wa;
SELECT results_eq(
    format('EXECUTE advance(%L, 4, 9, %L, %L)', :wa, :t6, :t6),
    ARRAY[:t6::timestamptz], 'a time that a clock ahead has left is given up'
);
UPDATE meter.writer_flush SET upto = 10 WHERE writer = :wa;

-- Writers that are gone.
SELECT is_empty(
    format('EXECUTE list(%L, 60000000)', :wb), 'nothing is left of the other'
);
UPDATE meter.writer_flush SET upto = 8 WHERE writer = :wa;
SELECT results_eq(
    format('EXECUTE list(%L, 60000000)', :wb),
    format('SELECT %L::uuid, now() - interval ''10 min''', :wa),
    'a tail and no heartbeat'
);
SELECT is_empty(
    format('EXECUTE list(%L, 3600000000)', :wb), 'not long enough'
);
SELECT is_empty(
    format('EXECUTE list(%L, 60000000)', :wa), 'never the one that asks'
);
UPDATE meter.writer_seq
SET heartbeat_at = now() + interval '1 year' WHERE writer = :wa;
SELECT isnt_empty(
    format('EXECUTE list(%L, 60000000)', :wb),
    'a heartbeat of a clock that ran ahead is none'
);
UPDATE meter.writer_seq
SET heartbeat_at = now() + interval '30 s' WHERE writer = :wa;
SELECT is_empty(
    format('EXECUTE list(%L, 60000000)', :wb), 'a little ahead: it may live'
);
UPDATE meter.writer_seq
SET heartbeat_at = now() - interval '10 min' WHERE writer = :wa;
SELECT results_eq(
    format('EXECUTE lock(%L)', :wa), ARRAY[3::bigint], 'its row is free'
);
SELECT is_empty(
    format('EXECUTE claim(%L, now())', :wa), 'its heart beats'
);
SELECT results_eq(
    format('EXECUTE claim(%L, now() - interval ''10 min'')', :wa),
    format(
        'SELECT 4::bigint, 10::bigint, 8::bigint, recorded_at, flushed_at'
            ' FROM meter.writer_flush WHERE writer = %L', :wa
    ),
    'a claim says where to begin'
);
SELECT is(
    (SELECT epoch FROM meter.writer WHERE writer = :wa), 4::bigint,
    'it is fenced'
);
EXECUTE retire(:wa);
SELECT is_empty(
    format('EXECUTE lock(%L)', :wa), 'one that is retired is left'
);
ROLLBACK;
