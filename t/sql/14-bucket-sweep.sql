-- Buckets of the counters API are swept: only what has expired, in some pages,
-- no more than asked for. The clock is one of our own.

\set sweep `cat sql/statements/buckets/bucket_sweep.sql`

SELECT plan(9);

BEGIN;
CREATE FUNCTION tap.clock_timestamp() RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT current_setting('test.now')::timestamptz $$;
SET LOCAL test.now = '2026-01-05 12:00:00Z';
SET LOCAL ROLE meter_writer;
PREPARE sweep AS :sweep
PREPARE insert (
    text[], text[], bigint[], timestamptz[], bigint[], bigint[], timestamptz[]
) AS
INSERT INTO meter.bucket_counter
SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7);

EXECUTE insert(
    '{acme,acme,acme,acme}', '{at,before,never,past}', '{0,0,0,0}',
    array_fill('1970-01-01Z'::timestamptz, '{4}'), '{1,1,1,1}', '{0,0,0,0}',
    '{2026-01-05 11:59Z,2026-01-05 11:58:59.999999Z,NULL,2026-01-05 12:01Z}'
);
SELECT results_eq(
    $$ EXECUTE sweep(0, 1000, 60, 100) $$,
    $$
    SELECT 1::bigint, max(pg_relation_size(relid)) / 8192, 1::bigint
    FROM pg_partition_tree('meter.bucket_counter') WHERE isleaf
    $$,
    'sweep: one had expired longer than a minute ago; as many pages'
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
