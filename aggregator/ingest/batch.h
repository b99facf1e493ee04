/*
 * batch.h - the events of one transaction and what becomes of each. Pure.
 *
 *   ingest -> [batch] -> batch_rows -> transaction
 *
 * A batch refers to items that belong to requests. It finds repeats inside
 * itself, takes in what the registry knows, and decides verdicts as if the
 * events had come one by one in arrival order: the first of a new id is
 * accepted, later ones are compared with it. Keys leave sorted by their
 * bytes, so that two lanes lock in the same order; so do the rows of the
 * projections, which see the accepted items in arrival order.
 *
 * An event whose id the edge minted has no identity: its sequence number
 * decides.
 *
 *   records -> [load] -> sessions -> rows locked -> [judge] -> fates
 *                        verdicts -> [advance] -> rows as they are written
 *
 * Items of rings stand between the others. A ring is a session, and its row
 * says how far it has come. Of each session the items are taken in arrival
 * order while their numbers follow the row's: what lies at or below is a
 * replay, what lies past the next number is a gap, and neither has an effect. A
 * record that is rejected covers its number like any other and becomes a dead
 * letter.
 *
 *   dead letters -> [load] -> rows deleted -> [judge] -> ... as above
 *
 * A dead letter that is judged again has its number covered already: its row
 * decides in place of the session's. Found and deleted it is taken, and what
 * it stands for moves from rejected to its verdict; gone it is a replay.
 * Rejected again it stays where it is.
 */

#ifndef INGEST_BATCH_H
#define INGEST_BATCH_H

#include "base/map.h"
#include "meter_event.h"
#include "meter_ring.h"
#include "project/projection.h"

/* Up to here known keys are asked for scope by scope. */
#define BATCH_SCOPES_MAX 8

/* An identity as bytes: the registry key, then the scope. */
#define BATCH_IDENTITY_SIZE_MAX (METER_KEY_SIZE + METER_TENANT_SIZE_MAX)

#define BATCH_SESSION_SIZE 16
#define BATCH_SEQ_MAX      (INT64_MAX - 1)

/* Beside enum meter_loss_reason: the database went back past the ring. */
#define BATCH_LOSS_REWOUND (1 << 3)

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

/* What the registry holds under an identity. */
struct batch_known {
    struct meter_str tenant;
    struct meter_fingerprint fingerprint;
    int64_t first_seen_us;
};

struct batch_item {
    /* Given with the event. */
    const struct meter_event *event; /* NULL: a record that has none */
    struct batch_record *record;     /* NULL: not of a ring */
    struct meter_str identity;       /* empty: minted id */
    struct meter_fingerprint fingerprint;
    struct effects effects;
    void *owner;         /* the request */
    struct arena *arena; /* the request's; for a reason */
    size_t position;     /* in the request */

    /* Found by the transaction; final once it has committed. */
    struct batch_item *first; /* of this identity in the batch; NULL: out */
    bool is_known;            /* in the registry; set on the first only */
    bool is_registered;       /* by this run of the careful path; likewise */
    struct meter_str known_tenant;
    struct meter_fingerprint known;
    int64_t first_seen_us;
    struct batch_item *holder; /* on the first: who is accepted under it */
    enum meter_verdict verdict;
    bool is_same;       /* a duplicate whose whole content was compared */
    const char *error;  /* set: rejected; left out when run again */
    int64_t writer_seq; /* accepted */
    struct projection_marks marks;
    int32_t part_day;
};

struct batch {
    struct batch_item **items; /* arrival order, borrowed */
    size_t count;

    struct map identities;      /* -> first item */
    struct batch_item **by_key; /* first items by (key, scope) */
    size_t key_count;
    size_t key_room;
    struct meter_str scopes[BATCH_SCOPES_MAX]; /* of by_key, each once */
    size_t scope_count; /* BATCH_SCOPES_MAX + 1: more than that */
    size_t accepted_count;
    size_t minted_count;  /* accepted ones without an identity */
    size_t audited_count; /* duplicates and conflicts */

    struct batch_rings rings;

    void *rows[PROJECTION_COUNT]; /* the projections' own */
    struct arena arena;           /* what the registry told */
};

void batch_init(struct batch *batch);
void batch_fini(struct batch *batch);
/* Gives back the memory that is only kept for reuse. */
void batch_trim(struct batch *batch);

/* Writes key and scope as one identity; returns its size. */
size_t batch_identity(const uint8_t key[METER_KEY_SIZE], struct meter_str scope,
                      char out[BATCH_IDENTITY_SIZE_MAX]);

static inline const uint8_t *
batch_item_key(const struct batch_item *item)
{
    return (const uint8_t *)item->identity.data;
}

static inline struct meter_str
batch_item_scope(const struct batch_item *item)
{
    return (struct meter_str){item->identity.data + METER_KEY_SIZE,
                              item->identity.size - METER_KEY_SIZE};
}

/*
 * Starts a run over items, which are borrowed: forgets what an earlier run
 * found, except that rejected items and those of rings that are not taken
 * stay out. False: no memory.
 */
MUST_CHECK bool
batch_load(struct batch *batch, struct batch_item **items, size_t count);

/* The first item of an identity, NULL when the batch has none. */
struct batch_item *
batch_find(const struct batch *batch, const uint8_t key[METER_KEY_SIZE],
           struct meter_str scope);
/* The same for keys that mostly come in key order; *next starts at 0. */
struct batch_item *
batch_find_next(const struct batch *batch, size_t *next, struct meter_str key,
                struct meter_str scope);
/* Takes in what the registry holds for this first item. False: no memory. */
MUST_CHECK bool batch_item_known(struct batch *batch, struct batch_item *item,
                                 const struct batch_known *known);

/*
 * Verdicts of all items that are not rejected. Accepted ones are numbered
 * from last + 1 on; seen_us is when they are first seen.
 */
void batch_decide(struct batch *batch, int64_t last, int64_t seen_us);

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

/* Some item can only be decided on locked rows. */
bool batch_needs_care(struct batch_item *const *items, size_t count);
/* Tells the projections of every item that may be accepted. */
MUST_CHECK bool batch_look(struct batch *batch, int64_t now_us);
/*
 * Fast path: the rows that decide what the ledger says of accepted items;
 * *has_states: there are any. False: no memory.
 */
MUST_CHECK bool batch_collect_fast(struct batch *batch, bool *has_states);
/* Fast path: all accepted items into the rows of the projections. */
MUST_CHECK enum projection_result
batch_fold(struct batch *batch, const struct projection_stamp *stamp);
/* Careful path: the rows that the accepted items need. False: no memory. */
MUST_CHECK bool batch_collect(struct batch *batch, enum projection_phase phase);
/* The transaction's recorded_us must be greater; 0: may be any. */
int64_t batch_stamp_floor(const struct batch *batch);
/*
 * Applies all items one by one in arrival order to the locked rows. Items
 * that a projection cannot take are rejected with their reason; *rejected is
 * their number. When there are any, the rows are void: run again without
 * them. False: a row is missing that should be there.
 */
MUST_CHECK bool
batch_apply(struct batch *batch, const struct projection_stamp *stamp,
            size_t *rejected);
/* Rejects an item with a formatted reason. */
void batch_item_reject(struct batch_item *item, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
