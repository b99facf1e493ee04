-- usage_row_ensure - makes the usage rows that do not exist yet: nothing
-- used, active.
--
-- $1::text[]       tenant_id
-- $2::timestamptz  last_updated_at
--
-- Rows, for those that were made: tenant_id varchar. Tenants come once each,
-- in bytewise order, and are locked in it, whether they are old or new: WHERE
-- false locks a row that is there and neither changes nor returns it.
-- usage_row_lock follows in the same transaction.
INSERT INTO meter.tenant_usage_metrics (
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    last_updated_at
)
SELECT
    wanted.tenant_id,
    0,
    0,
    0,
    'active',
    $2::timestamptz
FROM unnest($1::text[]) AS wanted (tenant_id)
ON CONFLICT (tenant_id) DO UPDATE
SET last_updated_at = tenant_usage_metrics.last_updated_at
WHERE false
RETURNING tenant_id;
