-- idempotency_insert - keeps the answers of writes with a key.
--
-- $1::text[]       tenant
-- $2::text[]       key
-- $3::bytea[]      digest of what was asked
-- $4::integer[]    outcome
-- $5::bigint[]     added, NULL where nothing was applied
-- $6::bigint[]     subbed, likewise
-- $7::timestamptz  recorded_at
--
-- No rows. 23505: another transaction has used one of the keys meanwhile; the
-- whole transaction starts over and finds it. Keys come in bytewise order.
INSERT INTO meter.api_idempotency (
    tenant,
    key,
    digest,
    outcome,
    added,
    subbed,
    recorded_at
)
SELECT
    answered.tenant,
    answered.key,
    answered.digest,
    answered.outcome,
    answered.added,
    answered.subbed,
    $7::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::bytea[],
    $4::integer[],
    $5::bigint[],
    $6::bigint[]
) AS answered (tenant, key, digest, outcome, added, subbed);
