-- meter.tenant_list(wanted, after, page) - usage rows of all tenants, by
-- tenant, page after page.
--
-- Runs as meter_owner, because meter_reader sees one tenant only; who may
-- ask is decided by the scope of the token. One of the two halves runs: by
-- the primary key without a status, by the index on the status with one;
-- written as a range of that index, since for `status = wanted` the planner
-- may walk the primary key past a million tenants of the other status.
CREATE OR REPLACE FUNCTION meter.tenant_list(
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
LANGUAGE sql
STABLE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    (
        SELECT
            usage.tenant_id,
            usage.entry_count,
            usage.storage_bytes,
            usage.api_call_count,
            usage.status,
            usage.last_updated_at
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
            usage.last_updated_at
        FROM meter.tenant_usage_metrics AS usage
        WHERE wanted IS NOT NULL
            AND (usage.status, usage.tenant_id) > (wanted, after)
            AND usage.status <= wanted
        ORDER BY usage.status, usage.tenant_id
        LIMIT page
    )
$$;

REVOKE ALL ON FUNCTION meter.tenant_list(text, text, integer) FROM PUBLIC;
GRANT EXECUTE
    ON FUNCTION meter.tenant_list(text, text, integer)
    TO meter_reader;
