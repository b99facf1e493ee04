-- recount_registry - tenants whose registry does not match their ledger.
--
-- $1::text     tenant, NULL: all
-- $2::integer  flag of events that have no registry row
--
-- Rows by tenant: tenant text, ledger bigint: events with a registry row of
-- their own, registry bigint: rows that there are.
WITH ledger AS (
    SELECT
        tenant,
        count(*) AS rows
    FROM meter.event
    WHERE ($1::text IS NULL OR tenant = $1::text)
        AND flags & $2::integer = 0
    GROUP BY tenant
),
registry AS (
    SELECT
        tenant,
        count(*) AS rows
    FROM meter.event_registry
    WHERE $1::text IS NULL OR tenant = $1::text
    GROUP BY tenant
)
SELECT
    COALESCE(ledger.tenant, registry.tenant) AS tenant,
    COALESCE(ledger.rows, 0) AS ledger,
    COALESCE(registry.rows, 0) AS registry
FROM ledger
FULL JOIN registry ON registry.tenant = ledger.tenant
WHERE ledger.rows IS DISTINCT FROM registry.rows
ORDER BY 1;
