-- ingest_audit_insert - records observations of ids that were known, for a
-- role that may not COPY.
--
-- $1::text[]         tenant
-- $2::text[]         event_id
-- $3::uuid[]         key
-- $4::smallint[]     verdict, 1 duplicate, 2 conflict
-- $5::timestamptz[]  first_seen_at
-- $6::timestamptz[]  duplicate_seen_at
-- $7::date[]         part_day
-- $8::text[]         type
-- $9::timestamptz[]  ts
-- $10::text[]        payload
-- $11::integer[]     item
--
-- type, ts and payload are NULL where they are as stored.
-- No rows; as many inserted as given. 23514: a day without a partition.
INSERT INTO meter.duplicate_audit (
    tenant,
    event_id,
    key,
    verdict,
    first_seen_at,
    duplicate_seen_at,
    part_day,
    type,
    ts,
    payload,
    item
)
SELECT
    seen.tenant,
    seen.event_id,
    seen.key,
    seen.verdict,
    seen.first_seen_at,
    seen.duplicate_seen_at,
    seen.part_day,
    seen.type,
    seen.ts,
    seen.payload,
    seen.item
FROM unnest(
    $1::text[],
    $2::text[],
    $3::uuid[],
    $4::smallint[],
    $5::timestamptz[],
    $6::timestamptz[],
    $7::date[],
    $8::text[],
    $9::timestamptz[],
    $10::text[],
    $11::integer[]
) AS seen (
    tenant,
    event_id,
    key,
    verdict,
    first_seen_at,
    duplicate_seen_at,
    part_day,
    type,
    ts,
    payload,
    item
);
