-- usage_row_lock - usage rows of tenants, locked in their order.
--
-- $1::text[]  tenant_id
--
-- Rows, in the order given: tenant_id varchar, entry_count bigint,
-- storage_bytes bigint, api_call_count bigint, status varchar,
-- last_updated_at timestamptz. Tenants come once each, in bytewise order;
-- rows exist after usage_row_ensure. LATERAL: one probe of the primary key
-- for each, whatever the planner thinks of the table's size.
SELECT
    locked.tenant_id,
    locked.entry_count,
    locked.storage_bytes,
    locked.api_call_count,
    locked.status,
    locked.last_updated_at
FROM unnest($1::text[]) AS asked (tenant_id)
CROSS JOIN LATERAL (
    SELECT
        usage.tenant_id,
        usage.entry_count,
        usage.storage_bytes,
        usage.api_call_count,
        usage.status,
        usage.last_updated_at
    FROM meter.tenant_usage_metrics AS usage
    WHERE usage.tenant_id = asked.tenant_id
    FOR UPDATE
) AS locked;
