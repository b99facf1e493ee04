-- index_recount_insert - puts rows into the index.
--
-- $1::date           part_day
-- $2::text[]         tenant
-- $3::text[]         type
-- $4::text[]         attribute
-- $5::text[]         value
-- $6::timestamptz[]  ts
-- $7::uuid[]         writer
-- $8::bigint[]       writer_seq
--
-- No rows.
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
    $1::date,
    made.writer,
    made.writer_seq
FROM unnest(
    $2::text[],
    $3::text[],
    $4::text[],
    $5::text[],
    $6::timestamptz[],
    $7::uuid[],
    $8::bigint[]
) AS made (tenant, type, attribute, value, ts, writer, writer_seq);
