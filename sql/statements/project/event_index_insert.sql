-- event_index_insert - declared attributes of the events of a transaction.
--
-- $1::text[]         tenant
-- $2::text[]         type
-- $3::text[]         attribute
-- $4::text[]         value: canonical JSON, cut
-- $5::timestamptz[]  ts
-- $6::date[]         part_day, as in the ledger
-- $7::bigint[]       writer_seq
-- $8::uuid           writer
--
-- No rows; as many inserted as given, less those of days that retention has
-- taken from the index.
INSERT INTO meter.event_index (
    tenant,
    type,
    attribute,
    value,
    ts,
    part_day,
    writer,
    writer_seq
)
SELECT
    made.tenant,
    made.type,
    made.attribute,
    made.value,
    made.ts,
    made.part_day,
    $8::uuid,
    made.writer_seq
FROM unnest(
    $1::text[],
    $2::text[],
    $3::text[],
    $4::text[],
    $5::timestamptz[],
    $6::date[],
    $7::bigint[]
) AS made (tenant, type, attribute, value, ts, part_day, writer_seq)
WHERE made.part_day >= coalesce(
    (
        SELECT partition_floor.floor
        FROM meter.partition_floor
        WHERE partition_floor.parent = 'event_index'
    ),
    '-infinity'
);
