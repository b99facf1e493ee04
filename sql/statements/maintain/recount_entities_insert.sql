-- recount_entities_insert - puts states of entities in.
--
-- $1::text           tenant
-- $2::text[]         owner
-- $3::text[]         entity
-- $4::bytea[]        dimension_key, NULL: not counted
-- $5::text[]         dimensions, NULL: not counted
-- $6::timestamptz[]  updated_at
--
-- No rows.
INSERT INTO meter.entity_state (
    tenant,
    owner,
    entity,
    dimension_key,
    dimensions,
    updated_at
)
SELECT
    $1::text,
    made.owner,
    made.entity,
    made.dimension_key,
    made.dimensions,
    made.updated_at
FROM unnest(
    $2::text[],
    $3::text[],
    $4::bytea[],
    $5::text[],
    $6::timestamptz[]
) AS made (owner, entity, dimension_key, dimensions, updated_at);
