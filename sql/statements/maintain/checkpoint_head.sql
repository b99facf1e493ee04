-- checkpoint_head - whose database this is, and when.
--
-- Row: now timestamptz, schema_version integer, salt bytea, rows bigint:
-- roughly how many a checkpoint has, as the server last estimated them; 0
-- when it never did.
SELECT
    clock_timestamp() AS now,
    (
        SELECT COALESCE(max(number), 0)::integer
        FROM meter.schema_migration
    ) AS schema_version,
    (
        SELECT value
        FROM meter.secret
        WHERE name = 'salt'
    ) AS salt,
    (
        SELECT COALESCE(sum(GREATEST(reltuples, 0)), 0)::bigint
        FROM pg_catalog.pg_class
        WHERE oid IN (
            'meter.counter'::regclass,
            'meter.entity_state'::regclass,
            'meter.tenant_usage_metrics'::regclass
        )
    ) AS rows;
