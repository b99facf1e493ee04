-- checkpoint_entities - opens the entity states of all tenants.
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
ORDER BY
    tenant,
    owner,
    entity;
