-- tenant_read - the usage row of a tenant.
--
-- $1::text  tenant_id
--
-- Row, or none: tenant_id varchar, entry_count bigint, storage_bytes bigint,
-- api_call_count bigint, status varchar, last_updated_at timestamptz, at
-- most now. Runs as meter_reader with the tenant set: one probe of the primary key.
SELECT
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    LEAST(last_updated_at, statement_timestamp()) AS last_updated_at
FROM meter.tenant_usage_metrics
WHERE tenant_id = $1::text;
