-- adjustment_make - a manual correction, once per id; see meter.adjust.
--
-- $1::text         tenant
-- $2::text         metric
-- $3::timestamptz  period_start
-- $4::text         customer, '': none
-- $5::bytea        group_key
-- $6::text         groups, canonical JSON
-- $7::text         id
-- $8::text         amount, a decimal
-- $9::text         reason
-- $10::text        actor as the client says, NULL: it does not
-- $11::text        actor in that case
--
-- Row: outcome integer, metric text, period_start timestamptz, customer
-- text, groups text, amount numeric, reason text, actor text, recorded_at
-- timestamptz.
SELECT
    outcome,
    metric,
    period_start,
    customer,
    groups,
    amount,
    reason,
    actor,
    recorded_at
FROM meter.adjust(
    $1::text,
    $2::text,
    $3::timestamptz,
    $4::text,
    $5::bytea,
    $6::text,
    $7::text,
    $8::text::numeric,
    $9::text,
    $10::text,
    $11::text
);
