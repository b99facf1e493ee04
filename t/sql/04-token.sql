-- Tokens: found by the reader one by one, seen by nobody but the owner.

\set token_create `cat sql/statements/store/token_create.sql`
\set token_revoke `cat sql/statements/store/token_revoke.sql`
\set token_find `cat sql/statements/store/token_find.sql`

SELECT plan(16);

BEGIN;
SET LOCAL ROLE meter_owner;
PREPARE token_create AS :token_create
PREPARE token_revoke AS :token_revoke

SELECT lives_ok(
    $$
    EXECUTE token_create(
        'id1', 'acme', sha256('secret'), 'ingest read', 'x', NULL, NULL
    )
    $$,
    'a token is made'
);
SELECT throws_ok(
    $$
    EXECUTE token_create(
        'id1', 'globex', sha256('other'), 'read', 'y', NULL, NULL
    )
    $$,
    '23505', NULL, 'its id is taken then'
);
SELECT throws_ok(
    $$
    EXECUTE token_create(
        'id2', 'acme', 'plain secret', 'read', 'y', NULL, NULL
    )
    $$,
    '23514', NULL, 'only a digest is kept'
);
SELECT is(
    (SELECT count(*)::integer FROM meter.api_token WHERE token_id = 'id1'),
    1, 'the owner sees it'
);

SET LOCAL ROLE meter_reader;
PREPARE token_find AS :token_find
SELECT results_eq(
    $$ EXECUTE token_find('id1') $$,
    $$ VALUES ('id1', 'acme', sha256('secret'), 'ingest read', false) $$,
    'the reader finds it by its id, with no tenant set'
);
SELECT is_empty(
    $$ EXECUTE token_find('id') $$, 'an unknown id gives nothing'
);
SELECT throws_ok(
    'SELECT * FROM meter.api_token', '42501', NULL,
    'the reader cannot read the table'
);
SET LOCAL ROLE meter_writer;
SELECT throws_ok(
    'SELECT * FROM meter.api_token', '42501', NULL, 'nor can the writer'
);
SELECT throws_ok(
    $$ SELECT * FROM meter.token_find('id1') $$, '42501', NULL,
    'which cannot call the look-up either'
);

SET LOCAL ROLE meter_owner;
EXECUTE token_revoke('id1') \g /dev/null
SET LOCAL ROLE meter_reader;
SELECT is(
    (SELECT revoked FROM meter.token_find('id1')), true, 'it is revoked'
);
SET LOCAL ROLE meter_owner;
SELECT results_eq(
    $$ SELECT tenant, revoked_at FROM meter.api_token WHERE token_id = 'id1' $$,
    $$ EXECUTE token_revoke('id1') $$,
    'a second time changes nothing'
);

-- Expiry: by the database's clock, as a time or as a stretch from now on.
SELECT throws_ok(
    $$
    EXECUTE token_create(
        'id3', 'acme', sha256('c'), 'read', '', '2020-01-01T00:00:00Z', NULL
    )
    $$,
    '23514', NULL, 'a token that has expired already is not made'
);
EXECUTE token_create(
    'id4', 'acme', sha256('d'), 'read', '', '2999-01-01T00:00:00Z', NULL
) \g /dev/null
EXECUTE token_create(
    'id5', 'acme', sha256('e'), 'read', '', NULL, 7200000000
) \g /dev/null
SELECT results_eq(
    $$
    SELECT expires_at - created_at FROM meter.api_token
    WHERE token_id IN ('id1', 'id5')
    ORDER BY token_id
    $$,
    $$ VALUES (NULL::interval), (interval '2 hours') $$,
    'two hours are two hours; by default a token does not expire'
);
SET LOCAL ROLE meter_reader;
SELECT results_eq(
    $$
    SELECT revoked FROM unnest(ARRAY['id4', 'id5']) AS wanted
    CROSS JOIN LATERAL meter.token_find(wanted)
    $$,
    $$ VALUES (false), (false) $$,
    'both are valid until then'
);
SET LOCAL ROLE meter_owner;
UPDATE meter.api_token
SET created_at = now() - interval '3 hours', expires_at = now()
WHERE token_id = 'id5';
SET LOCAL ROLE meter_reader;
SELECT is(
    (SELECT revoked FROM meter.token_find('id5')), true,
    'and as good as revoked from then on'
);
SET LOCAL ROLE meter_owner;
SELECT lives_ok(
    $$
    INSERT INTO meter.api_token (
        token_id, tenant, digest, scopes, label, created_at
    )
    VALUES ('id6', 'acme', sha256('f'), '{read}', '', now())
    $$,
    'a meterd that knows of no expiry can make one still'
);
ROLLBACK;
