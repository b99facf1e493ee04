-- entity_state_lock - where entities are counted, locked in key order.
--
-- $1::text[]  tenant
-- $2::text[]  owner: the counter
-- $3::text[]  entity
--
-- Rows, in the order given: tenant text, owner text, entity text,
-- dimension_key bytea and dimensions text (NULL: counted nowhere), updated_at
-- timestamptz. Keys in bytewise order; rows exist, and are locked already,
-- after entity_state_ensure. LATERAL: one probe of the primary key for each.
SELECT
    locked.tenant,
    locked.owner,
    locked.entity,
    locked.dimension_key,
    locked.dimensions,
    locked.updated_at
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[]
) AS asked (tenant, owner, entity)
CROSS JOIN LATERAL (
    SELECT
        entity_state.tenant,
        entity_state.owner,
        entity_state.entity,
        entity_state.dimension_key,
        entity_state.dimensions,
        entity_state.updated_at
    FROM meter.entity_state
    WHERE entity_state.tenant = asked.tenant
        AND entity_state.owner = asked.owner
        AND entity_state.entity = asked.entity
    FOR NO KEY UPDATE
) AS locked;
