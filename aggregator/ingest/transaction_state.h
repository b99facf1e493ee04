/*
 * transaction_state.h - the inside of a transaction, for its own files.
 *
 *   transaction.c          states and the order of steps
 *   transaction_days.c     partitions, before anything begins
 *   transaction_steps.c    the steps of the fast path and the common ones
 *   transaction_careful.c  the steps of the careful path
 *   transaction_projections.c  statements of the projections
 *   transaction_rings.c    what records of rings add to the steps
 *   transaction_plan.c     what follows an error
 */

#ifndef INGEST_TRANSACTION_STATE_H
#define INGEST_TRANSACTION_STATE_H

#include "base/said.h"
#include "ingest/batch_rows.h"
#include "ingest/hope.h"
#include "ingest/suspect.h"
#include "ingest/transaction.h"

/* Halves of halves: enough for any batch that fits into memory. */
#define TRANSACTION_CUTS_MAX 64
/* Up to here INSERT in three round trips: as fast as COPY on the same host,
   and faster over a network. */
#define TRANSACTION_INSERT_EVENTS_MAX 8

enum transaction_state {
    TRANSACTION_IDLE,       /* nothing to do */
    TRANSACTION_PARTITIONS, /* waits for days of the ledger and the audit */
    TRANSACTION_LOOKUP,     /* BEGIN, both locks, known keys */
    TRANSACTION_REGISTRY,   /* fast: new keys, none of them known */
    TRANSACTION_REGISTER,   /* careful: keys, known ones passed over */
    TRANSACTION_KNOWN,      /* careful: what the passed-over keys hold */
    TRANSACTION_ENTITIES,   /* rows that decide about others */
    TRANSACTION_LOCKS,      /* careful: all other rows, made and locked */
    TRANSACTION_LEDGER,     /* accepted events */
    TRANSACTION_AUDIT,      /* duplicates and conflicts */
    TRANSACTION_EFFECTS,    /* rows of projections, writer's numbers */
    TRANSACTION_COMMIT,     /* COMMIT sent; from here a loss means doubt */
    TRANSACTION_ROLLBACK,   /* after an error; the plan is made already */
    TRANSACTION_PAUSE,      /* waits for its timer, then runs again */
    TRANSACTION_AWAY,       /* waits for the lane, then runs again */
    TRANSACTION_DOUBT,      /* waits for the lane, which knows the outcome */
    TRANSACTION_STATES
};

/* What a step did. */
enum transaction_sent {
    TRANSACTION_NOTHING, /* no rows for it: the next step follows */
    TRANSACTION_QUEUED,  /* shares a flush with the next step */
    TRANSACTION_SENT,    /* answers will come */
    TRANSACTION_FAILED   /* could not be made; failure is set */
};

enum transaction_path {
    TRANSACTION_PATH_FAST,   /* may skip asking for known keys, see hope.h */
    TRANSACTION_PATH_ASKING, /* fast, but asks in any case */
    TRANSACTION_PATH_CAREFUL
};

/* A stretch of the batch that is one transaction. */
struct transaction_cut {
    struct batch_item **items;
    size_t count;
    enum transaction_path path;
};

/* What to do about a failed try. */
enum transaction_remedy {
    TRANSACTION_AGAIN,       /* at once; something has changed */
    TRANSACTION_RETRY,       /* soon: a deadlock, a lost race */
    TRANSACTION_ASK,         /* at once, asking for known keys */
    TRANSACTION_CAREFUL,     /* at once, on the careful path */
    TRANSACTION_BISECT,      /* in halves; a lone event is rejected */
    TRANSACTION_REPARTITION, /* after a look at the partitions */
    TRANSACTION_WAIT         /* later: trouble that is not the events' */
};

/* A statement of a projection that has no answer yet. */
struct transaction_asked {
    enum projection_id projection;
    enum projection_phase phase;
    size_t at;
};

/* Why a try came to nothing; outcome OK: it did not. */
struct transaction_failure {
    enum pg_outcome outcome;
    enum transaction_remedy remedy;
    char sqlstate[6];
};

struct transaction {
    struct lane *lane;
    struct partition *partition;
    struct suspect *suspect; /* NULL: crashes are not looked into */
    const struct transaction_events *events;
    void *owner;

    enum transaction_state state;
    struct transaction_cut cuts[TRANSACTION_CUTS_MAX]; /* next one last */
    size_t cut_count;
    struct hope hope;
    bool is_hopeful; /* this try: known keys are not asked for */
    bool is_ahead;   /* told: the order is ahead of the database's clock */
    bool is_insert;  /* this try: INSERT in place of COPY */
    bool has_states; /* this try: the ledger waits for ENTITIES; fast path */

    size_t answers_due; /* of the flush under way */
    struct transaction_failure failure;
    unsigned tries; /* in vain, in a row */
    uint64_t pause_ms;
    bool is_able;
    struct said said;        /* why it is not */
    uint64_t tried_us;       /* when the try under way began */
    bool is_refresh_due;     /* partitions: read them again first */
    bool is_replication_due; /* the COMMIT is not known to be replicated */

    struct batch batch;
    struct batch_stamp stamp;
    int64_t last;            /* as locked */
    int32_t event_floor_day; /* that the days of the items were made with */
    uint64_t started_us;
    int64_t looked_us; /* the database's clock, as projections were told */
    int64_t clock_margin_us; /* how far it may have gone since */
    size_t audit_at;         /* where the next piece of the audit begins */
    size_t known_scope;      /* scope of the next ingest_known_scope answer */
    size_t known_count;      /* rows of all look-ups of this try */
    struct transaction_asked *asked; /* in the order of their answers */
    size_t asked_count;
    size_t asked_room;
    size_t asked_at; /* whose answer comes next */

