-- writer_flush_advance - the cut of a flush: rows up to it are in the series.
--
-- $1::uuid         writer
-- $2::bigint       upto as it was
-- $3::bigint       upto as it will be
-- $4::timestamptz  recorded_at of that ledger row, NULL: not known
-- $5::timestamptz  the clock at its transaction, likewise
--
-- Row: flushed_at timestamptz, NULL: not known. None: upto is not what it
-- was, or the database has no such ledger row; nothing may be written then.
-- First in its transaction behind the writer's row. Where the cut is the end
-- of what is committed, everything committed when this statement came is
-- flushed; else what was committed before the last row of the cut. recorded_at
-- is of the order, since rows behind the cut are looked for by it; flushed_at
-- is of the clock, and one that is ahead of it is given up.
UPDATE meter.writer_flush
SET
    upto = $3::bigint,
    recorded_at = CASE
        WHEN writer_seq.last = $3::bigint THEN writer_seq.stamped_at
        ELSE COALESCE($4::timestamptz, writer_flush.recorded_at)
    END,
    flushed_at = GREATEST(
        CASE
            WHEN writer_flush.flushed_at <= statement_timestamp()
                THEN writer_flush.flushed_at
        END,
        CASE
            WHEN writer_seq.last = $3::bigint THEN statement_timestamp()
            ELSE $5::timestamptz
        END
    )
FROM meter.writer_seq
WHERE writer_flush.writer = $1::uuid
    AND writer_flush.upto = $2::bigint
    AND writer_seq.writer = $1::uuid
    AND writer_seq.last >= $3::bigint
RETURNING writer_flush.flushed_at;
