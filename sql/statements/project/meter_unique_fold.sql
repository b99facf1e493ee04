-- meter_unique_fold - counts the values of folded events, each once.
--
-- $1::text[]         tenant
-- $2::text[]         metric
-- $3::timestamptz[]  period_start
-- $4::text[]         customer
-- $5::bytea[]        group_key
-- $6::text[]         value
--
-- No rows. Values come once each, in bytewise order of the key. Only after
-- meter_upsert in the same transaction: it holds the locks of the meter
-- rows, so that no one else is at their values. A value that is new makes
-- uniques one more; one that only late events had becomes a folded one and
-- is no longer among late_uniques; any other is left alone, which costs no
-- write at all.
WITH asked AS MATERIALIZED (
    SELECT
        given.tenant,
        given.metric,
        given.period_start,
        given.customer,
        given.group_key,
        given.value
    FROM unnest(
        $1::text[],
        $2::text[],
        $3::timestamptz[],
        $4::text[],
        $5::bytea[],
        $6::text[]
    ) AS given (tenant, metric, period_start, customer, group_key, value)
),
added AS (
    INSERT INTO meter.meter_unique (
        tenant,
        metric,
        period_start,
        customer,
        group_key,
        value,
        is_folded
    )
    SELECT
        asked.tenant,
        asked.metric,
        asked.period_start,
        asked.customer,
        asked.group_key,
        asked.value,
        true
    FROM asked
    ON CONFLICT DO NOTHING
    RETURNING tenant, metric, period_start, customer, group_key
),
turned AS (
    UPDATE meter.meter_unique
    SET is_folded = true
    FROM asked
    WHERE meter_unique.tenant = asked.tenant
        AND meter_unique.metric = asked.metric
        AND meter_unique.period_start = asked.period_start
        AND meter_unique.customer = asked.customer
        AND meter_unique.group_key = asked.group_key
        AND meter_unique.value = asked.value
        AND NOT meter_unique.is_folded
    RETURNING
        meter_unique.tenant,
        meter_unique.metric,
        meter_unique.period_start,
        meter_unique.customer,
        meter_unique.group_key
),
counted AS (
    SELECT
        moved.tenant,
        moved.metric,
        moved.period_start,
        moved.customer,
        moved.group_key,
        count(*) AS folded,
        sum(moved.was_late) AS late
    FROM (
        SELECT
            added.*,
            0 AS was_late
        FROM added
        UNION ALL
        SELECT
            turned.*,
            1 AS was_late
        FROM turned
    ) AS moved
    GROUP BY
        moved.tenant,
        moved.metric,
        moved.period_start,
        moved.customer,
        moved.group_key
)
UPDATE meter.meter_counter
SET
    uniques = meter_counter.uniques + counted.folded,
    late_uniques = meter_counter.late_uniques - counted.late
FROM counted
WHERE meter_counter.tenant = counted.tenant
    AND meter_counter.metric = counted.metric
    AND meter_counter.period_start = counted.period_start
    AND meter_counter.customer = counted.customer
    AND meter_counter.group_key = counted.group_key;
