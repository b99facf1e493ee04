-- recount_entities_delete - takes states of entities away.
--
-- $1::text    tenant
-- $2::text[]  owner
-- $3::text[]  entity
--
-- No rows.
DELETE FROM meter.entity_state
USING unnest($2::text[], $3::text[]) AS wrong (owner, entity)
WHERE entity_state.tenant = $1::text
    AND entity_state.owner = wrong.owner
    AND entity_state.entity = wrong.entity;
