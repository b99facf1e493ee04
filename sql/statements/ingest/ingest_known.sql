-- ingest_known - which of these keys are registered, and for what content.
--
-- $1::text[]     scope of each key
-- $2::uuid[]     key
-- $3::integer[]  the asker's number for it, given back
--
-- Rows, only for known keys, in no order: number integer, tenant text (NULL
-- where it is the scope), head bigint, body bigint or NULL, first_seen_at
-- timestamptz. The lane's planner settings make this a nested loop over the
-- primary key.
SELECT
    asked.number,
    NULLIF(registry.tenant, registry.scope) AS tenant,
    registry.head,
    registry.body,
    registry.first_seen_at
FROM unnest($1::text[], $2::uuid[], $3::integer[])
    AS asked (scope, key, number)
INNER JOIN meter.event_registry AS registry
    ON registry.scope = asked.scope
    AND registry.key = asked.key;
