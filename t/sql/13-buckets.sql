-- Buckets of the counters API: how they are stored, who sees them, and every
-- statement that meterd runs on them. The clock is one of our own, so that a
-- bucket can be looked at in the very instant in which it expires.

\set lock `cat sql/statements/bucket_lock.sql`
\set write `cat sql/statements/bucket_write.sql`
\set insert `cat sql/statements/bucket_insert.sql`
\set read `cat sql/statements/bucket_read.sql`
\set sum `cat sql/statements/bucket_sum.sql`
\set sweep `cat sql/statements/bucket_sweep.sql`
\set ensure `cat sql/statements/bucket_lane_ensure.sql`
\set advance `cat sql/statements/bucket_lane_advance.sql`
\set known `cat sql/statements/idempotency_known.sql`
\set keep `cat sql/statements/idempotency_insert.sql`

SELECT plan(68);

-- The tables.
CREATE TEMP VIEW leaf AS
SELECT
    root.name,
    class.oid,
    class.relname,
    class.reloptions,
    class.relacl,
    class.relowner,
    class.relrowsecurity AND class.relforcerowsecurity AS is_guarded,
    pg_get_partkeydef(root.name::regclass) AS part_key
FROM (VALUES ('meter.bucket_counter'), ('meter.api_idempotency')) AS root (name)
CROSS JOIN LATERAL pg_partition_tree(root.name::regclass) AS tree
INNER JOIN pg_class AS class ON class.oid = tree.relid
WHERE tree.isleaf;

SELECT results_eq(
    $$
    SELECT name COLLATE "C", part_key COLLATE "C", count(*)
    FROM leaf GROUP BY name, part_key ORDER BY 1
    $$,
    $$
    VALUES
        ('meter.api_idempotency' COLLATE "C", 'HASH (tenant)' COLLATE "C",
            16::bigint),
        ('meter.bucket_counter', 'HASH (tenant)', 16)
    $$,
    'sixteen partitions each, by hash of the tenant'
);
SELECT results_eq(
    $$
    SELECT DISTINCT reloptions FROM leaf WHERE name = 'meter.bucket_counter'
    $$,
    $$ VALUES ('{fillfactor=75}'::text[] COLLATE "C") $$,
    'a quarter of each page of a bucket is left free'
);
SELECT is_empty(
    $$
    SELECT relname FROM leaf
    WHERE NOT is_guarded
        OR EXISTS (
            SELECT FROM aclexplode(relacl) AS acl WHERE acl.grantee <> relowner
        )
    $$,
    'every partition has row-level security, and none has a grant'
);
SELECT is_empty(
    $$
    SELECT attname FROM pg_index
    INNER JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
    WHERE indrelid IN (SELECT oid FROM leaf WHERE name ~ 'bucket_counter')
        AND attname IN ('added', 'subbed', 'expires_at')
    $$,
    'no column that writes change is indexed'
);

-- From here on everything in one transaction, with the clock in test.now.
BEGIN;
CREATE FUNCTION tap.clock_timestamp() RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT current_setting('test.now')::timestamptz $$;
SET LOCAL test.now = '2026-01-05 12:00:00Z';

-- Constraints.
CREATE FUNCTION pg_temp.put(
    tenant text, name text, seconds bigint, added bigint, subbed bigint
)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO meter.bucket_counter
    VALUES (tenant, name, seconds, '1970-01-01Z', added, subbed, NULL)
