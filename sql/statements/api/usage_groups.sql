-- usage_groups - what customers used in periods, each group for itself.
--
-- $1::text           tenant
-- $2::text           metric
-- $3::text           customer, '': none, NULL: all
-- $4::timestamptz[]  periods, in order; only with a customer
-- $5::timestamptz    of the row to go on behind: period_start,
-- $6::text           customer,
-- $7::bytea          group_key
-- $8::timestamptz    end of the last period
-- $9::bigint         limit
-- $10::bigint        limit of adjustments, each
-- $11::bytea[]       group_keys: readings of the group asked for, NULL: all
--
-- Rows, by period, customer and group: as of usage_list, with group_key and
-- groups (canonical JSON). Runs as meter_reader with the tenant set, along
-- the primary key.
WITH page AS MATERIALIZED (
    (
        SELECT counter.*
        FROM meter.meter_counter AS counter
        WHERE $3::text IS NULL
            AND counter.tenant = $1::text
            AND counter.metric = $2::text
            AND (counter.period_start, counter.customer, counter.group_key)
                > ($5::timestamptz, $6::text, $7::bytea)
            AND counter.period_start < $8::timestamptz
            AND (
                $11::bytea[] IS NULL
                OR counter.group_key = ANY ($11::bytea[])
            )
        ORDER BY
            counter.period_start,
            counter.customer,
            counter.group_key
        LIMIT $9::bigint
    )
    UNION ALL
    (
        SELECT found.*
        FROM unnest($4::timestamptz[]) AS asked (period_start)
        CROSS JOIN LATERAL (
            SELECT counter.*
            FROM meter.meter_counter AS counter
            WHERE counter.tenant = $1::text
                AND counter.metric = $2::text
                AND counter.period_start = asked.period_start
                AND counter.customer = $3::text
                AND (counter.period_start, counter.group_key)
                    > ($5::timestamptz, $7::bytea)
                AND (
                    $11::bytea[] IS NULL
                    OR counter.group_key = ANY ($11::bytea[])
                )
            ORDER BY counter.group_key
            LIMIT $9::bigint
        ) AS found
        ORDER BY
            found.period_start,
            found.group_key
        LIMIT $9::bigint
    )
)
SELECT
    page.period_start,
    page.customer,
    page.group_key,
    page.groups,
    EXISTS (
        SELECT
        FROM meter.meter_close AS close
        WHERE close.tenant = $1::text
            AND close.metric = $2::text
            AND close.period_start = page.period_start
            AND close.frozen_at IS NOT NULL
    ) AS is_closed,
    CASE
        WHEN page.watermark_ts IS NOT NULL
            THEN LEAST(page.watermark_ts, statement_timestamp())
    END AS watermark,
    page.sum,
    page.count,
    page.min,
    page.max,
    page.last,
    page.last_ts,
    page.last_recorded_at,
    page.last_writer,
    page.last_seq,
    page.uniques,
    page.late_sum,
    page.late_count,
    page.late_min,
    page.late_max,
    page.late_last,
    page.late_last_ts,
    page.late_last_recorded_at,
    page.late_last_writer,
    page.late_last_seq,
    page.late_uniques,
    page.manual_sum,
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
            AND adjustment.group_key = page.group_key
        ORDER BY
            adjustment.recorded_at,
            adjustment.id
        LIMIT $10::bigint
    )
) AS line
ORDER BY
    page.period_start,
    page.customer,
    page.group_key,
    line.recorded_at NULLS FIRST,
    line.id,
    line.is_manual;
