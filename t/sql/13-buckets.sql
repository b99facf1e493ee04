-- Buckets of the counters API: how they are stored, who sees them, and every
-- statement that writes or reads them. The clock is one of our own, so that a
-- bucket can be looked at in the very instant in which it expires.

\set lock `cat sql/statements/buckets/bucket_lock.sql`
\set held `cat sql/statements/buckets/bucket_held.sql`
\set write `cat sql/statements/buckets/bucket_write.sql`
\set delete `cat sql/statements/buckets/bucket_delete.sql`
\set add `cat sql/statements/buckets/bucket_add.sql`
\set read `cat sql/statements/buckets/bucket_read.sql`
\set sum `cat sql/statements/buckets/bucket_sum.sql`
\set ensure `cat sql/statements/buckets/bucket_lane_ensure.sql`
\set advance `cat sql/statements/buckets/bucket_lane_advance.sql`
\set known `cat sql/statements/buckets/idempotency_known.sql`
\set keep `cat sql/statements/buckets/idempotency_insert.sql`

SELECT plan(64);

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
CREATE FUNCTION tap.statement_timestamp() RETURNS timestamptz
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
PREPARE held AS :held
PREPARE write AS :write
PREPARE delete AS :delete
PREPARE add AS :add
PREPARE insert (
    text[], text[], bigint[], timestamptz[], bigint[], bigint[], timestamptz[]
) AS
INSERT INTO meter.bucket_counter
SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7);
PREPARE ensure AS :ensure
PREPARE advance AS :advance
PREPARE known AS :known
PREPARE keep AS :keep

-- Made, found and locked, written.
EXECUTE insert(
    '{acme,acme,acme,globex}', '{a,a,b,a}', '{60,60,0,60}',
    '{2026-01-05 12:00Z,2026-01-05 12:01Z,1970-01-01Z,2026-01-05 12:00Z}',
    '{1,2,3,4}', '{0,1,3,0}', '{NULL,2026-01-05 12:00:30Z,NULL,NULL}'
);
CREATE FUNCTION pg_temp.stamps() RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(format('%s%s%s', tableoid, ctid, xmin), ' '
        ORDER BY tenant, name, duration_seconds, time_start)
    FROM meter.bucket_counter WHERE duration_seconds <> 61
$$;
CREATE TEMP TABLE stamp AS SELECT pg_temp.stamps() AS before;
SELECT lives_ok(
    $$
    EXECUTE lock(
        '{acme,acme,acme,acme,globex}', '{a,a,a,b,a}', '{60,60,61,0,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:01Z,2026-01-05 12:00Z,
            1970-01-01Z,2026-01-05 12:00Z}'
    )
    $$,
    'lock: of four that are there and one that is not'
);
SELECT is(
    pg_temp.stamps(), (SELECT before FROM stamp),
    'lock: what is there is not written'
);
SELECT results_eq(
    $$
    EXECUTE held(
        '{acme,acme,acme,acme,globex}', '{a,a,a,b,a}', '{60,60,61,0,60}',
        '{2026-01-05 12:00Z,2026-01-05 12:01Z,2026-01-05 12:00Z,
            1970-01-01Z,2026-01-05 12:00Z}'
    )
    $$,
    $$
    VALUES
        (1, 1::bigint, 0::bigint, NULL::timestamptz),
        (2, 2, 1, '2026-01-05 12:00:30Z'),
        (3, 0, 0, '1970-01-01Z'),
        (4, 3, 3, NULL),
        (5, 4, 0, NULL)
    $$,
    'held: with its place among the keys; what was made has expired'
);
SELECT lives_ok(
    $$ EXECUTE delete('{acme}', '{a}', '{61}', '{2026-01-05 12:00Z}') $$,
    'delete: what nothing came into'
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

-- Added to, in every partition: answered, and so locked, in the order given.
CREATE FUNCTION pg_temp.tenants() RETURNS text[] LANGUAGE sql AS $$
    SELECT array_agg('t' || to_char(i, 'FM000') ORDER BY i)
    FROM generate_series(1, 200) AS i
$$;
CREATE FUNCTION pg_temp.amounts() RETURNS bigint[] LANGUAGE sql AS $$
    SELECT array_agg(i::bigint ORDER BY i) FROM generate_series(1, 200) AS i
$$;
CREATE FUNCTION pg_temp.added() RETURNS SETOF bigint LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    FOR one IN EXECUTE $query$
        EXECUTE add(
            pg_temp.tenants(),
            array_fill('n'::text, '{200}'), array_fill(0::bigint, '{200}'),
            array_fill('1970-01-01Z'::timestamptz, '{200}'),
            pg_temp.amounts()
        )
    $query$ LOOP
        RETURN NEXT one.added;
    END LOOP;
END
$$;
SELECT results_eq(
    'SELECT pg_temp.added()', 'SELECT generate_series(1, 200)::bigint',
    'add: what is not there is made'
);
SELECT is(
    (
        SELECT count(DISTINCT tableoid)
        FROM meter.bucket_counter WHERE name = 'n'
    ),
    16::bigint, 'two hundred tenants are in all partitions'
);
SET LOCAL plan_cache_mode = force_custom_plan;
SELECT results_eq(
    'SELECT pg_temp.added()', 'SELECT 2 * generate_series(1, 200)::bigint',
    'add: one row for each, in the order of the keys'
);
SET LOCAL plan_cache_mode = force_generic_plan;
SELECT results_eq(
    'SELECT pg_temp.added()', 'SELECT 3 * generate_series(1, 200)::bigint',
    'add: likewise with a plan for any keys'
);
SET LOCAL plan_cache_mode = auto;
DELETE FROM meter.bucket_counter;

-- Added to: what has expired starts over, and has no end any more.
CREATE FUNCTION pg_temp.add_at(moment text, amount bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    one record;
BEGIN
    PERFORM set_config('test.now', moment, true);
    DELETE FROM meter.bucket_counter;
    EXECUTE $query$
        EXECUTE insert('{acme}', '{n}', '{0}', '{1970-01-01Z}', '{7}', '{2}',
            '{2026-01-05 12:00:30Z}')
        $query$;
    EXECUTE format(
        $query$ EXECUTE add('{acme}', '{n}', '{0}', '{1970-01-01Z}', '{%s}')
        $query$, amount
    ) INTO one;
    RETURN (
        SELECT format('%s %s %s', one.added, one.subbed, expires_at)
        FROM meter.bucket_counter WHERE name = 'n'
    );
END
$$;
SELECT is(
    pg_temp.add_at('2026-01-05 12:00:29.999999Z', 1),
    '8 2 2026-01-05 12:00:30+00', 'add: a microsecond before it expires'
);
SELECT is(
    pg_temp.add_at('2026-01-05 12:00:30Z', 1), '1 0 ',
    'add: from the very instant on'
);
SELECT is(
    pg_temp.add_at('2026-01-05 12:00:31Z', 9223372036854775807),
    '9223372036854775807 0 ', 'add: and all of 64 bits'
);
SELECT throws_ok(
    $$ SELECT pg_temp.add_at('2026-01-05 12:00:29Z', 9223372036854775801) $$,
    '22003', NULL, 'add: not beyond them'
);
SET LOCAL test.now = '2026-01-05 12:00:00Z';
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