$$;
SELECT throws_ok(
    $$ SELECT pg_temp.put('', 'n', 0, 1, 0) $$, '23514', NULL, 'no tenant'
);
SELECT throws_ok(
    $$ SELECT pg_temp.put('acme', 'n', -1, 1, 0) $$, '23514', NULL,
    'a negative duration'
);
SELECT throws_ok(
    $$ SELECT pg_temp.put('acme', 'n', 0, 1, -1) $$, '23514', NULL,
    'less than nothing subtracted'
);
SELECT throws_ok(
    $$ SELECT pg_temp.put('acme', 'n', 0, 1, 2) $$, '23514', NULL,
    'a negative net value'
);
SELECT lives_ok(
    $$ SELECT pg_temp.put('acme', 'n', 0, 9223372036854775807,
        9223372036854775807) $$,
    'as much as 64 bits hold, all of it subtracted'
);
SELECT throws_ok(
    $$ SELECT pg_temp.put('acme', 'n', 0, 1, 0) $$, '23505', NULL,
    'a bucket is there once'
);
SELECT lives_ok(
    $$ SELECT pg_temp.put('acme', 'n', 60, 1, 0) $$,
    'another duration is another bucket'
);
SELECT lives_ok(
    $$ SELECT pg_temp.put('acme', 'N', 0, 1, 0) $$,
    'and so is another spelling'
);
DELETE FROM meter.bucket_counter;

SET LOCAL ROLE meter_writer;
PREPARE lock AS :lock
PREPARE write AS :write
PREPARE insert AS :insert
PREPARE sweep AS :sweep
PREPARE ensure AS :ensure
PREPARE advance AS :advance
PREPARE known AS :known
PREPARE keep AS :keep

-- Made, found and locked, written.
SELECT is_empty(
    $$
    EXECUTE lock('{acme,globex}', '{a,a}', '{60,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z}')
    $$,
    'lock: no row for what is not there'
);
SELECT lives_ok(
    $$
    EXECUTE insert(
        '{acme,acme,acme,globex}', '{a,a,b,a}', '{60,60,0,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:01Z,1970-01-01Z,2026-01-05 12:00Z}',
        '{1,2,3,4}', '{0,1,3,0}', '{NULL,2026-01-05 12:00:30Z,NULL,NULL}'
    )
    $$,
    'insert: four buckets'
);
SELECT results_eq(
    $$
    EXECUTE lock(
        '{acme,acme,acme,acme,globex}', '{a,a,a,b,a}', '{60,60,61,0,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:01Z,2026-01-05 12:00Z,
            1970-01-01Z,2026-01-05 12:00Z}'
    )
    $$,
    $$
    VALUES
        (1, 1::bigint, 0::bigint, NULL::timestamptz),
        (2, 2, 1, '2026-01-05 12:00:30Z'),
        (4, 3, 3, NULL),
        (5, 4, 0, NULL)
    $$,
    'lock: what is there, with its place among the keys'
);
SELECT throws_ok(
    $$
    EXECUTE insert(
        '{acme,acme}', '{0,a}', '{60,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:00Z}', '{1,1}', '{0,0}',
        '{NULL,NULL}'
    )
    $$,
    '23505', NULL, 'insert: one that is there makes all of them fail'
);
SELECT lives_ok(
    $$
    EXECUTE write(
        '{acme,acme}', '{a,b}', '{60,0}', '{2026-01-05 12:00Z,1970-01-01Z}',
        '{10,3}', '{5,3}', '{2026-01-06Z,NULL}'
    )
    $$,
    'write: two buckets'
);
SELECT results_eq(
    $$
    SELECT tenant, name, time_start, added, subbed, expires_at
    FROM meter.bucket_counter ORDER BY tenant, name, time_start
    $$,
    $$
    VALUES
        ('acme' COLLATE "C", 'a' COLLATE "C",
            '2026-01-05 12:00Z'::timestamptz, 10::bigint, 5::bigint,
            '2026-01-06Z'::timestamptz),
        ('acme', 'a', '2026-01-05 12:01Z', 2, 1, '2026-01-05 12:00:30Z'),
        ('acme', 'b', '1970-01-01Z', 3, 3, NULL),
        ('globex', 'a', '2026-01-05 12:00Z', 4, 0, NULL)
    $$,
    'they are set to what was given, and no other changes'
);
SELECT lives_ok(
    $$
    EXECUTE write('{acme}', '{a}', '{60}', '{2026-01-05 12:00Z}', '{11}',
        '{5}', '{NULL}')
    $$,
    'write: an end is taken away as said'
);
SELECT is(
    (
        SELECT format('%s %s', added, expires_at)
        FROM meter.bucket_counter
        WHERE name = 'a' AND tenant = 'acme'
            AND time_start = '2026-01-05 12:00Z'
    ),
    '11 ', 'as it is decided, not as it was'
);
SELECT throws_ok(
    $$
    EXECUTE write('{acme}', '{a}', '{60}', '{2026-01-05 12:00Z}', '{1}',
        '{2}', '{NULL}')
    $$,
    '23514', NULL, 'write: never a negative one, whoever asks'
);

