-- usage_list - what customers used in periods, the groups of each together.
--
-- $1::text           tenant
-- $2::text           metric
-- $3::text           customer, '': none, NULL: all
-- $4::timestamptz[]  periods, in order; only with a customer
-- $5::timestamptz    of the row to go on behind: period_start,
-- $6::text           customer
-- $7::timestamptz    end of the last period
-- $8::bigint         limit
-- $9::bigint         limit of adjustments, each
--
-- Rows, by period and customer: period_start timestamptz, customer text,
-- group_key bytea, groups text, is_closed boolean, watermark timestamptz;
-- folded: sum numeric, count bigint, min, max, last numeric, last_ts,
-- last_recorded_at timestamptz, last_writer uuid, last_seq bigint, uniques
-- bigint; late: the same ten; manual_sum numeric; then id text, is_manual
-- boolean, amount numeric, reason, actor text, ts, recorded_at timestamptz.
-- Where id is NULL it is the usage itself; its adjustments follow, with the
-- usage repeated, in the order of recorded_at. group_key and groups are
-- NULL here. 22003: a figure of all groups passes what is kept.
--
-- Runs as meter_reader with the tenant set. Keys are found by one probe of
-- the primary key each, whatever the number of groups or of customers.
WITH RECURSIVE walked AS (
    (
        SELECT
            counter.period_start,
            counter.customer,
            1 AS step
        FROM meter.meter_counter AS counter
        WHERE $3::text IS NULL
            AND counter.tenant = $1::text
            AND counter.metric = $2::text
            AND (counter.period_start, counter.customer)
                > ($5::timestamptz, $6::text)
            AND counter.period_start < $7::timestamptz
        ORDER BY
            counter.period_start,
            counter.customer
        LIMIT 1
    )
    UNION ALL
    SELECT
        beyond.period_start,
        beyond.customer,
        walked.step + 1
    FROM walked
    CROSS JOIN LATERAL (
        SELECT
            counter.period_start,
            counter.customer
        FROM meter.meter_counter AS counter
        WHERE counter.tenant = $1::text
            AND counter.metric = $2::text
            AND (counter.period_start, counter.customer)
                > (walked.period_start, walked.customer)
            AND counter.period_start < $7::timestamptz
        ORDER BY
            counter.period_start,
            counter.customer
        LIMIT 1
    ) AS beyond
    WHERE walked.step < $8::bigint
),
page AS MATERIALIZED (
    SELECT
        walked.period_start,
        walked.customer
    FROM walked
    UNION ALL
    (
        SELECT
            asked.period_start,
            found.customer
        FROM unnest($4::timestamptz[]) AS asked (period_start)
        CROSS JOIN LATERAL (
            SELECT counter.customer
            FROM meter.meter_counter AS counter
            WHERE counter.tenant = $1::text
                AND counter.metric = $2::text
                AND counter.period_start = asked.period_start
                AND counter.customer = $3::text
            LIMIT 1
        ) AS found
        WHERE asked.period_start > $5::timestamptz
        ORDER BY asked.period_start
        LIMIT $8::bigint
    )
)
SELECT
    page.period_start,
    page.customer,
    NULL::bytea AS group_key,
    NULL::text AS groups,
    EXISTS (
        SELECT
        FROM meter.meter_close AS close
        WHERE close.tenant = $1::text
            AND close.metric = $2::text
            AND close.period_start = page.period_start
            AND close.frozen_at IS NOT NULL
    ) AS is_closed,
    CASE
        WHEN merged.watermark IS NOT NULL
            THEN LEAST(merged.watermark, statement_timestamp())
    END AS watermark,
    merged.sum,
    merged.count,
    merged.min,
    merged.max,
    merged.last,
    merged.last_ts,
    merged.last_recorded_at,
    merged.last_writer,
    merged.last_seq,
    valued.uniques,
    merged.late_sum,
    merged.late_count,
    merged.late_min,
    merged.late_max,
    merged.late_last,
    merged.late_last_ts,
    merged.late_last_recorded_at,
    merged.late_last_writer,
    merged.late_last_seq,
    valued.late_uniques,
    merged.manual_sum,
    line.id,
    line.is_manual,
    line.amount,
    line.reason,
    line.actor,
    line.ts,
    line.recorded_at
