-- entity_state_ensure - makes the entities that are not known yet, counted
-- nowhere, and locks all others.
--
-- $1::text[]  tenant
-- $2::text[]  owner: the counter
-- $3::text[]  entity
--
-- No rows. Keys come once each, in bytewise order of (tenant, owner, entity),
-- and are locked in it, whether they are old or new: WHERE false locks a row
-- that is there and does not change it. The careful path calls
-- entity_state_lock after it, in the same transaction, and entity_state_write
-- with what it decided. A new row is older than all transactions until then.
INSERT INTO meter.entity_state (tenant, owner, entity, updated_at)
SELECT
    asked.tenant,
    asked.owner,
    asked.entity,
    to_timestamp(0)
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[]
) AS asked (tenant, owner, entity)
ON CONFLICT (tenant, owner, entity) DO UPDATE
SET updated_at = entity_state.updated_at
WHERE false;
