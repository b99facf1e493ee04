-- adjustment_list - corrections of a meter, of events and manual ones.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  end of the last period
-- $4::text         customer, '': none, NULL: all
-- $5::timestamptz  of the row to go on behind: period_start,
-- $6::text         customer,
-- $7::timestamptz  recorded_at,
-- $8::text         id,
-- $9::integer      is_manual, 0 or 1
-- $10::bigint      limit
--
-- Rows, in the order of ($5 to $9): period_start timestamptz, customer text,
-- groups text, is_manual boolean, id text, amount numeric, reason text,
-- actor text, ts timestamptz, recorded_at timestamptz. Runs as meter_reader
-- with the tenant set, along the index of periods; that has no is_manual, so
-- two rows more are taken: at most two are equal but for it, and the last
-- row asked for is never shown.
WITH page AS MATERIALIZED (
    SELECT adjustment.*
    FROM meter.meter_adjustment AS adjustment
    WHERE adjustment.tenant = $1::text
        AND adjustment.metric = $2::text
        AND adjustment.period_start < $3::timestamptz
        AND ($4::text IS NULL OR adjustment.customer = $4::text)
        AND (
            adjustment.period_start,
            adjustment.customer,
            adjustment.recorded_at,
            adjustment.id
        ) >= (
            $5::timestamptz,
            $6::text,
            $7::timestamptz,
            $8::text
        )
    ORDER BY
        adjustment.tenant,
        adjustment.metric,
        adjustment.period_start,
        adjustment.customer,
        adjustment.recorded_at,
        adjustment.id
    LIMIT $10::bigint + 2
)
SELECT
    page.period_start,
    page.customer,
    page.groups,
    page.is_manual,
    page.id,
    page.amount,
    page.reason,
    page.actor,
    page.ts,
    page.recorded_at
FROM page
WHERE (
        page.period_start,
        page.customer,
        page.recorded_at,
        page.id,
        page.is_manual
    ) > (
        $5::timestamptz,
        $6::text,
        $7::timestamptz,
        $8::text,
        $9::integer <> 0
    )
ORDER BY
    page.period_start,
    page.customer,
    page.recorded_at,
    page.id,
    page.is_manual
LIMIT $10::bigint;
