-- close_freeze - a close is complete; its figures are kept as billed.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
-- $4::text         the period, as the metric names it
-- $5::text         aggregation of the metric
--
-- Row: closed_at timestamptz. In a transaction behind that of close_pass: no
-- one folds into the period any more, and no one is held up while its
-- figures are copied. Where it was complete already nothing is changed, nor
-- made up. Value and total are those of billing_value and billing_total in
-- meterd.
WITH closing AS MATERIALIZED (
    SELECT closed_at
    FROM meter.meter_close
    WHERE tenant = $1::text
        AND metric = $2::text
        AND period_start = $3::timestamptz
        AND frozen_at IS NULL
    FOR UPDATE
),
billed AS (
    INSERT INTO meter.meter_billed (
        tenant,
        metric,
        period_start,
        customer,
        group_key,
        groups,
        value,
        total
    )
    SELECT
        counter.tenant,
        counter.metric,
        counter.period_start,
        counter.customer,
        counter.group_key,
        counter.groups,
        CASE $5::text
            WHEN 'sum' THEN counter.sum
            WHEN 'count' THEN counter.count
            WHEN 'unique' THEN counter.uniques
            WHEN 'avg' THEN CASE
                WHEN counter.last_ts IS NOT NULL
                    THEN meter.mean(counter.sum, counter.count)
            END
            WHEN 'min' THEN counter.min
            WHEN 'max' THEN counter.max
            WHEN 'last' THEN counter.last
        END,
        CASE
            WHEN everything.value IS NOT NULL OR counter.manual_sum <> 0
                THEN COALESCE(everything.value, 0)
                    + COALESCE(counter.manual_sum, 0)
        END
    FROM meter.meter_counter AS counter
    CROSS JOIN LATERAL (
        SELECT
            counter.sum + COALESCE(counter.late_sum, 0) AS sum,
            counter.count + COALESCE(counter.late_count, 0) AS count
    ) AS summed
    CROSS JOIN LATERAL (
        SELECT
            CASE $5::text
                WHEN 'sum' THEN summed.sum
                WHEN 'count' THEN summed.count
                WHEN 'unique' THEN counter.uniques
                    + COALESCE(counter.late_uniques, 0)
                WHEN 'avg' THEN CASE
                    WHEN counter.last_ts IS NOT NULL
                            OR counter.late_last_ts IS NOT NULL
                        THEN meter.mean(summed.sum, summed.count)
                END
                WHEN 'min' THEN LEAST(counter.min, counter.late_min)
                WHEN 'max' THEN GREATEST(counter.max, counter.late_max)
                WHEN 'last' THEN CASE
                    WHEN counter.last_ts IS NULL
                            OR (
                                counter.late_last_ts,
                                counter.late_last_recorded_at,
                                counter.late_last_writer,
                                counter.late_last_seq
                            ) > (
                                counter.last_ts,
                                counter.last_recorded_at,
                                counter.last_writer,
                                counter.last_seq
                            )
                        THEN counter.late_last
                    ELSE counter.last
                END
            END AS value
    ) AS everything
    WHERE counter.tenant = $1::text
        AND counter.metric = $2::text
        AND counter.period_start = $3::timestamptz
        AND EXISTS (SELECT FROM closing)
    RETURNING customer
),
complete AS (
    UPDATE meter.meter_close
    SET
        frozen_at = clock_timestamp(),
        period = $4::text,
        figures = (SELECT count(*) FROM billed)
    WHERE tenant = $1::text
        AND metric = $2::text
        AND period_start = $3::timestamptz
        AND frozen_at IS NULL
)
SELECT closed_at
FROM meter.meter_close
WHERE tenant = $1::text
    AND metric = $2::text
    AND period_start = $3::timestamptz;
