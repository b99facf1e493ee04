-- recount_entities - states of a tenant's entities as they are; those of
-- series are in series_recount_states.
--
-- $1::text  tenant
-- $2::text  owner, NULL: all
--
-- Rows: owner text, entity text, dimension_key bytea or NULL, dimensions text
-- or NULL, updated_at timestamptz, made_at timestamptz or NULL.
SELECT
    owner,
    entity,
    dimension_key,
    dimensions,
    updated_at,
    made_at
FROM meter.entity_state
WHERE tenant = $1::text
    AND NOT starts_with(owner, 'series:')
    AND ($2::text IS NULL OR owner = $2::text);
