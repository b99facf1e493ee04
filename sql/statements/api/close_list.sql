-- close_list - periods that are closed, and rebuilds that changed them.
--
-- $1::text         tenant
-- $2::text         metric, NULL: all
-- $3::timestamptz  period_start, NULL: all
-- $4::text         of the row to go on behind: metric,
-- $5::timestamptz  period_start
-- $6::bigint       limit, of closes
--
-- Rows, by metric and period: metric text, period_start timestamptz, period
-- text or NULL, closed_at timestamptz, actor text, figures bigint or NULL;
-- then of a reopening, each with its close repeated, all NULL where there is
-- none: reopened_at timestamptz, reopened_by text, reason text, changed
-- bigint. The newest 100 reopenings of each. Runs as meter_reader with the
-- tenant set.
WITH page AS MATERIALIZED (
    SELECT close.*
    FROM meter.meter_close AS close
    WHERE close.tenant = $1::text
        AND ($2::text IS NULL OR close.metric = $2::text)
        AND ($3::timestamptz IS NULL OR close.period_start = $3::timestamptz)
        AND (close.metric, close.period_start) > ($4::text, $5::timestamptz)
        AND close.frozen_at IS NOT NULL
    ORDER BY
        close.tenant,
        close.metric,
        close.period_start
    LIMIT $6::bigint
)
SELECT
    page.metric,
    page.period_start,
    page.period,
    page.closed_at,
    page.actor,
    page.figures,
    reopened.reopened_at,
    reopened.actor AS reopened_by,
    reopened.reason,
    reopened.figures AS changed
FROM page
LEFT JOIN LATERAL (
    SELECT reopen.*
    FROM meter.meter_reopen AS reopen
    WHERE reopen.tenant = page.tenant
        AND reopen.metric = page.metric
        AND reopen.period_start = page.period_start
    ORDER BY reopen.reopened_at DESC
    LIMIT 100
) AS reopened
    ON true
ORDER BY
    page.metric,
    page.period_start,
    reopened.reopened_at;
