-- search_values - a page of events with one of some values, newest first.
--
-- $1::text         tenant
-- $2::text         type
-- $3::timestamptz  from
-- $4::timestamptz  of the place to go on behind: ts,
-- $5::uuid         writer,
-- $6::bigint       writer_seq
-- $7::bigint       limit
-- $8::text         attribute
-- $9::text[]       values, each once: canonical JSON, cut
--
-- Rows: as search_ledger. candidates: how many entries of the index the page
-- has; those whose event is gone are not shown. Runs as meter_reader with the
-- tenant set; each value backwards along event_index_value, then each instant
-- of the page once along event_tenant_ts.
WITH page AS MATERIALIZED (
    SELECT
        entry.ts,
        entry.part_day,
        entry.writer,
        entry.writer_seq
    FROM unnest($9::text[]) AS wanted (value)
    CROSS JOIN LATERAL (
        SELECT
            event_index.ts,
            event_index.part_day,
            event_index.writer,
            event_index.writer_seq
        FROM meter.event_index
        WHERE event_index.tenant = $1::text
            AND event_index.type = $2::text
            AND event_index.attribute = $8::text
            AND event_index.value = wanted.value
            AND event_index.part_day
                >= ($3::timestamptz AT TIME ZONE 'UTC')::date
            AND event_index.ts >= $3::timestamptz
            AND event_index.ts <= $4::timestamptz
            AND (
                event_index.ts,
                event_index.writer,
                event_index.writer_seq
            ) < (
                $4::timestamptz,
                $5::uuid,
                $6::bigint
            )
        ORDER BY
            event_index.ts DESC,
            event_index.writer DESC,
            event_index.writer_seq DESC
        LIMIT $7::bigint
    ) AS entry
    ORDER BY
        entry.ts DESC,
        entry.writer DESC,
        entry.writer_seq DESC
    LIMIT $7::bigint
),
instants AS (
    SELECT DISTINCT
        page.part_day,
        page.ts
    FROM page
)
SELECT
    stored.type,
    stored.ts,
    stored.customer,
    stored.resource,
    trim_scale(stored.quantity)::text AS quantity,
    stored.count,
    stored.attributes,
    stored.source,
    stored.flags,
    COALESCE(stored.clock_at, stored.recorded_at) AS recorded_at,
    stored.event_id,
    stored.writer,
    stored.writer_seq,
    NULL::bigint AS candidates
FROM instants
CROSS JOIN LATERAL (
    SELECT event.*
    FROM meter.event
    WHERE event.tenant = $1::text
        AND event.part_day = instants.part_day
        AND event.ts = instants.ts
    OFFSET 0
) AS stored
INNER JOIN page
    ON page.part_day = stored.part_day
        AND page.ts = stored.ts
        AND page.writer = stored.writer
        AND page.writer_seq = stored.writer_seq
UNION ALL
SELECT
    NULL,
    last.ts,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL,
    last.writer,
    last.writer_seq,
    (SELECT count(*) FROM page)
FROM (
    SELECT
        page.ts,
        page.writer,
        page.writer_seq
    FROM page
    ORDER BY
        page.ts,
        page.writer,
        page.writer_seq
    LIMIT 1
) AS last
ORDER BY
    ts DESC,
    writer DESC,
    writer_seq DESC,
    candidates NULLS FIRST;
