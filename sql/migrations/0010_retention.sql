-- 0010 retention: the figures of the section `retention` that are in force.

-- Days that a table is kept; -1: for ever. Longer ones are taken as they
-- come, shorter ones when someone has confirmed them. All meterd of the
-- database share it; no row: no retention has looked at the table yet.
CREATE TABLE meter.retention_kept (
    parent text        COLLATE "C" PRIMARY KEY, -- as in meter.partition_span
    days   integer     NOT NULL CHECK (days >= -1),
    since  timestamptz NOT NULL
);

GRANT SELECT ON meter.retention_kept TO meter_writer;