FROM page
CROSS JOIN LATERAL (
    SELECT
        max(one.watermark_ts) AS watermark,
        sum(one.sum)::numeric(38, 9) AS sum,
        sum(one.count)::bigint AS count,
        min(one.min) AS min,
        max(one.max) AS max,
        max(one.last) FILTER (WHERE one.place = 1) AS last,
        max(one.last_ts) FILTER (WHERE one.place = 1) AS last_ts,
        max(one.last_recorded_at) FILTER (WHERE one.place = 1)
            AS last_recorded_at,
        (array_agg(one.last_writer) FILTER (WHERE one.place = 1))[1]
            AS last_writer,
        max(one.last_seq) FILTER (WHERE one.place = 1) AS last_seq,
        sum(one.late_sum)::numeric(38, 9) AS late_sum,
        sum(one.late_count)::bigint AS late_count,
        min(one.late_min) AS late_min,
        max(one.late_max) AS late_max,
        max(one.late_last) FILTER (WHERE one.late_place = 1) AS late_last,
        max(one.late_last_ts) FILTER (WHERE one.late_place = 1)
            AS late_last_ts,
        max(one.late_last_recorded_at) FILTER (WHERE one.late_place = 1)
            AS late_last_recorded_at,
        (array_agg(one.late_last_writer) FILTER (WHERE one.late_place = 1))[1]
            AS late_last_writer,
        max(one.late_last_seq) FILTER (WHERE one.late_place = 1)
            AS late_last_seq,
        sum(one.manual_sum)::numeric(38, 9) AS manual_sum
    FROM (
        SELECT
            counter.*,
            row_number() OVER (
                ORDER BY
                    counter.last_ts DESC NULLS LAST,
                    counter.last_recorded_at DESC,
                    counter.last_writer DESC,
                    counter.last_seq DESC
            ) AS place,
            row_number() OVER (
                ORDER BY
                    counter.late_last_ts DESC NULLS LAST,
                    counter.late_last_recorded_at DESC,
                    counter.late_last_writer DESC,
                    counter.late_last_seq DESC
            ) AS late_place
        FROM meter.meter_counter AS counter
        WHERE counter.tenant = $1::text
            AND counter.metric = $2::text
            AND counter.period_start = page.period_start
            AND counter.customer = page.customer
    ) AS one
) AS merged
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE one.is_folded) AS uniques,
        count(*) FILTER (WHERE NOT one.is_folded) AS late_uniques
    FROM (
        SELECT bool_or(seen.is_folded) AS is_folded
        FROM meter.meter_unique AS seen
        WHERE seen.tenant = $1::text
            AND seen.metric = $2::text
            AND seen.period_start = page.period_start
            AND seen.customer = page.customer
        GROUP BY seen.value
    ) AS one
) AS valued
CROSS JOIN LATERAL (
    SELECT
        NULL::text AS id,
        NULL::boolean AS is_manual,
        NULL::numeric AS amount,
        NULL::text AS reason,
        NULL::text AS actor,
        NULL::timestamptz AS ts,
        NULL::timestamptz AS recorded_at
    UNION ALL
    (
        SELECT
            adjustment.id,
            adjustment.is_manual,
            adjustment.amount,
            adjustment.reason,
            adjustment.actor,
            adjustment.ts,
            adjustment.recorded_at
        FROM meter.meter_adjustment AS adjustment
        WHERE adjustment.tenant = $1::text
            AND adjustment.metric = $2::text
            AND adjustment.period_start = page.period_start
            AND adjustment.customer = page.customer
        ORDER BY
            adjustment.recorded_at,
            adjustment.id
        LIMIT $9::bigint
    )
) AS line
ORDER BY
    page.period_start,
    page.customer,
    line.recorded_at NULLS FIRST,
    line.id,
    line.is_manual;
