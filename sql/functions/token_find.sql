-- meter.token_find(wanted) - a bearer token by its public part.
--
-- Runs as meter_owner, the only role that sees meter.api_token, because no
-- tenant is known before the token is. The caller compares the digest. A
-- token that has expired is told as revoked, which every meterd understands.
CREATE OR REPLACE FUNCTION meter.token_find(wanted text)
RETURNS TABLE (
    token_id text,
    tenant   text,
    digest   bytea,
    scopes   text[],
    revoked  boolean
)
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        token.token_id,
        token.tenant,
        token.digest,
        token.scopes,
        token.revoked_at IS NOT NULL
            OR COALESCE(token.expires_at <= statement_timestamp(), false)
    FROM meter.api_token AS token
    WHERE token.token_id = wanted
$$;

REVOKE ALL ON FUNCTION meter.token_find(text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION meter.token_find(text) TO meter_reader;
