-- close_billed - figures of a close, as they were when it was made.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
-- $4::text         of the row to go on behind: customer,
-- $5::bytea        group_key
-- $6::bigint       limit
--
-- Rows, by customer and group_key: customer text, group_key bytea, groups
-- text, value numeric or NULL, total numeric or NULL. Runs as meter_reader
-- with the tenant set.
SELECT
    customer,
    group_key,
    groups,
    value,
    total
FROM meter.meter_billed
WHERE tenant = $1::text
    AND metric = $2::text
    AND period_start = $3::timestamptz
    AND (customer, group_key) > ($4::text, $5::bytea)
ORDER BY
    customer,
    group_key
LIMIT $6::bigint;
