-- search_ledger - a page of a tenant's events, newest first.
--
-- $1::text         tenant
-- $2::text         type, NULL: all
-- $3::timestamptz  from
-- $4::timestamptz  of the place to go on behind: ts,
-- $5::uuid         writer,
-- $6::bigint       writer_seq
-- $7::bigint       limit
--
-- Rows, by (ts, writer, writer_seq) descending: the columns of event_read,
-- event_id text, writer uuid, writer_seq bigint, candidates bigint, NULL.
-- One more behind them when the page is not empty, with the place of its last
-- event and candidates: how many events it has, those of other types
-- included, which are not shown. So a page costs the same however rare a type
-- is. Runs as meter_reader with the tenant set, backwards along
-- event_tenant_ts.
WITH page AS MATERIALIZED (
    SELECT event.*
    FROM meter.event
    WHERE event.tenant = $1::text
        AND event.part_day >= ($3::timestamptz AT TIME ZONE 'UTC')::date
        AND event.ts >= $3::timestamptz
        AND event.ts <= $4::timestamptz
        AND (event.ts, event.writer, event.writer_seq) < (
            $4::timestamptz,
            $5::uuid,
            $6::bigint
        )
    ORDER BY
        event.ts DESC,
        event.writer DESC,
        event.writer_seq DESC
    LIMIT $7::bigint
)
SELECT
    page.type,
    page.ts,
    page.customer,
    page.resource,
    trim_scale(page.quantity)::text AS quantity,
    page.count,
    page.attributes,
    page.source,
    page.flags,
    COALESCE(page.clock_at, page.recorded_at) AS recorded_at,
    page.event_id,
    page.writer,
    page.writer_seq,
    NULL::bigint AS candidates
FROM page
WHERE $2::text IS NULL
    OR page.type = $2::text
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