-- Keys in every partition: answered, and so locked, in the order they came.
CREATE FUNCTION pg_temp.tenants() RETURNS text[] LANGUAGE sql AS $$
    SELECT array_agg('t' || to_char(i, 'FM000') ORDER BY i)
    FROM generate_series(1, 200) AS i
$$;
EXECUTE insert(
    pg_temp.tenants(),
    array_fill('n'::text, '{200}'), array_fill(0::bigint, '{200}'),
    array_fill('1970-01-01Z'::timestamptz, '{200}'),
    array_fill(1::bigint, '{200}'), array_fill(0::bigint, '{200}'),
    array_fill(NULL::timestamptz, '{200}')
);
SELECT is(
    (
        SELECT count(DISTINCT tableoid)
        FROM meter.bucket_counter WHERE name = 'n'
    ),
    16::bigint, 'two hundred tenants are in all partitions'
);
CREATE FUNCTION pg_temp.locked_places() RETURNS SETOF integer
LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN EXECUTE $query$
        EXECUTE lock(
            pg_temp.tenants(),
            array_fill('n'::text, '{200}'), array_fill(0::bigint, '{200}'),
            array_fill('1970-01-01Z'::timestamptz, '{200}')
        )
    $query$ LOOP
        RETURN NEXT one.place;
    END LOOP;
END
$$;
SET LOCAL plan_cache_mode = force_custom_plan;
SELECT results_eq(
    'SELECT pg_temp.locked_places()', 'SELECT generate_series(1, 200)',
    'lock: in the order of the keys'
);
SET LOCAL plan_cache_mode = force_generic_plan;
SELECT results_eq(
    'SELECT pg_temp.locked_places()', 'SELECT generate_series(1, 200)',
    'lock: likewise with a plan for any keys'
);
SET LOCAL plan_cache_mode = auto;
DELETE FROM meter.bucket_counter;

-- The number of a transaction, and its clock.
\set w '''00000000-0000-4000-8000-00000000000a'''
\set v '''00000000-0000-4000-8000-00000000000b'''
SELECT throws_ok(
    format('EXECUTE ensure(%L, 0)', :w), '23503', NULL,
    'lanes are of writers'
);
INSERT INTO meter.writer (writer, node, epoch, started_at)
VALUES (:w, 'n', 1, '2026-01-05Z'), (:v, 'm', 1, '2026-01-05Z');
SELECT is_empty(
    format('EXECUTE advance(%L, 0)', :w), 'advance: none before it is there'
);
SELECT results_eq(
    format('EXECUTE ensure(%L, 0)', :w), ARRAY[0::bigint], 'ensure: from 0 on'
);
EXECUTE ensure(:w, 1) \g /dev/null
EXECUTE ensure(:v, 0) \g /dev/null
SELECT results_eq(
    format('EXECUTE advance(%L, 0)', :w),
    $$ VALUES (1::bigint, '2026-01-05 12:00Z'::timestamptz) $$,
    'advance: the next number, and the time'
);
SET LOCAL test.now = '2026-01-05 12:00:01Z';
SELECT results_eq(
    format('EXECUTE advance(%L, 0)', :w),
    $$ VALUES (2::bigint, '2026-01-05 12:00:01Z'::timestamptz) $$,
    'and again: the time is that of the statement'
);
SELECT results_eq(
    format('EXECUTE ensure(%L, 0)', :w), ARRAY[2::bigint],
    'ensure: what it has come to'
);
SELECT results_eq(
    'SELECT batch FROM meter.bucket_lane ORDER BY writer, lane',
    ARRAY[2, 0, 0]::bigint[], 'each lane and writer by itself'
);
SET LOCAL test.now = '2026-01-05 12:00:00Z';

