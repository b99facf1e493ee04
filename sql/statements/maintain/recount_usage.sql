-- recount_usage - usage row of a tenant as it is.
--
-- $1::text  tenant
--
-- Rows, at most one: entry_count bigint, storage_bytes bigint,
-- api_call_count bigint, status text, last_updated_at timestamptz.
SELECT
    entry_count,
    storage_bytes,
    api_call_count,
    status::text AS status,
    last_updated_at
FROM meter.tenant_usage_metrics
WHERE tenant_id = $1::text;
