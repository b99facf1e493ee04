-- dead_letter_insert - keeps records that had to be rejected.
--
-- $1::text[]       tenant, '-' where the record names none that can be used
-- $2::uuid[]       session
-- $3::bigint[]     seq
-- $4::text[]       reason
-- $5::bytea[]      record, whole, as it stood in the ring
-- $6::timestamptz  recorded_at: the clock
--
-- No rows; as many inserted as given.
INSERT INTO meter.dead_letter (
    tenant,
    session,
    seq,
    reason,
    record,
    recorded_at
)
SELECT
    refused.tenant,
    refused.session,
    refused.seq,
    refused.reason,
    refused.record,
    $6::timestamptz
FROM unnest(
    $1::text[],
    $2::uuid[],
    $3::bigint[],
    $4::text[],
    $5::bytea[]
) AS refused (tenant, session, seq, reason, record);
