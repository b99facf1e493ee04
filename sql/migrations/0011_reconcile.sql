-- 0011 reconcile: what the last comparison with the ledger has found.

-- One row for each projection, and `ledger` for ledger and registry; written
-- by runs that were not narrowed, read by meterd for its metrics.
CREATE TABLE meter.reconcile_result (
    projection  text        COLLATE "C" PRIMARY KEY,
    status      integer     NOT NULL, -- exit status of the command
    differences bigint      NOT NULL CHECK (differences >= 0),
    finished_at timestamptz NOT NULL
);

GRANT SELECT, INSERT, UPDATE ON meter.reconcile_result TO meter_writer;
