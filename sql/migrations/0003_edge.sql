-- 0003 edge: what rings add to the bookkeeping.

-- Requests of a session by verdict, moved with last_seq: what the edge
-- recorded is accounted for to the last request.
ALTER TABLE meter.edge_session
    ADD COLUMN accepted  bigint NOT NULL DEFAULT 0,
    ADD COLUMN duplicate bigint NOT NULL DEFAULT 0,
    ADD COLUMN conflict  bigint NOT NULL DEFAULT 0,
    ADD COLUMN rejected  bigint NOT NULL DEFAULT 0,
    ADD COLUMN lost      bigint NOT NULL DEFAULT 0;

-- Requests that were answered and could not be recorded, as a ring told it,
-- or records that a rewound database lost and no ring had any more.
CREATE TABLE meter.edge_loss (
    session     uuid        NOT NULL,
    seq         bigint      NOT NULL,
    node        text        NOT NULL,
    count       bigint      NOT NULL,
    reasons     integer     NOT NULL, -- 1 full, 2 torn, 4 reboot, 8 rewound
    first_at    timestamptz, -- NULL: not known
    last_at     timestamptz,
    recorded_at timestamptz NOT NULL,
    PRIMARY KEY (session, seq)
);

GRANT INSERT ON meter.edge_loss TO meter_writer;

-- Dead letters are looked at and replayed: whoever deletes the row books the
-- record.
CREATE INDEX dead_letter_identity ON meter.dead_letter (session, seq);

GRANT SELECT, DELETE ON meter.dead_letter TO meter_writer;
