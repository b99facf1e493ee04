-- ingest_known_scope - which of these keys of one scope are registered, and
-- for what content.
--
-- $1::text    scope
-- $2::uuid[]  key
--
-- Rows, only for known keys, in no order: key uuid, tenant text (NULL where
-- it is the scope), head bigint, body bigint or NULL, first_seen_at
-- timestamptz. One scan of the primary key, which is a third cheaper than
-- the join of ingest_known.
SELECT
    key,
    NULLIF(tenant, scope) AS tenant,
    head,
    body,
    first_seen_at
FROM meter.event_registry
WHERE scope = $1::text
    AND key = ANY($2::uuid[]);
