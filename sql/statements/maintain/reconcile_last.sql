-- reconcile_last - the last comparison of all projections, as one.
--
-- One row: finished_at bigint (unix time of the oldest, 0: there is none),
-- status integer (1 before 4 before 3 before 0), differences bigint.
SELECT
    coalesce(extract(EPOCH FROM min(finished_at)), 0)::bigint AS finished_at,
    coalesce(
        min(status) FILTER (WHERE status = 1),
        max(status),
        0
    ) AS status,
    coalesce(sum(differences), 0)::bigint AS differences
FROM meter.reconcile_result;
