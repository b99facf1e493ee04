-- dead_letter_reasons - how many dead letters there are for which reason.
--
-- $1::text         tenant, NULL: all
-- $2::timestamptz  recorded at or after, NULL: any time
-- $3::bigint       at most so many reasons
--
-- Rows, the most frequent reason first: reason text, letters bigint, total
-- bigint: letters of all reasons.
SELECT
    reason,
    count(*) AS letters,
    (sum(count(*)) OVER ())::bigint AS total
FROM meter.dead_letter
WHERE ($1::text IS NULL OR tenant = $1::text)
    AND ($2::timestamptz IS NULL OR recorded_at >= $2::timestamptz)
GROUP BY reason
ORDER BY
    letters DESC,
    reason COLLATE "C"
LIMIT $3::bigint;
