-- recount_reopen - notes that a closed period is changed by a rebuild.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
-- $4::text         who runs the command
-- $5::text         reason
-- $6::bigint       figures that are changed
--
-- No rows. In the transaction that changes them.
INSERT INTO meter.meter_reopen (
    tenant,
    metric,
    period_start,
    reopened_at,
    actor,
    reason,
    figures
)
VALUES (
    $1::text,
    $2::text,
    $3::timestamptz,
    clock_timestamp(),
    $4::text || ' (database user ' || session_user || ')',
    $5::text,
    $6::bigint
);
