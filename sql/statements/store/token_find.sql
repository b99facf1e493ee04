-- token_find - a bearer token by its public part.
--
-- $1::text  token_id
--
-- Row, or none: token_id text, tenant text, digest bytea, scopes text
-- (separated by spaces), revoked boolean (or expired). Runs as meter_reader
-- with no tenant set.
SELECT
    token_id,
    tenant,
    digest,
    array_to_string(scopes, ' ') AS scopes,
    revoked
FROM meter.token_find($1::text);
