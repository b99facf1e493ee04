/*
 * batch_rings.h - records of rings in one transaction. Pure.
 *
 *   records -> [load] -> sessions -> rows locked -> [judge] -> fates
 *                        verdicts -> [advance] -> rows as they are written
 *
 * A ring is a session, and its row says how far it has come. Of each session
 * the items are taken in arrival order while their numbers follow the row's:
 * what lies at or below is a replay, what lies past the next number is a gap,
 * and neither has an effect. A record that is rejected covers its number
 * like any other and becomes a dead letter.
 *
 *   dead letters -> [load] -> rows deleted -> [judge] -> ... as above
 *
 * A dead letter that is judged again has its number covered already: its row
 * decides in place of the session's. Found and deleted it is taken, and what
 * it stands for moves from rejected to its verdict; gone it is a replay.
 * Rejected again it stays where it is.
 */

#ifndef INGEST_BATCH_RINGS_H
#define INGEST_BATCH_RINGS_H

#include "base/map.h"
#include "meter_ring.h"

#define BATCH_SESSION_SIZE 16
#define BATCH_SEQ_MAX      (INT64_MAX - 1)

/* Beside enum meter_loss_reason: the database went back past the ring. */
#define BATCH_LOSS_REWOUND (1 << 3)

struct batch;
struct batch_item;

enum batch_kind {
    BATCH_EVENT, /* EVENT, DELTA, DUPNOTE: judged as any event */
    BATCH_LOSS,  /* LOSSNOTE: requests that could not be recorded */
    BATCH_HELLO  /* no record: asks how far the session has come */
};

/* What the locked row says of an item. */
enum batch_fate {
    BATCH_TAKEN,  /* the next number of its session */
    BATCH_REPLAY, /* known: no effect */
    BATCH_GAP,    /* past the next number: not taken */
    BATCH_BEHIND  /* behind a gap: not taken */
};

/* A session's row. */
struct batch_totals {
    int64_t last_seq;
    int64_t verdicts[METER_VERDICT_COUNT]; /* in requests */
    int64_t lost;                          /* requests that were not recorded */
};

struct batch_session {
    struct meter_str key; /* its 16 bytes */
    struct meter_str node;
    struct batch_totals locked; /* as found */
    struct batch_totals totals; /* as written */
    bool is_hello;              /* the row is to be made where missing */
    bool is_locked;             /* the row was there */
    bool is_moved;              /* it is to be written */
    bool is_settled;            /* of that only what became of requests */

    /* While judging: the next number, and whether a gap lies behind us. */
    int64_t next_seq;
    bool is_gapped;
};

/* What the items of one request of a ring share. */
struct batch_ring {
    uint8_t session[BATCH_SESSION_SIZE];
    struct meter_str node; /* UTF-8 */
    bool is_letters;       /* they are dead letters, judged again */

    /* Found by the transaction; final once it has committed. */
    struct batch_session *row;
    struct batch_totals totals; /* the row behind this request's last item */
    int64_t missing;            /* HELLO: records given up */
    int64_t expected_seq;       /* GAP */
};

/* What an item of a ring has beside its event. */
struct batch_record {
    struct batch_ring *ring;
    enum batch_kind kind;
    int64_t seq;             /* HELLO: first number that the ring can send */
    int64_t weight;          /* requests that it stands for */
    struct meter_str bytes;  /* the whole record */
    struct meter_str tenant; /* of its dead letter */
    struct meter_loss loss;  /* LOSS */
    bool is_poison;          /* was not read */
    bool is_found;           /* a letter: this run has deleted its row */
    enum batch_fate fate;    /* stays from one run to the next */
};

struct batch_rings {
    size_t record_count; /* items of rings, HELLOs included */
    size_t hello_count;
    struct batch_session **sessions; /* by their bytes */
    size_t session_count;
    size_t session_room;
    struct map session_map;
    struct batch_item **letters; /* to be deleted, in arrival order */
    size_t letter_count;
    size_t moved_count; /* sessions to write; set by advance, as all below */
    size_t settled_count;
    size_t dead_count; /* dead letters */
    size_t loss_count; /* losses told and found */
};

void batch_rings_init(struct batch_rings *rings);
void batch_rings_fini(struct batch_rings *rings);
/* Before a run; a batch without items of rings needs no more than this. */
void batch_rings_clear(struct batch_rings *rings);

/* The sessions of a batch that has items of rings. False: no memory. */
MUST_CHECK bool batch_rings_load(struct batch *batch);
/* A row as the database holds it. False: not one of this batch. */
MUST_CHECK bool
batch_session_locked(struct batch *batch, struct meter_str session,
                     const struct batch_totals *totals);
/* The letter at this place was found and deleted. False: no such place. */
MUST_CHECK bool batch_letter_found(struct batch *batch, int64_t place);
/*
 * The fates by the locked rows. True: they are those of the run before; else
 * they have changed, and the batch must be loaded again.
 */
MUST_CHECK bool batch_rings_judge(struct batch *batch);
/* When all verdicts are final: the rows as they are written. */
void batch_rings_advance(struct batch *batch);

/* Rejected for the first time, and its number is covered by this run. */
bool batch_item_is_dead(const struct batch_item *item);
/* Tells or finds a loss in this run. */
bool batch_item_has_loss(const struct batch_item *item);

#endif
