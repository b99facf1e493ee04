-- series_recount_states - states of a tenant's entities of state series.
--
-- $1::text  tenant
-- $2::text  owner: "series:" and a name, NULL: all of series
--
-- Rows: owner text, entity text, state text or NULL: none, is_plain boolean:
-- there is nothing else in the row, updated_at timestamptz, made_at
-- timestamptz or NULL.
SELECT
    owner,
    entity,
    dimensions AS state,
    dimension_key IS NULL AS is_plain,
    updated_at,
    made_at
FROM meter.entity_state
WHERE tenant = $1::text
    AND starts_with(owner, 'series:')
    AND ($2::text IS NULL OR owner = $2::text);