-- Answers that are kept.
SELECT lives_ok(
    $$
    EXECUTE keep(
        '{acme,acme,globex}', '{A,a,a}', '{x,y,z}', '{0,1,2}',
        '{7,NULL,NULL}', '{3,NULL,NULL}', '2026-01-05 12:00Z'
    )
    $$,
    'keep: of three kinds'
);
SELECT results_eq(
    $$ EXECUTE known('{acme,acme,acme,globex,globex}', '{A,B,a,A,a}') $$,
    $$
    VALUES
        (1, 'x'::bytea, 0, 7::bigint, 3::bigint),
        (3, 'y', 1, NULL, NULL),
        (5, 'z', 2, NULL, NULL)
    $$,
    'known: those that are, by tenant and to the letter'
);
SELECT throws_ok(
    $$
    EXECUTE keep('{acme,acme}', '{0,a}', '{x,y}', '{0,0}', '{1,1}',
        '{0,0}', '2026-01-05 12:00Z')
    $$,
    '23505', NULL, 'keep: a key is used once'
);
SELECT throws_ok(
    $$
    EXECUTE keep('{""}', '{a}', '{x}', '{0}', '{1}', '{0}', '2026-01-05Z')
    $$,
    '23514', NULL, 'keep: no tenant'
);
SELECT throws_ok(
    'UPDATE meter.api_idempotency SET outcome = 0', '42501', NULL,
    'an answer is never changed'
);
SELECT throws_ok(
    'DELETE FROM meter.api_idempotency', '42501', NULL, 'nor deleted'
);

-- What readers see: of their tenant, until it expires.
EXECUTE insert(
    '{acme,acme,acme,acme,acme,globex}', '{r,r,r,r,s,r}',
    '{60,60,60,0,60,60}',
    '{2026-01-05 11:59Z,2026-01-05 12:00Z,2026-01-05 12:01Z,1970-01-01Z,
        2026-01-05 12:00Z,2026-01-05 12:00Z}',
    '{100,10,1,7,5000,70000}', '{50,2,0,7,0,0}',
    '{NULL,2026-01-05 12:00:30Z,NULL,NULL,NULL,NULL}'
);
SET LOCAL ROLE meter_reader;
PREPARE read AS :read
PREPARE sum AS :sum
SELECT is_empty(
    'SELECT FROM meter.bucket_counter', 'reader: nothing without a tenant'
);
SELECT meter.set_tenant('acme') \g /dev/null
SELECT results_eq(
    'SELECT DISTINCT tenant FROM meter.bucket_counter',
    $$ VALUES ('acme' COLLATE "C") $$, 'reader: only its tenant'
);
SELECT is_empty(
    $$ EXECUTE read('globex', 'r', 60, '2026-01-05 12:00Z') $$,
    'read: nothing of another one'
);
SELECT results_eq(
    $$ EXECUTE sum('globex', 'r', 60, '2026-01-05Z', '2026-01-06Z') $$,
    $$ VALUES ('0', '0', '0') $$, 'sum: nor that'
);
SELECT throws_ok(
    'SELECT FROM meter.api_idempotency', '42501', NULL,
    'answers are not for readers'
);
SELECT throws_ok(
    'SELECT FROM meter.bucket_lane', '42501', NULL, 'nor are lanes'
);
SELECT throws_ok(
    'SELECT FROM meter.bucket_counter_00', '42501', NULL, 'nor partitions'
);
SELECT throws_ok(
    $$ SELECT FROM meter.bucket_counter FOR UPDATE $$, '42501', NULL,
    'readers lock nothing'
);
SELECT results_eq(
    $$ EXECUTE read('acme', 'r', 60, '2026-01-05 12:01Z') $$,
    $$ VALUES (1::bigint, 0::bigint) $$, 'read: a bucket'
);
SELECT results_eq(
    $$ EXECUTE read('acme', 'r', 0, '1970-01-01Z') $$,
    $$ VALUES (7::bigint, 7::bigint) $$, 'read: one of 0 is there'
);
SELECT is_empty(
    $$ EXECUTE read('acme', 'r', 60, '2026-01-05 12:02Z') $$, 'read: none'
);
SELECT is_empty(
    $$ EXECUTE read('acme', 'R', 60, '2026-01-05 12:01Z') $$,
    'read: names to the letter'
);
CREATE FUNCTION pg_temp.at(moment text, what text) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    found text;
BEGIN
    PERFORM set_config('test.now', moment, true);
    EXECUTE CASE what
        WHEN 'read' THEN
            $query$ EXECUTE read('acme', 'r', 60, '2026-01-05 12:00Z') $query$
        ELSE $query$
            EXECUTE sum('acme', 'r', 60, '2026-01-05 11:59Z',
                '2026-01-05 12:01Z')
            $query$
    END INTO found;
    RETURN found;
