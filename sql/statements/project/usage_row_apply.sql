-- usage_row_apply - applies one fold to each column of locked usage rows:
-- max(value + a, b).
--
-- $1::text[]       tenant_id
-- $2::bigint[]     entry_count: a
-- $3::bigint[]     entry_count: b, NULL: untouched
-- $4::bigint[]     storage_bytes: a
-- $5::bigint[]     storage_bytes: b
-- $6::bigint[]     api_call_count: a
-- $7::bigint[]     api_call_count: b
-- $8::text[]       status, NULL: as it is
-- $9::timestamptz  last_updated_at
--
-- Rows, in no order: tenant_id varchar, entry_count bigint, storage_bytes
-- bigint, api_call_count bigint, as they are now. 22003: a value would leave
-- 64 bits. Only after usage_row_lock in the same transaction.
UPDATE meter.tenant_usage_metrics AS usage
SET
    entry_count = GREATEST(
        usage.entry_count + folded.entry_add,
        folded.entry_floor
    ),
    storage_bytes = GREATEST(
        usage.storage_bytes + folded.storage_add,
        folded.storage_floor
    ),
    api_call_count = GREATEST(
        usage.api_call_count + folded.call_add,
        folded.call_floor
    ),
    status = COALESCE(folded.status, usage.status),
    last_updated_at = GREATEST(usage.last_updated_at, $9::timestamptz)
FROM unnest(
    $1::text[],
    $2::bigint[],
    $3::bigint[],
    $4::bigint[],
    $5::bigint[],
    $6::bigint[],
    $7::bigint[],
    $8::text[]
) AS folded (
    tenant_id,
    entry_add,
    entry_floor,
    storage_add,
    storage_floor,
    call_add,
    call_floor,
    status
)
WHERE usage.tenant_id = folded.tenant_id
RETURNING
    usage.tenant_id,
    usage.entry_count,
    usage.storage_bytes,
    usage.api_call_count;
