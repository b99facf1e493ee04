-- checkpoint_entities - opens the entity states of all tenants; not those of
-- series: no counter starts from them.
--
-- No parameters. Rows by tenant, owner, entity: tenant text, owner text,
-- entity text, dimension_key bytea or NULL, dimensions text or NULL,
-- updated_at timestamptz; see checkpoint_entities_fetch.
DECLARE checkpoint_entities NO SCROLL CURSOR FOR
SELECT
    tenant,
    owner,
    entity,
    dimension_key,
    dimensions,
    updated_at
FROM meter.entity_state
WHERE NOT starts_with(owner, 'series:')
ORDER BY
    tenant,
    owner,
    entity;