END
$$;
SELECT is(
    pg_temp.at('2026-01-05 12:00:29.999999Z', 'read'), '10',
    'read: until a microsecond before it expires'
);
SELECT is(
    pg_temp.at('2026-01-05 12:00:30Z', 'read'), NULL,
    'read: not from the very instant on'
);
SELECT is(
    pg_temp.at('2026-01-05 12:00:30.000001Z', 'read'), NULL,
    'read: nor afterwards'
);
SELECT is(
    pg_temp.at('2026-01-05 12:00:29.999999Z', 'sum'), '59',
    'sum: likewise before'
);
SELECT is(
    pg_temp.at('2026-01-05 12:00:30Z', 'sum'), '51', 'sum: in that instant'
);
SET LOCAL test.now = '2026-01-05 12:00Z';
SELECT results_eq(
    $$
    EXECUTE sum('acme', 'r', 60, '2026-01-05 11:59Z', '2026-01-05 12:00Z')
    $$,
    $$ VALUES ('58', '110', '52') $$, 'sum: both ends are within'
);
SELECT results_eq(
    $$
    EXECUTE sum('acme', 'r', 60, '2026-01-05 12:01Z', '2026-01-05 12:01Z')
    $$,
    $$ VALUES ('1', '1', '0') $$, 'sum: of one'
);
SELECT results_eq(
    $$ EXECUTE sum('acme', 'r', 60, '2026-01-04Z', '2026-01-05 11:58Z') $$,
    $$ VALUES ('0', '0', '0') $$, 'sum: of none'
);
SET LOCAL ROLE meter_writer;
EXECUTE insert(
    '{acme,acme,acme}', '{big,big,big}', '{60,60,60}',
    '{2026-01-05 11:59Z,2026-01-05 12:00Z,2026-01-05 12:01Z}',
    '{9223372036854775807,9223372036854775807,9223372036854775807}',
    '{9223372036854775807,1,0}', '{NULL,NULL,NULL}'
);
SET LOCAL ROLE meter_reader;
SELECT results_eq(
    $$ EXECUTE sum('acme', 'big', 60, '2026-01-05Z', '2026-01-06Z') $$,
    $$
    VALUES ('18446744073709551613', '27670116110564327421',
        '9223372036854775808')
    $$,
    'sum: beyond 64 bits'
);

