-- index_recount_rows - ledger rows of a day beside what the index has of them.
--
-- $1::date    part_day
-- $2::text    tenant, NULL: all
-- $3::text[]  types that are indexed, NULL: any may be
--
-- Rows, in no order: tenant text, writer uuid, writer_seq bigint, event_id
-- text, type text, ts timestamptz, attributes text: NULL without a ledger
-- row; entries text: JSON of arrays [type, attribute, value, microseconds],
-- NULL without any; recorded_at timestamptz: NULL without a ledger row.
SELECT
    COALESCE(event.tenant, indexed.tenant) AS tenant,
    COALESCE(event.writer, indexed.writer) AS writer,
    COALESCE(event.writer_seq, indexed.writer_seq) AS writer_seq,
    event.event_id,
    event.type,
    event.ts,
    event.attributes,
    indexed.entries,
    event.recorded_at
FROM (
    SELECT
        stored.tenant,
        stored.writer,
        stored.writer_seq,
        stored.event_id,
        stored.type,
        stored.ts,
        stored.attributes,
        stored.recorded_at
    FROM meter.event AS stored
    WHERE stored.part_day = $1::date
        AND ($2::text IS NULL OR stored.tenant = $2::text)
) AS event
FULL JOIN (
    SELECT
        entry.tenant,
        entry.writer,
        entry.writer_seq,
        json_agg(
            json_build_array(
                entry.type,
                entry.attribute,
                entry.value,
                (extract(epoch FROM entry.ts) * 1000000)::bigint::text
            )
        )::text AS entries
    FROM meter.event_index AS entry
    WHERE entry.part_day = $1::date
        AND ($2::text IS NULL OR entry.tenant = $2::text)
    GROUP BY
        entry.tenant,
        entry.writer,
        entry.writer_seq
) AS indexed
    ON indexed.tenant = event.tenant
    AND indexed.writer = event.writer
    AND indexed.writer_seq = event.writer_seq
WHERE indexed.entries IS NOT NULL
    OR $3::text[] IS NULL
    OR event.type = ANY ($3::text[]);
