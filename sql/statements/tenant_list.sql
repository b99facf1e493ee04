-- tenant_list - a page of the usage rows of all tenants.
--
-- $1::text     status: only those; NULL: all
-- $2::text     tenant_id behind which the page begins; '': at the start
-- $3::integer  how many at most
--
-- Rows, by tenant_id: as tenant_read. For administrators: runs as
-- meter_reader, whatever tenant is set.
SELECT
    tenant_id,
    entry_count,
    storage_bytes,
    api_call_count,
    status,
    last_updated_at
FROM meter.tenant_list($1::text, $2::text, $3::integer)
ORDER BY tenant_id;
