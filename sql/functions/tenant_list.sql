-- meter.tenant_list(asker, proof, wanted, after, page) - usage rows of all
-- tenants, by tenant, page after page, for an administrator. No time is later
-- than now: that of a row is of the order, which may be ahead of the clock.
--
-- Runs as meter_owner, because meter_reader sees one tenant only. So it does
-- not rely on its caller: asker (a token_id) and proof (SHA-256 of the secret
-- that came with the request) must be those of a token that has the scope
-- admin, is not revoked and has not expired. EM401: they are not.
--
-- One of the two halves runs: by the primary key without a status, by the
-- index on the status with one; written as a range of that index, since for
-- `status = wanted` the planner may walk the primary key past a million
-- tenants of the other status.
CREATE OR REPLACE FUNCTION meter.tenant_list(
    asker  text,
    proof  bytea,
    wanted text,
    after  text,
    page   integer
)
RETURNS TABLE (
    tenant_id       varchar,
    entry_count     bigint,
    storage_bytes   bigint,
    api_call_count  bigint,
    status          varchar,
    last_updated_at timestamptz
)
LANGUAGE plpgsql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (
        SELECT
        FROM meter.api_token AS token
        WHERE token.token_id = asker
            AND token.digest = proof
            AND 'admin' = ANY (token.scopes)
            AND token.revoked_at IS NULL
            AND COALESCE(token.expires_at > statement_timestamp(), true)
    ) THEN
        RAISE EXCEPTION 'not the token of an administrator'
            USING ERRCODE = 'EM401';
    END IF;

    RETURN QUERY
    (
        SELECT
            usage.tenant_id,
            usage.entry_count,
            usage.storage_bytes,
            usage.api_call_count,
            usage.status,
            LEAST(usage.last_updated_at, statement_timestamp())
        FROM meter.tenant_usage_metrics AS usage
        WHERE wanted IS NULL
            AND usage.tenant_id > after
        ORDER BY usage.tenant_id
        LIMIT page
    )
    UNION ALL
    (
        SELECT
            usage.tenant_id,
            usage.entry_count,
            usage.storage_bytes,
            usage.api_call_count,
            usage.status,
            LEAST(usage.last_updated_at, statement_timestamp())
        FROM meter.tenant_usage_metrics AS usage
        WHERE wanted IS NOT NULL
            AND (usage.status, usage.tenant_id) > (wanted, after)
            AND usage.status <= wanted
        ORDER BY usage.status, usage.tenant_id
        LIMIT page
    );
END
$$;

REVOKE ALL
    ON FUNCTION meter.tenant_list(text, bytea, text, text, integer)
    FROM PUBLIC;
GRANT EXECUTE
    ON FUNCTION meter.tenant_list(text, bytea, text, text, integer)
    TO meter_reader;
