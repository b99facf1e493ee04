-- recount_usage_insert - puts the usage row of a tenant in.
--
-- $1::text         tenant
-- $2::bigint       entry_count
-- $3::bigint       storage_bytes
-- $4::bigint       api_call_count
-- $5::text         status
-- $6::timestamptz  last_updated_at
--
-- No rows.
INSERT INTO meter.tenant_usage_metrics (
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    last_updated_at
)
VALUES (
    $1::text,
    $2::bigint,
    $3::bigint,
    $4::bigint,
    $5::text,
    $6::timestamptz
);
