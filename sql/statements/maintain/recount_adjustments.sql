-- recount_adjustments - corrections of a tenant's periods.
--
-- $1::text         tenant
-- $2::text         metric, NULL: all
-- $3::timestamptz  period_start at or after, NULL: any
--
-- Rows: metric text, period_start timestamptz, customer text, group_key
-- bytea, groups text, is_manual boolean, id text, amount numeric, ts
-- timestamptz, value numeric or NULL, sum numeric or NULL, count bigint or
-- NULL, unique_value text or NULL, writer uuid or NULL, writer_seq bigint or
-- NULL, recorded_at timestamptz: that of the ledger, clock_at timestamptz.
SELECT
    metric,
    period_start,
    customer,
    group_key,
    groups,
    is_manual,
    id,
    amount,
    ts,
    value,
    sum,
    count,
    unique_value,
    writer,
    writer_seq,
    COALESCE(stamped_at, recorded_at) AS recorded_at,
    recorded_at AS clock_at
FROM meter.meter_adjustment
WHERE tenant = $1::text
    AND ($2::text IS NULL OR metric = $2::text)
    AND ($3::timestamptz IS NULL OR period_start >= $3::timestamptz);
