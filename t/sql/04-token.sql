-- Tokens: found by the reader one by one, seen by nobody but the owner.

\set token_create `cat sql/statements/token_create.sql`
\set token_revoke `cat sql/statements/token_revoke.sql`
\set token_find `cat sql/statements/token_find.sql`

SELECT plan(11);

BEGIN;
SET LOCAL ROLE meter_owner;
PREPARE token_create AS :token_create
PREPARE token_revoke AS :token_revoke

SELECT lives_ok(
    $$
    EXECUTE token_create('id1', 'acme', sha256('secret'), 'ingest read', 'x')
    $$,
    'a token is made'
);
SELECT throws_ok(
    $$ EXECUTE token_create('id1', 'globex', sha256('other'), 'read', 'y') $$,
    '23505', NULL, 'its id is taken then'
);
SELECT throws_ok(
    $$ EXECUTE token_create('id2', 'acme', 'plain secret', 'read', 'y') $$,
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
ROLLBACK;
