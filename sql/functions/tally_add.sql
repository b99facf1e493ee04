-- meter.tally_labels, meter.tally_counts - two tallies added up.
--
-- A tally is labels (bytewise ascending) and as many counts; NULL: none.
-- tally_labels gives the labels of the sum, tally_counts its counts.
CREATE OR REPLACE FUNCTION meter.tally_labels(
    labels       text[],
    other_labels text[]
)
RETURNS text[]
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
SECURITY INVOKER
AS $$
    SELECT CASE
        WHEN labels IS NULL THEN other_labels
        WHEN other_labels IS NULL OR labels = other_labels THEN labels
        ELSE (
            SELECT pg_catalog.array_agg(
                DISTINCT label COLLATE "C"
                ORDER BY label COLLATE "C"
            )
            FROM pg_catalog.unnest(labels || other_labels) AS both_of (label)
        )
    END
$$;

CREATE OR REPLACE FUNCTION meter.tally_counts(
    labels       text[],
    counts       bigint[],
    other_labels text[],
    other_counts bigint[]
)
RETURNS bigint[]
LANGUAGE sql
IMMUTABLE
PARALLEL SAFE
SECURITY INVOKER
AS $$
    SELECT CASE
        WHEN labels IS NULL THEN other_counts
        WHEN other_labels IS NULL THEN counts
        ELSE (
            SELECT pg_catalog.array_agg(
                summed.count
                ORDER BY summed.label COLLATE "C"
            )
            FROM (
                SELECT
                    both_of.label,
                    pg_catalog.sum(both_of.count)::bigint AS count
                FROM (
                    SELECT one.label, one.count
                    FROM ROWS FROM (
                        pg_catalog.unnest(labels),
                        pg_catalog.unnest(counts)
                    ) AS one (label, count)
                    UNION ALL
                    SELECT two.label, two.count
                    FROM ROWS FROM (
                        pg_catalog.unnest(other_labels),
                        pg_catalog.unnest(other_counts)
                    ) AS two (label, count)
                ) AS both_of
                GROUP BY both_of.label
            ) AS summed
        )
    END
$$;

REVOKE ALL ON FUNCTION meter.tally_labels(text[], text[]) FROM PUBLIC;
REVOKE ALL
    ON FUNCTION meter.tally_counts(text[], bigint[], text[], bigint[])
    FROM PUBLIC;
GRANT EXECUTE
    ON FUNCTION meter.tally_labels(text[], text[])
    TO meter_writer;
GRANT EXECUTE
    ON FUNCTION meter.tally_counts(text[], bigint[], text[], bigint[])
    TO meter_writer;
