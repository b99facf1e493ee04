-- ingest_known - which of these keys are registered, and for what content.
--
-- $1::text[]  scope of each key
-- $2::uuid[]  key
--
-- Rows, only for known keys, in no order: scope text, key uuid, tenant
-- text, head bigint, body bigint or NULL, first_seen_at timestamptz. No
-- qual but the join: with enable_seqscan off (the lane) only a nested loop
-- over the primary key remains, whatever the size of the table.
SELECT
    registry.scope,
    registry.key,
    registry.tenant,
    registry.head,
    registry.body,
    registry.first_seen_at
FROM unnest($1::text[], $2::uuid[]) AS asked (scope, key)
INNER JOIN meter.event_registry AS registry
    ON registry.scope = asked.scope
    AND registry.key = asked.key;
