-- ingest_register - registers keys; those already known are passed over.
--
-- $1::text[]         scope
-- $2::uuid[]         key
-- $3::text[]         tenant
-- $4::bigint[]       head
-- $5::bigint[]       body, NULL where not comparable
-- $6::timestamptz[]  ts
-- $7::date[]         part_day
-- $8::timestamptz[]  first_seen_at
--
-- Rows, only for keys registered now, in no order: scope text, key uuid.
-- Keys come in bytewise order, so that two lanes wait in the same order.
INSERT INTO meter.event_registry (
    scope,
    key,
    tenant,
    head,
    body,
    ts,
    part_day,
    first_seen_at
)
SELECT
    fresh.scope,
    fresh.key,
    fresh.tenant,
    fresh.head,
    fresh.body,
    fresh.ts,
    fresh.part_day,
    fresh.first_seen_at
FROM unnest(
    $1::text[],
    $2::uuid[],
    $3::text[],
    $4::bigint[],
    $5::bigint[],
    $6::timestamptz[],
    $7::date[],
    $8::timestamptz[]
) AS fresh (scope, key, tenant, head, body, ts, part_day, first_seen_at)
ON CONFLICT DO NOTHING
RETURNING
    scope,
    key;
