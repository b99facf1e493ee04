-- recount_writers - how many ledger rows each writer has of those it wrote.
--
-- $1::date      oldest day that counts, NULL: all
-- $2::uuid[]    writer
-- $3::bigint[]  rows of that writer with a greater writer_seq only; of other
--               writers all
--
-- Rows: writer uuid, wanted bigint: rows that must be there, found bigint:
-- rows that are, is_dense boolean: they are just those that must be. Also
-- a writer that has rows and no numbers.
WITH known AS (
    SELECT
        known.writer,
        known.last
    FROM unnest($2::uuid[], $3::bigint[]) AS known (writer, last)
),
held AS (
    SELECT
        event.writer,
        count(*) AS rows,
        min(event.writer_seq) AS lowest,
        max(event.writer_seq) AS highest,
        sum(event.writer_seq) AS total
    FROM meter.event AS event
    WHERE ($1::date IS NULL OR event.part_day >= $1::date)
        AND event.writer_seq > COALESCE(
            (
                SELECT known.last
                FROM known
                WHERE known.writer = event.writer
            ),
            0
        )
    GROUP BY event.writer
),
written AS (
    SELECT
        COALESCE(writer_seq.writer, known.writer) AS writer,
        COALESCE(writer_seq.last, 0) AS last,
        COALESCE(known.last, 0) AS base
    FROM meter.writer_seq AS writer_seq
    FULL JOIN known ON known.writer = writer_seq.writer
)
SELECT
    COALESCE(written.writer, held.writer) AS writer,
    GREATEST(COALESCE(written.last - written.base, 0), 0) AS wanted,
    COALESCE(held.rows, 0) AS found,
    CASE
        WHEN written.writer IS NULL OR written.last < written.base THEN false
        WHEN held.writer IS NULL THEN written.last = written.base
        ELSE held.rows = written.last - written.base
            AND held.lowest = written.base + 1
            AND held.highest = written.last
            AND held.total = (written.last::numeric * (written.last + 1)
                - written.base::numeric * (written.base + 1)) / 2
    END AS is_dense
FROM written
FULL JOIN held ON held.writer = written.writer
ORDER BY 1;
