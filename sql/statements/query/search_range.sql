-- search_range - a page of events with a value in a range, newest first.
--
-- $1::text         tenant
-- $2::text         type
-- $3::timestamptz  from
-- $4::timestamptz  of the place to go on behind: ts,
-- $5::uuid         writer,
-- $6::bigint       writer_seq
-- $7::bigint       limit
-- $8::text         attribute
-- $9::text         the lowest value: canonical JSON, cut
-- $10::text        values are below this
-- $11::text        numbers only: at least this, NULL: any
-- $12::text        likewise, at most
--
-- Rows: as search_values. All entries of the range and the time are looked
-- at for each page: time is given in windows. Numbers are told from other
-- values by their first byte before they are read as such. Runs as
-- meter_reader with the tenant set, along event_index_value, then each
-- instant of the page once along event_tenant_ts.
WITH page AS MATERIALIZED (
    SELECT
        event_index.ts,
        event_index.part_day,
        event_index.writer,
        event_index.writer_seq
    FROM meter.event_index
    WHERE event_index.tenant = $1::text
        AND event_index.type = $2::text
        AND event_index.attribute = $8::text
        AND event_index.value >= $9::text
        AND event_index.value < $10::text
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
        AND CASE
            WHEN $11::text IS NULL AND $12::text IS NULL
                THEN true
            WHEN event_index.value >= '-' AND event_index.value < ':'
                THEN (
                        $11::text IS NULL
                        OR event_index.value::numeric >= $11::text::numeric
                    )
                    AND (
                        $12::text IS NULL
                        OR event_index.value::numeric <= $12::text::numeric
                    )
            ELSE false
        END
    ORDER BY
        event_index.ts DESC,
        event_index.writer DESC,
        event_index.writer_seq DESC
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
