-- ingest_event_insert - appends to the ledger, for a role that may not COPY.
--
-- $1::text[]          tenant
-- $2::text[]          event_id
-- $3::text[]          type
-- $4::timestamptz[]   ts
-- $5::date[]          part_day
-- $6::text[]          customer, NULL where absent
-- $7::text[]          resource, NULL where absent
-- $8::numeric[]       quantity
-- $9::bigint[]        count
-- $10::text[]         attributes
-- $11::text[]         source, NULL where absent
-- $12::integer[]      flags
-- $13::uuid[]         session, NULL where absent
-- $14::bigint[]       seq, NULL where absent
-- $15::uuid           writer
-- $16::bigint[]       writer_seq
-- $17::timestamptz    recorded_at
-- $18::smallint[]     disposition
-- $19::text[]         from_state, NULL where absent
-- $20::timestamptz    clock_at, NULL: recorded_at is the clock
--
-- No rows; as many inserted as given. 23514: a day without a partition.
INSERT INTO meter.event (
    tenant,
    event_id,
    type,
    ts,
    part_day,
    customer,
    resource,
    quantity,
    count,
    attributes,
    source,
    flags,
    session,
    seq,
    writer,
    writer_seq,
    recorded_at,
    disposition,
    from_state,
    clock_at
)
SELECT
    fresh.tenant,
    fresh.event_id,
    fresh.type,
    fresh.ts,
    fresh.part_day,
    fresh.customer,
    fresh.resource,
    fresh.quantity,
    fresh.count,
    fresh.attributes,
    fresh.source,
    fresh.flags,
    fresh.session,
    fresh.seq,
    $15::uuid,
    fresh.writer_seq,
    $17::timestamptz,
    fresh.disposition,
    fresh.from_state,
    $20::timestamptz
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::timestamptz[],
    $5::date[],
    $6::text[],
    $7::text[],
    $8::numeric[],
    $9::bigint[],
    $10::text[],
    $11::text[],
    $12::integer[],
    $13::uuid[],
    $14::bigint[],
    $16::bigint[],
    $18::smallint[],
    $19::text[]
) AS fresh (
    tenant,
    event_id,
    type,
    ts,
    part_day,
    customer,
    resource,
    quantity,
    count,
    attributes,
    source,
    flags,
    session,
    seq,
    writer_seq,
    disposition,
    from_state
);
