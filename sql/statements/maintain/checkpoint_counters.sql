-- checkpoint_counters - opens the counter rows of all tenants.
--
-- No parameters. Rows by tenant, counter_name, dimension_key: tenant text,
-- counter_name text, dimension_key bytea, dimensions text, value bigint,
-- updated_at timestamptz; see checkpoint_counters_fetch.
DECLARE checkpoint_counters NO SCROLL CURSOR FOR
SELECT
    tenant,
    counter_name,
    dimension_key,
    dimensions,
    value,
    updated_at
FROM meter.counter
ORDER BY
    tenant,
    counter_name,
    dimension_key;
