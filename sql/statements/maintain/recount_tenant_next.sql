-- recount_tenant_next - the tenant behind this one, of ledger or projection.
--
-- $1::text  tenant; '' is before all
--
-- Row, always one: tenant text or NULL: there is none. Each index is asked
-- for its next entry only.
SELECT LEAST(
    (
        SELECT tenant
        FROM meter.event
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.counter
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.counter_keys
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.entity_state
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant_id::text COLLATE "C"
        FROM meter.tenant_usage_metrics
        WHERE tenant_id > $1::text
        ORDER BY tenant_id
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.meter_counter
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.meter_unique
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.meter_adjustment
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    )
) AS tenant;