-- Swept: only what has expired, in some pages, no more than asked for.
SET LOCAL ROLE meter_writer;
DELETE FROM meter.bucket_counter;
EXECUTE insert(
    '{acme,acme,acme,acme}', '{at,before,never,past}', '{0,0,0,0}',
    array_fill('1970-01-01Z'::timestamptz, '{4}'), '{1,1,1,1}', '{0,0,0,0}',
    '{2026-01-05 11:59Z,2026-01-05 11:58:59.999999Z,NULL,2026-01-05 12:01Z}'
);
SELECT results_eq(
    $$ EXECUTE sweep(0, 1000, 60, 100) $$,
    $$ VALUES (1::bigint, 1::bigint) $$,
    'sweep: one had expired longer than a minute ago; one page'
);
SELECT results_eq(
    'SELECT name FROM meter.bucket_counter ORDER BY name',
    $$ VALUES ('at' COLLATE "C"), ('never'), ('past') $$,
    'all others stay'
);
DELETE FROM meter.bucket_counter;
CREATE FUNCTION pg_temp.names() RETURNS text[] LANGUAGE sql AS $$
    SELECT array_agg(rpad(to_char(i, 'FM000'), 255, 'x') ORDER BY i)
    FROM generate_series(1, 150) AS i
$$;
CREATE FUNCTION pg_temp.ends() RETURNS timestamptz[] LANGUAGE sql AS $$
    SELECT array_agg(
        CASE WHEN i % 5 = 0 THEN '2026-01-06Z'
            ELSE '2026-01-01Z' END::timestamptz ORDER BY i)
    FROM generate_series(1, 150) AS i
$$;
EXECUTE insert(
    array_fill('acme'::text, '{150}'), pg_temp.names(),
    array_fill(0::bigint, '{150}'),
    array_fill('1970-01-01Z'::timestamptz, '{150}'),
    array_fill(1::bigint, '{150}'), array_fill(0::bigint, '{150}'),
    pg_temp.ends()
);
CREATE TEMP TABLE laid AS
SELECT (ctid::text::point)[0]::int AS page, name, expires_at < '2026-01-05Z'
    AS is_expired
FROM meter.bucket_counter;
SELECT cmp_ok(
    (SELECT max(page) - min(page) FROM laid), '>=', 4,
    'a hundred and fifty are on several pages'
);
CREATE FUNCTION pg_temp.sweep(low bigint, high bigint, most bigint)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    EXECUTE format('EXECUTE sweep(%s, %s, 0, %s)', low, high, most) INTO one;
    RETURN one.deleted;
END
$$;
SELECT is(
    pg_temp.sweep((SELECT min(page) + 1 FROM laid),
        (SELECT min(page) + 3 FROM laid), 1000),
    (
        SELECT count(*) FROM laid
        WHERE is_expired AND page - (SELECT min(page) FROM laid) IN (1, 2)
    ),
    'sweep: those of two pages'
);
SELECT is_empty(
    $$
    SELECT laid.name, laid.page FROM laid
    LEFT JOIN meter.bucket_counter AS held USING (name)
    WHERE (held.name IS NULL) <> (
        laid.is_expired AND laid.page - (SELECT min(page) FROM laid) IN (1, 2)
    )
    $$,
    'and just those'
);
SELECT is(pg_temp.sweep(0, 1000, 7), 7::bigint, 'sweep: as many as asked for');
SELECT is(
    pg_temp.sweep(0, 1000, 1000) + 7 + (
        SELECT count(*) FROM laid
        WHERE is_expired AND page - (SELECT min(page) FROM laid) IN (1, 2)
    ),
    120::bigint, 'sweep: all that are left'
);
SELECT is(pg_temp.sweep(0, 1000, 1000), 0::bigint, 'sweep: nothing more');
SELECT is(
    (SELECT count(*) FROM meter.bucket_counter), 30::bigint,
    'what has not expired is still there'
);
ROLLBACK;

-- A connection that has served a tenant before.
BEGIN;
SET LOCAL ROLE meter_reader;
SELECT meter.set_tenant('acme') \g /dev/null
COMMIT;
BEGIN;
INSERT INTO meter.bucket_counter
VALUES ('acme', 'n', 0, '1970-01-01Z', 1, 0, NULL);
SET LOCAL ROLE meter_reader;
SELECT is_empty(
    'SELECT FROM meter.bucket_counter',
    'reader: nothing on a connection that served a tenant before'
);
ROLLBACK;
