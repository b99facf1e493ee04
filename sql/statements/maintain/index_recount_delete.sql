-- index_recount_delete - takes rows out of the index.
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
DELETE FROM meter.event_index AS entry
USING unnest(
    $2::text[],
    $3::text[],
    $4::text[],
    $5::text[],
    $6::timestamptz[],
    $7::uuid[],
    $8::bigint[]
) AS wrong (tenant, type, attribute, value, ts, writer, writer_seq)
WHERE entry.part_day = $1::date
    AND entry.tenant = wrong.tenant
    AND entry.type = wrong.type
    AND entry.attribute = wrong.attribute
    AND entry.value = wrong.value
    AND entry.ts = wrong.ts
    AND entry.writer = wrong.writer
    AND entry.writer_seq = wrong.writer_seq;
