-- recount_usage_delete - takes the usage row of a tenant away.
--
-- $1::text  tenant
--
-- No rows.
DELETE FROM meter.tenant_usage_metrics
WHERE tenant_id = $1::text;
