-- entity_state_write - where locked entities are counted now.
--
-- $1::text[]       tenant
-- $2::text[]       owner: the counter
-- $3::text[]       entity
-- $4::bytea[]      dimension_key, NULL: counted nowhere
-- $5::text[]       dimensions, NULL likewise
-- $6::timestamptz  recorded_at
--
-- No rows; as many updated as given, also those that are where they were:
-- updated_at says which transaction asked last. Only after entity_state_lock
-- in the same transaction, which is later than what that returned.
UPDATE meter.entity_state
SET
    dimension_key = decided.dimension_key,
    dimensions = decided.dimensions,
    updated_at = $6::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::bytea[],
    $5::text[]
) AS decided (tenant, owner, entity, dimension_key, dimensions)
WHERE entity_state.tenant = decided.tenant
    AND entity_state.owner = decided.owner
    AND entity_state.entity = decided.entity;