    struct pg_params params;
    struct buf registry_stream;
    struct buf event_stream;
    struct buf audit_stream;
    bool is_ledger_made; /* encoded ahead, while the server was working */
    bool is_folded;      /* likewise */

    uv_timer_t timer;      /* the pause, or work while a COPY runs */
    bool is_partition_due; /* a partition callback is outstanding */
    bool is_closing;
    bool is_timer_closed;
};

static inline struct transaction_cut *
transaction_cut(struct transaction *tx)
{
    CHECK(tx->cut_count > 0);
    return &tx->cuts[tx->cut_count - 1];
}

static inline bool
transaction_is_careful(struct transaction *tx)
{
    return transaction_cut(tx)->path == TRANSACTION_PATH_CAREFUL;
}

/* transaction.c */
/* One try of the top cut, from the beginning. */
void transaction_start(struct transaction *tx);
/* Waits for pause_ms, then starts. */
void transaction_pause(struct transaction *tx);
void transaction_set_able(struct transaction *tx, bool is_able);
void transaction_free_if_done(struct transaction *tx);
/* An answer is due; call before each piece of work that is queued. */
void transaction_expect(struct transaction *tx);
/* Callbacks of statements without rows of interest. */
void transaction_answer_cb(void *asker, const struct pg_answer *answer);
/*
 * Every special callback ends here: notes the first failure, and with the
 * last answer of the flush goes on.
 */
void
transaction_answered(struct transaction *tx, const struct pg_answer *answer);
/* Notes a failure of our own finding, as if the server had reported it. */
void transaction_fail(struct transaction *tx, enum transaction_remedy remedy);
/* True when this answer holds rows and nothing has failed before it. */
bool transaction_is_good(const struct transaction *tx,
                         const struct pg_answer *answer);

/* transaction_plan.c */
enum transaction_remedy
transaction_remedy(struct transaction *tx, const struct pg_answer *answer);
/* Sets what the next try of the top cut does differently. */
void transaction_plan(struct transaction *tx);
void transaction_plan_wait(struct transaction *tx);
/* The failure is one that a ROLLBACK does not cure. */
bool transaction_needs_connection(const struct transaction *tx);
/* Cuts a careful try that is too long. */
void transaction_limit_careful(struct transaction *tx);

/* transaction_days.c */
/*
 * Days of the items; true when all have their partitions. Else they are
 * being made, and the try starts again when that is done.
 */
bool transaction_days(struct transaction *tx);
/* Reads the days again, then starts. */
void transaction_refresh_days(struct transaction *tx);

/* transaction_steps.c */
enum transaction_sent transaction_lookup_send(struct transaction *tx);
void transaction_lookup_done(struct transaction *tx);
enum transaction_sent transaction_registry_send(struct transaction *tx);
enum transaction_sent transaction_ledger_send(struct transaction *tx);
enum transaction_sent transaction_audit_send(struct transaction *tx);
enum transaction_sent transaction_effects_send(struct transaction *tx);
enum transaction_sent transaction_commit_send(struct transaction *tx);
enum transaction_sent transaction_rollback_send(struct transaction *tx);
/* Queues params, or fails when they could not be made. */
enum transaction_sent
transaction_queue(struct transaction *tx, enum statement statement,
                  pg_answer_cb cb);
/* Takes in rows of ingest_known. */
void transaction_known_cb(void *asker, const struct pg_answer *answer);

/* transaction_careful.c */
enum transaction_sent transaction_register_send(struct transaction *tx);
enum transaction_sent transaction_unregistered_send(struct transaction *tx);
enum transaction_sent transaction_careful_states_send(struct transaction *tx);
enum transaction_sent transaction_locks_send(struct transaction *tx);
void transaction_locks_done(struct transaction *tx);

/* transaction_projections.c */
/* Tells the projections of the items and queues what they want to know. */
enum transaction_sent transaction_look(struct transaction *tx);
/* Queues the statements of a phase; NOTHING when there are none. */
enum transaction_sent
transaction_project(struct transaction *tx, enum projection_phase phase);
/* Fast path: folds, once per try. False: the try has failed. */
bool transaction_fold(struct transaction *tx);
/* A projection's word as a failure of the try; OK: none. */
void transaction_judge(struct transaction *tx, enum projection_result result);
/* Fast path, when verdicts are known: has_states. False: no memory. */
bool transaction_collect_states(struct transaction *tx);
/* Both paths: rows of the phase STATES, locked; then the fast path folds. */
enum transaction_sent transaction_states_send(struct transaction *tx);
void transaction_states_done(struct transaction *tx);
struct projection_stamp transaction_stamp(const struct transaction *tx);

/* transaction_rings.c */
/* Queues the locks of the sessions; NOTHING when the batch has none. */
enum transaction_sent transaction_rings_lock(struct transaction *tx);
/* False: some items are not to be taken; the try has failed. */
bool transaction_rings_judge(struct transaction *tx);
/* Queues what rings leave behind; all verdicts are final. */
enum transaction_sent transaction_rings_advance(struct transaction *tx);
/* The state has changed: says whose record is in hand, if it is asked. */
void transaction_rings_mark(struct transaction *tx);

#endif
