-- checkpoint_usages - opens the usage rows of all tenants.
--
-- No parameters. Rows by tenant: tenant_id text, entry_count bigint,
-- storage_bytes bigint, api_call_count bigint, status text, last_updated_at
-- timestamptz; see checkpoint_usages_fetch.
DECLARE checkpoint_usages NO SCROLL CURSOR FOR
SELECT
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    last_updated_at
FROM meter.tenant_usage_metrics
ORDER BY tenant_id;
