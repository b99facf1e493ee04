-- tenant_list - a page of the usage rows of all tenants.
--
-- $1::text     token_id of the administrator who asks
-- $2::bytea    SHA-256 of the secret that came with the request
-- $3::text     status: only those; NULL: all
-- $4::text     tenant_id after which the page begins; '': at the start
-- $5::integer  how many at most
--
-- Rows, by tenant_id: as tenant_read. Runs as meter_reader, whatever tenant
-- is set. EM401: not the token of an administrator, or no longer.
SELECT
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    last_updated_at
FROM meter.tenant_list(
    $1::text,
    $2::bytea,
    $3::text,
    $4::text,
    $5::integer
)
ORDER BY tenant_id COLLATE "C";
