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
 * Items of rings stand between the others, see batch_rings.h. An event whose
 * id the edge minted has no identity: its sequence number decides.
 */

#ifndef INGEST_BATCH_H
#define INGEST_BATCH_H

#include "base/map.h"
#include "ingest/batch_rings.h"
#include "meter_event.h"
#include "project/projection.h"

/* Up to here known keys are asked for scope by scope. */
#define BATCH_SCOPES_MAX 8

/* An identity as bytes: the registry key, then the scope. */
#define BATCH_IDENTITY_SIZE_MAX (METER_KEY_SIZE + METER_TENANT_SIZE_MAX)

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
