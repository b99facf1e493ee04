-- query_windows - starts of windows of whole days in a time zone.
--
-- $1::text         time zone
-- $2::timestamptz  from
-- $3::timestamptz  to; NULL: now
-- $4::integer      days of a window
-- $5::date         a day on which a window starts
-- $6::bigint       limit
--
-- Rows, ascending: at timestamptz, until timestamptz: to. The first window
-- holds from, the last row is the end of the last one. One row with at NULL:
-- there is no such time zone. A day starts with the first instant that has
-- its date there: where midnight is skipped after it, where it comes twice
-- with the first one. A day that was skipped starts with the next.
WITH asked AS MATERIALIZED (
    SELECT
        meter.zone_exists($1::text) AS is_zone,
        coalesce($3::timestamptz, statement_timestamp()) AS until
),
bounds AS MATERIALIZED (
    SELECT
        asked.until,
        (
            ($2::timestamptz AT TIME ZONE $1::text)::date - $5::date
        ) AS first_day,
        (
            (asked.until AT TIME ZONE $1::text)::date - $5::date
        ) AS last_day
    FROM asked
    WHERE asked.is_zone
),
days AS MATERIALIZED (
    SELECT
        bounds.until,
        $5::date + (
            floor(bounds.first_day::numeric / $4::integer)::integer
            + steps.step
        ) * $4::integer AS day
    FROM bounds
    CROSS JOIN LATERAL generate_series(
        0,
        least(
            (bounds.last_day - bounds.first_day) / $4::integer + 2,
            $6::bigint - 1
        )::integer
    ) AS steps (step)
)
SELECT
    NULL::timestamptz AS at,
    asked.until
FROM asked
WHERE NOT asked.is_zone
UNION ALL
(
    SELECT
        least(usual.at, earlier.at) AS at,
        days.until
    FROM days
    CROSS JOIN LATERAL (
        SELECT days.day::timestamp AT TIME ZONE $1::text AS at
    ) AS usual
    CROSS JOIN LATERAL (
        SELECT max(twin.at) AS at
        FROM (
            SELECT
                (
                    days.day::timestamp
                    - (
                        ((usual.at - INTERVAL '6 h') AT TIME ZONE $1::text)
                        - ((usual.at - INTERVAL '6 h') AT TIME ZONE 'UTC')
                    )
                ) AT TIME ZONE 'UTC' AS at
        ) AS twin
        WHERE (twin.at AT TIME ZONE $1::text)::date = days.day
    ) AS earlier
    ORDER BY days.day
);
