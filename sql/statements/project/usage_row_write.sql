-- usage_row_write - sets locked usage rows to what was decided for them.
--
-- $1::text[]       tenant_id
-- $2::bigint[]     entry_count
-- $3::bigint[]     storage_bytes
-- $4::bigint[]     api_call_count
-- $5::text[]       status
-- $6::timestamptz  last_updated_at
--
-- No rows; as many updated as given. Only after usage_row_lock in the same
-- transaction.
UPDATE meter.tenant_usage_metrics AS usage
SET
    entry_count = decided.entry_count,
    storage_bytes = decided.storage_bytes,
    api_call_count = decided.api_call_count,
    status = decided.status,
    last_updated_at = GREATEST(usage.last_updated_at, $6::timestamptz)
FROM unnest(
    $1::text[],
    $2::bigint[],
    $3::bigint[],
    $4::bigint[],
    $5::text[]
) AS decided (
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status
)
WHERE usage.tenant_id = decided.tenant_id;
