-- series_recount_tenant_next - the tenant behind this one, of the ledger, the
-- series or the index.
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
        FROM meter.event_index
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_5s
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_1m
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_1h
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_1d
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_7d
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    ),
    (
        SELECT tenant
        FROM meter.series_key
        WHERE tenant > $1::text
        ORDER BY tenant
        LIMIT 1
    )
) AS tenant;
