-- idempotency_known - what writes with these keys were answered.
--
-- $1::text[]  tenant
-- $2::text[]  key
--
-- Rows, only for keys that are known: place integer (of the key among those
-- given, from 1), digest bytea, outcome smallint as integer, added bigint or
-- NULL, subbed bigint or NULL.
SELECT
    asked.place::integer AS place,
    found.digest,
    found.outcome::integer AS outcome,
    found.added,
    found.subbed
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY
    AS asked (tenant, key, place)
CROSS JOIN LATERAL (
    SELECT
        known.digest,
        known.outcome,
        known.added,
        known.subbed
    FROM meter.api_idempotency AS known
    WHERE known.tenant = asked.tenant
        AND known.key = asked.key
    OFFSET 0
) AS found;
