/*
 * bucket_lane.c - one connection that writes buckets, a transaction at a time.
 *
 *   engine -> [lane] -> pg_tx -> PostgreSQL
 *
 *   lock:   BEGIN; lock buckets, read them; known keys; number
 *   write:  what was decided; answers to keep; COMMIT
 *   add:    in place of lock, for plain increments: BEGIN; add; number; then
 *           COMMIT and nothing more
 *
 * Either way one statement, the first, locks and makes the buckets in key
 * order. Keys are looked up after the locks, so that a second request with the
 * same key and bucket finds the answer of the first.
 *
 * The lane has its operations until they end: it runs them again where nothing
 * has happened, asks for its number where a COMMIT has no answer, and runs
 * them one by one where the database blames the data.
 */

#include "buckets/bucket_lane.h"

#include "base/check.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "pg/column.h"
#include "pg/selftest.h"
#include "pg/tx.h"

#include <stdio.h>
#include <stdlib.h>

#define PAUSE_MS         100
#define ARENA_BLOCK_SIZE (64u << 10)
#define ARENA_SIZE_MAX   (64u << 20)

/* As the lane of ingest: by index, planned once. */
#define BUCKET_SETTINGS                                   \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_generic_plan"

enum lane_state {
    LANE_AWAY,    /* for the connection, or the writer */
    LANE_LOOKING, /* for its number */
    LANE_IDLE,    /* for work */
    LANE_RUNNING, /* for the end of a transaction */
    LANE_PAUSED   /* for a moment to pass */
};

/* What to do after a ROLLBACK. */
enum lane_again {
    AGAIN_LATER,     /* the database is in trouble */
    AGAIN_AT_ONCE,   /* someone else was faster */
    AGAIN_WITHOUT,   /* those that have expired meanwhile */
    AGAIN_CAREFUL,   /* adding failed: one by one, with locks */
    AGAIN_APART,     /* it blames the data: one by one */
    AGAIN_ELSEWHERE, /* on a new connection */
};

/* What a transaction did, for the metrics. */
struct lane_tally {
    int64_t operations;
    int64_t applied;
    int64_t negative;
    int64_t overflow;
    int64_t key_taken;
    int64_t repeated; /* answered as before; in none of the above */
};

struct bucket_lane {
    struct pg_conn *conn;
    struct pg_tx tx;
    struct bucket_lane_options options;
    uv_timer_t pause;
    char name[24];
    bool has_writer;
    uint8_t writer[16];

    enum lane_state state;
    bool is_unsure;   /* its COMMIT is not replicated */
    bool is_in_doubt; /* whether it was committed */
    bool is_troubled; /* and this was logged */
    bool is_adding;   /* the transaction adds, and writes nothing more */
    bool is_careful;  /* the next one does not only add */

    struct operation_list running; /* in this transaction */
    struct operation_list waiting; /* after it, one by one */
    struct arena arena;            /* of the batch */
    struct bucket_batch batch;     /* of `running`, unless one has expired */
    struct lane_tally tally;
    struct pg_params params;
    int64_t number; /* of this transaction */
    int64_t found;  /* when looked for: of the last one that was committed */
    int64_t now_us;
};

static void lane_next(struct bucket_lane *lane);


/* ---- rows ------------------------------------------------------------- */

#define BUCKET_COLUMN(kind, member) PG_COLUMN(kind, struct batch_bucket, member)
#define KEY_COLUMN(kind, member)    PG_COLUMN(kind, struct batch_key, member)

#define BUCKET_KEY_COLUMNS 4

/* The first four are the key. */
static const struct pg_column bucket_columns[] = {
    BUCKET_COLUMN(TEXT, key.tenant),
    BUCKET_COLUMN(TEXT, key.name),
    BUCKET_COLUMN(INT8, key.duration_s),
    BUCKET_COLUMN(TIME, key.start_us),
    BUCKET_COLUMN(INT8, now.added),
    BUCKET_COLUMN(INT8, now.subbed),
    PG_COLUMN_NULL_IF(TIME, struct batch_bucket, now.expires_us, BUCKET_NEVER),
};

static const struct pg_column amount_column[] = {BUCKET_COLUMN(INT8, amount)};

#define KEY_NAME_COLUMNS 2

/* The first two are the name. */
static const struct pg_column key_columns[] = {
    KEY_COLUMN(TEXT, tenant),
    KEY_COLUMN(TEXT, key),
    KEY_COLUMN(DIGEST, digest),
    KEY_COLUMN(INT4, result.outcome),
    PG_COLUMN_IF(INT8, struct batch_key, result.added, is_applied),
    PG_COLUMN_IF(INT8, struct batch_key, result.subbed, is_applied),
};

/* Buckets or keys of a batch that are meant; all are asked one by one. */
struct lane_choice {
    const struct bucket_batch *batch;
    int64_t now_us;
};

static const void *
bucket_changed_next(const void *rows, size_t *cursor)
{
    const struct bucket_batch *batch =
        ((const struct lane_choice *)rows)->batch;

    while (*cursor < batch->bucket_count) {
        const struct batch_bucket *bucket = &batch->buckets[(*cursor)++];

        if (bucket->is_changed) {
            return bucket;
        }
    }
    return NULL;
}

/* Those that have expired, and stay so. */
static const void *
bucket_gone_next(const void *rows, size_t *cursor)
{
    const struct lane_choice *choice = rows;
    const struct bucket_batch *batch = choice->batch;

    while (*cursor < batch->bucket_count) {
        const struct batch_bucket *bucket = &batch->buckets[(*cursor)++];

        if (!bucket->is_changed &&
            !bucket_is_live(&bucket->found, choice->now_us)) {
            return bucket;
        }
    }
    return NULL;
}

static const void *
key_fresh_next(const void *rows, size_t *cursor)
{
    const struct bucket_batch *batch =
        ((const struct lane_choice *)rows)->batch;

    while (*cursor < batch->key_count) {
        const struct batch_key *key = &batch->keys[(*cursor)++];

        if (key->is_fresh) {
            return key;
        }
    }
    return NULL;
}

/* Columns of the rows that are meant. False: there are none. */
static bool
lane_put_chosen(struct bucket_lane *lane, const struct pg_column *columns,
                size_t column_count, pg_row_next next)
{
    struct lane_choice choice = {&lane->batch, lane->now_us};
    size_t count = 0;
    size_t cursor = 0;

    while (next(&choice, &cursor) != NULL) {
        count++;
    }
    pg_params_reset(&lane->params);
    if (count > 0) {
        pg_param_columns(&lane->params, columns, column_count, &choice, count,
                         next);
    }
    return count > 0;
}

static void
lane_put_buckets(struct bucket_lane *lane)
{
    pg_params_reset(&lane->params);
    pg_param_rows(&lane->params, bucket_columns, BUCKET_KEY_COLUMNS,
                  lane->batch.buckets, lane->batch.bucket_count,
                  sizeof(*lane->batch.buckets));
}

/* Which of those asked for the row is; false: none. */
static bool
lane_row_index(const void *result, int row, size_t count, size_t *out)
{
    int32_t number = pg_get_int4(result, row, 0);

    if (number < 1 || (size_t)number > count) {
        return false;
    }
    *out = (size_t)number - 1;
    return true;
}


/* ---- the number ------------------------------------------------------- */

static void
lane_put_self(struct bucket_lane *lane)
{
    pg_params_reset(&lane->params);
    pg_param_uuid(&lane->params, lane->writer);
    pg_param_int4(&lane->params, lane->options.index);
}

static void
lane_found_cb(void *owner, const void *result)
{
    struct bucket_lane *lane = owner;

    lane->found = pg_get_int8(result, 0, 0);
}

/* Waits for a backend of ours that may still be committing. */
static void
lane_look(struct bucket_lane *lane)
{
    lane->state = LANE_LOOKING;
    pg_tx_begin(&lane->tx);
    lane_put_self(lane);
    pg_tx_ask(&lane->tx, STATEMENT_BUCKET_LANE_ENSURE, &lane->params,
              lane_found_cb);
    pg_tx_commit(&lane->tx);
}

static void
lane_advanced_cb(void *owner, const void *result)
{
    struct bucket_lane *lane = owner;

    if (pg_row_count(result) == 1) {
        lane->number = pg_get_int8(result, 0, 0);
        lane->now_us = pg_get_time(result, 0, 1);
    } else {
        pg_tx_fail(&lane->tx, AGAIN_ELSEWHERE, "the lane has no row");
    }
}


/* ---- add -------------------------------------------------------------- */

/* Rows come in the order of the buckets. */
static void
lane_added_cb(void *owner, const void *result)
{
    struct bucket_lane *lane = owner;
    int rows = pg_row_count(result);

    if ((size_t)rows != lane->batch.bucket_count) {
        pg_tx_fail(&lane->tx, AGAIN_ELSEWHERE, "a bucket is missing");
        return;
    }
    for (int row = 0; row < rows; row++) {
        lane->batch.buckets[row].now = (struct bucket){
            .exists = true,
            .added = pg_get_int8(result, row, 0),
            .subbed = pg_get_int8(result, row, 1),
        };
    }
}

static void
lane_add_ask(struct bucket_lane *lane)
{
    lane_put_buckets(lane);
    pg_param_rows(&lane->params, amount_column, 1, lane->batch.buckets,
                  lane->batch.bucket_count, sizeof(*lane->batch.buckets));
    pg_tx_ask(&lane->tx, STATEMENT_BUCKET_ADD, &lane->params, lane_added_cb);
}


/* ---- lock ------------------------------------------------------------- */

static void
lane_held_cb(void *owner, const void *result)
{
    struct bucket_lane *lane = owner;
    struct bucket_batch *batch = &lane->batch;
    int rows = pg_row_count(result);
    size_t at;

    if ((size_t)rows != batch->bucket_count) {
        pg_tx_fail(&lane->tx, AGAIN_ELSEWHERE, "a bucket is missing");
        return;
    }
    for (int row = 0; row < rows; row++) {
        if (!lane_row_index(result, row, batch->bucket_count, &at)) {
            pg_tx_fail(&lane->tx, AGAIN_ELSEWHERE, "a bucket is missing");
            return;
        }
        batch->buckets[at].found = (struct bucket){
            .exists = true,
            .added = pg_get_int8(result, row, 1),
            .subbed = pg_get_int8(result, row, 2),
            .expires_us = pg_is_null(result, row, 3)
                              ? BUCKET_NEVER
                              : pg_get_time(result, row, 3),
        };
    }
}

/* A kept answer. False: it is none. */
static bool
lane_known_take(struct batch_key *key, const void *result, int row)
{
    struct meter_str digest = pg_get_bytes(result, row, 1);
    int32_t outcome = pg_get_int4(result, row, 2);

    if (digest.size != sizeof(key->digest) || outcome < BUCKET_APPLIED ||
        outcome > BUCKET_OVERFLOW) {
        return false;
    }
    key->is_known = true;
    memcpy(key->digest, digest.data, sizeof(key->digest));
    key->result = (struct operation_result){
        .end = OPERATION_DECIDED,
        .outcome = (enum bucket_outcome)outcome,
    };
    if (outcome == BUCKET_APPLIED) {
        key->result.added = pg_get_int8(result, row, 3);
        key->result.subbed = pg_get_int8(result, row, 4);
    }
    return true;
}

static void
lane_known_cb(void *owner, const void *result)
{
    struct bucket_lane *lane = owner;
    size_t at;

    for (int row = 0; row < pg_row_count(result); row++) {
        if (!lane_row_index(result, row, lane->batch.key_count, &at) ||
            !lane_known_take(&lane->batch.keys[at], result, row)) {
            pg_tx_fail(&lane->tx, AGAIN_LATER, "a kept answer cannot be read");
            return;
        }
    }
}

static void
lane_lock_ask(struct bucket_lane *lane)
{
    lane_put_buckets(lane);
    pg_tx_ask(&lane->tx, STATEMENT_BUCKET_LOCK, &lane->params, NULL);
    pg_tx_ask(&lane->tx, STATEMENT_BUCKET_HELD, &lane->params, lane_held_cb);
    if (lane->batch.key_count > 0) {
        pg_params_reset(&lane->params);
        pg_param_rows(&lane->params, key_columns, KEY_NAME_COLUMNS,
                      lane->batch.keys, lane->batch.key_count,
                      sizeof(*lane->batch.keys));
        pg_tx_ask(&lane->tx, STATEMENT_IDEMPOTENCY_KNOWN, &lane->params,
                  lane_known_cb);
    }
}


/* ---- write ------------------------------------------------------------ */

/* The first operation of a fresh key is applied, others repeat its answer. */
static bool
lane_is_repeated(struct bucket_batch *batch, size_t index)
{
    uint32_t key = batch->key_of[index];

    if (key == BUCKET_BATCH_NO_KEY) {
        return false;
    }
    if (batch->keys[key].is_fresh) {
        batch->keys[key].is_fresh = false; /* its answer is on its way */
        return false;
    }
    return true;
}

/* Made before the COMMIT, since operations may end before its answer. */
static void
lane_tally_make(struct lane_tally *tally, struct bucket_batch *batch)
{
    *tally = (struct lane_tally){.operations = (int64_t)batch->count};
    for (size_t i = 0; i < batch->count; i++) {
        const struct operation_result *result = &batch->operations[i]->result;

        if (result->end == OPERATION_KEY_TAKEN) {
            tally->key_taken++;
        } else if (lane_is_repeated(batch, i)) {
            tally->repeated++;
        } else {
            tally->applied += result->outcome == BUCKET_APPLIED;
            tally->negative += result->outcome == BUCKET_NEGATIVE;
            tally->overflow += result->outcome == BUCKET_OVERFLOW;
        }
    }
}

static void
lane_tally_count(const struct lane_tally *tally)
{
    metrics.edgemeter_bucket_batches_total++;
    metrics.edgemeter_bucket_batch_operations_total += tally->operations;
    metrics.edgemeter_bucket_operations_total += tally->applied;
    metrics.edgemeter_bucket_negative_total += tally->negative;
    metrics.edgemeter_bucket_overflow_total += tally->overflow;
    metrics.edgemeter_bucket_key_taken_total += tally->key_taken;
    metrics.edgemeter_bucket_repeated_total += tally->repeated;
}

static void
lane_write_ask(struct bucket_lane *lane)
{
    if (lane_put_chosen(lane, bucket_columns, PG_COLUMN_COUNT(bucket_columns),
                        bucket_changed_next)) {
        pg_tx_ask(&lane->tx, STATEMENT_BUCKET_WRITE, &lane->params, NULL);
    }
    if (lane_put_chosen(lane, bucket_columns, BUCKET_KEY_COLUMNS,
                        bucket_gone_next)) {
        pg_tx_ask(&lane->tx, STATEMENT_BUCKET_DELETE, &lane->params, NULL);
    }
    if (lane_put_chosen(lane, key_columns, PG_COLUMN_COUNT(key_columns),
                        key_fresh_next)) {
        pg_param_time(&lane->params, lane->now_us);
        pg_tx_ask(&lane->tx, STATEMENT_IDEMPOTENCY_INSERT, &lane->params, NULL);
    }
}

/* A pg_tx_then: everything is locked, or added. */
static void
lane_write(void *owner)
{
    struct bucket_lane *lane = owner;

    CRASH_POINT("bucket_locked");
    if (lane->is_adding) {
        bucket_batch_decide_added(&lane->batch);
    } else {
        bucket_batch_decide(&lane->batch, lane->now_us);
        lane_write_ask(lane);
    }
    lane_tally_make(&lane->tally, &lane->batch);
    pg_tx_commit(&lane->tx);
    CRASH_POINT("bucket_commit_sent");
}

/* The batch of `running` is made. */
static void
lane_transaction(struct bucket_lane *lane)
{
    lane->state = LANE_RUNNING;
    lane->is_unsure = false;
    lane->is_adding = !lane->is_careful && bucket_batch_add(&lane->batch);
    pg_tx_begin(&lane->tx);
    if (lane->is_adding) {
        lane_add_ask(lane);
    } else {
        lane_lock_ask(lane);
    }
    lane_put_self(lane);
    pg_tx_ask(&lane->tx, STATEMENT_BUCKET_LANE_ADVANCE, &lane->params,
              lane_advanced_cb);
    pg_tx_send(&lane->tx, lane_write);
}


/* ---- ends ------------------------------------------------------------- */

static void
lane_end_one(struct bucket_lane *lane, struct operation *operation,
             enum operation_end how)
{
    operation->result = (struct operation_result){.end = how};
    lane->options.on_end(lane->options.owner, operation);
}

static void
lane_end_all(struct bucket_lane *lane, struct operation_list *list,
             enum operation_end how)
{
    while (list->count > 0) {
        lane_end_one(lane, operation_pop(list), how);
    }
}

/* Now, or as the number tells. */
static void
lane_committed(struct bucket_lane *lane)
{
    CRASH_POINT("bucket_committed");
    lane->is_troubled = false;
    lane->is_careful = false;
    lane_tally_count(&lane->tally);
    if (lane->is_unsure) {
        log_warn("buckets", "a commit is not replicated",
                 log_str("lane", lane->name));
        lane_end_all(lane, &lane->running, OPERATION_UNKNOWN);
    }
    while (lane->running.count > 0) {
        lane->options.on_end(lane->options.owner,
                             operation_pop(&lane->running));
    }
    lane_next(lane);
}

/* Said once, until a transaction succeeds. */
static void
lane_trouble_log(struct bucket_lane *lane)
{
    if (!lane->is_troubled) {
        log_warn("buckets", "a transaction failed; it is tried again",
                 log_str("lane", lane->name),
                 log_str("sqlstate", lane->tx.failure.sqlstate),
                 log_str("reason", lane->tx.failure.reason));
    }
    lane->is_troubled = true;
}

static void
lane_pause_cb(uv_timer_t *timer)
{
    struct bucket_lane *lane = timer->data;

    if (lane->state == LANE_PAUSED) {
        lane_next(lane);
    }
}

/* The database does not take these: all but the culprit will pass. */
static void
lane_apart(struct bucket_lane *lane)
{
    struct operation *culprit = NULL;

    if (lane->running.count > 1) {
        operation_move(&lane->waiting, &lane->running);
    } else {
        culprit = operation_pop(&lane->running); /* NULL: has expired */
    }
    if (culprit != NULL) {
        log_error("buckets", "the database refused an operation",
                  log_str("sqlstate", lane->tx.failure.sqlstate),
                  log_str("reason", lane->tx.failure.reason),
                  log_bytes("tenant", culprit->request.key.tenant),
                  log_bytes("name", culprit->request.key.name));
        lane_end_one(lane, culprit, OPERATION_FAILED);
    }
    lane_next(lane);
}

static void
lane_failed(struct bucket_lane *lane)
{
    metrics.edgemeter_bucket_retries_total++;
    switch ((enum lane_again)lane->tx.failure.remedy) {
    case AGAIN_AT_ONCE: metrics.counter_update_conflict_retries++; break;
    case AGAIN_WITHOUT: break;
    case AGAIN_CAREFUL: lane->is_careful = true; break;
    case AGAIN_APART: lane_apart(lane); return;
    case AGAIN_LATER:
        lane_trouble_log(lane);
        lane->state = LANE_PAUSED;
        uv_timer_start(&lane->pause, lane_pause_cb, PAUSE_MS, 0);
        return;
    case AGAIN_ELSEWHERE:
        lane_trouble_log(lane);
        lane->state = LANE_AWAY;
        pg_conn_reset(lane->conn, lane->tx.failure.reason);
        return;
    }
    lane_next(lane);
}

/*
 * A COMMIT had no answer: the number tells. The transaction that looked for
 * it has come through, and with it everything before.
 */
static void
lane_resolve(struct bucket_lane *lane)
{
    lane->is_in_doubt = false;
    lane->is_unsure = false;
    metrics.edgemeter_commits_unknown_total++;
    log_info("buckets", "the outcome of a commit was looked up",
             log_str("lane", lane->name), log_int("number", lane->number),
             log_int("found", lane->found));
    if (lane->found == lane->number) {
        lane_committed(lane);
        return;
    }
    if (lane->found == lane->number - 1) {
        metrics.edgemeter_bucket_retries_total++;
    } else {
        lane_end_all(lane, &lane->running, OPERATION_UNKNOWN);
    }
    lane_next(lane);
}

/* The connection of a look that failed is of no use. */
static void
lane_looked(struct bucket_lane *lane, enum pg_tx_end end)
{
    if (end != PG_TX_COMMITTED) {
        lane->state = LANE_AWAY;
        if (end == PG_TX_FAILED) {
            pg_conn_reset(lane->conn, lane->tx.failure.reason);
        }
    } else if (lane->is_in_doubt) {
        lane_resolve(lane);
    } else {
        lane_next(lane);
    }
}

/* What an error says about the next try. */
static enum lane_again
lane_again(const struct bucket_lane *lane, const struct pg_answer *answer)
{
    switch (answer->kind) {
    case SQL_UNIQUE: return AGAIN_AT_ONCE;
    case SQL_RETRY:
        return strcmp(answer->sqlstate, "55P03") == 0 ? AGAIN_LATER
                                                      : AGAIN_AT_ONCE;
    case SQL_DATA:
    case SQL_BUG:
    case SQL_NO_PARTITION:
        /* What cannot be added up may still be decided one by one. */
        return lane->is_adding ? AGAIN_CAREFUL : AGAIN_APART;
    case SQL_REDO_CAREFUL:
    case SQL_AWAY: break;
    }
    return AGAIN_LATER;
}

static void
lane_error_cb(void *owner, const struct pg_answer *answer)
{
    struct bucket_lane *lane = owner;

    lane->tx.failure.remedy = lane_again(lane, answer);
}

static void
lane_end_cb(void *owner, enum pg_tx_end end)
{
    struct bucket_lane *lane = owner;

    if (lane->state == LANE_LOOKING) {
        lane_looked(lane, end);
        return;
    }
    switch (end) {
    case PG_TX_COMMITTED: lane_committed(lane); return;
    case PG_TX_FAILED: lane_failed(lane); return;
    case PG_TX_DOUBT: lane->is_in_doubt = true; break;
    case PG_TX_LOST:
        if (lane->tx.is_failed && !lane->tx.is_lost) {
            lane_trouble_log(lane);
            metrics.edgemeter_bucket_retries_total++;
        }
        break;
    case PG_TX_ROLLED_BACK: CHECK(false);
    }
    lane->state = LANE_AWAY; /* the connection comes back by itself */
}


/* ---- one transaction after the other ---------------------------------- */

/* The batch of `running`. False: it takes more memory than it may. */
static bool
lane_batch_make(struct bucket_lane *lane)
{
    struct operation **list;
    size_t count = 0;

    arena_reset(&lane->arena);
    list = arena_alloc(&lane->arena, lane->running.count * sizeof(*list));
    if (list == NULL) {
        return false;
    }
    for (struct operation *at = operation_first(&lane->running); at != NULL;
         at = TAILQ_NEXT(at, entry)) {
        list[count++] = at;
    }
    return bucket_batch_make(&lane->batch, list, count, &lane->arena);
}

/* Nothing is outstanding: the next transaction, if there is work. */
static void
lane_next(struct bucket_lane *lane)
{
    for (;;) {
        if (!pg_conn_is_ready(lane->conn)) {
            lane->state = LANE_AWAY;
            return;
        }
        if (lane->running.count == 0 && lane->waiting.count > 0) {
            operation_push(&lane->running, operation_pop(&lane->waiting));
        }
        if (lane->running.count == 0) {
            lane->state = LANE_IDLE;
            return;
        }
        if (lane_batch_make(lane)) {
            lane_transaction(lane);
            return;
        }
        log_error("buckets", "no memory for a batch",
                  log_str("lane", lane->name));
        lane_end_all(lane, &lane->running, OPERATION_UNAVAILABLE);
    }
}

bool
bucket_lane_is_idle(const struct bucket_lane *lane)
{
    return lane->state == LANE_IDLE && pg_conn_is_ready(lane->conn);
}

void
bucket_lane_run(struct bucket_lane *lane, struct operation_list *list)
{
    CHECK(bucket_lane_is_idle(lane) && bucket_lane_count(lane) == 0);
    CHECK(list->count > 0 && list->count <= BUCKET_BATCH_MAX);
    operation_move(&lane->running, list);
    lane_next(lane);
}

size_t
bucket_lane_count(const struct bucket_lane *lane)
{
    return lane->running.count + lane->waiting.count;
}


/* ---- deadlines -------------------------------------------------------- */

/* The oldest stand in front. True: one at least. */
static bool
lane_expire(struct bucket_lane *lane, struct operation_list *list,
            uint64_t now_us, enum operation_end how)
{
    uint64_t age_us =
        how == OPERATION_UNKNOWN ? BUCKET_UNKNOWN_US : BUCKET_UNAVAILABLE_US;
    struct operation *oldest;
    bool has_expired = false;

    while ((oldest = operation_first(list)) != NULL &&
           oldest->submitted_us + age_us <= now_us) {
        lane_end_one(lane, operation_pop(list), how);
        has_expired = true;
    }
    return has_expired;
}

void
bucket_lane_expire(struct bucket_lane *lane, uint64_t now_us)
{
    bool is_running = lane->state == LANE_RUNNING;
    bool is_in_doubt =
        lane->is_in_doubt || (is_running && lane->tx.state == PG_TX_COMMITTING);

    lane_expire(lane, &lane->waiting, now_us, OPERATION_UNAVAILABLE);
    if (lane_expire(lane, &lane->running, now_us,
                    is_in_doubt ? OPERATION_UNKNOWN : OPERATION_UNAVAILABLE) &&
        is_running && lane->tx.state == PG_TX_OPEN) {
        pg_tx_fail(&lane->tx, AGAIN_WITHOUT,
                   "operations have waited for too long");
    }
}


/* ---- the connection --------------------------------------------------- */

static void
lane_ready_cb(void *owner)
{
    struct bucket_lane *lane = owner;

    CHECK(lane->state == LANE_AWAY);
    if (lane->has_writer) {
        lane_look(lane);
    }
}

/* Whatever was outstanding has been told LOST before. */
static void
lane_lost_cb(void *owner, const char *why)
{
    struct bucket_lane *lane = owner;

    (void)why; /* logged by the connection */
    CHECK(pg_tx_is_idle(&lane->tx));
    lane->state = LANE_AWAY;
    uv_timer_stop(&lane->pause);
}

/* Another connection refuses too, and who owns it ends the process. */
static void
lane_refused_cb(void *owner, const char *why)
{
    struct bucket_lane *lane = owner;

    log_error("buckets", "refused", log_str("lane", lane->name),
              log_str("reason", why));
}

/* The server says it before the answer to the COMMIT. */
static void
lane_not_replicated_cb(void *owner)
{
    struct bucket_lane *lane = owner;

    if (lane->state == LANE_LOOKING) {
        pg_conn_reset(lane->conn, "the first commit is not replicated");
    } else {
        lane->is_unsure = true;
    }
}

void
bucket_lane_writer_set(struct bucket_lane *lane, const uint8_t writer[16])
{
    CHECK(!lane->has_writer);
    memcpy(lane->writer, writer, sizeof(lane->writer));
    lane->has_writer = true;
    if (pg_conn_is_ready(lane->conn)) {
        lane_look(lane);
    }
}


/* ---- the beginning and the end ---------------------------------------- */

static void
lane_closed_cb(uv_handle_t *handle)
{
    struct bucket_lane *lane = handle->data;

    arena_fini(&lane->arena);
    pg_params_fini(&lane->params);
    pg_tx_fini(&lane->tx);
    free(lane);
}

struct bucket_lane *
bucket_lane_create(uv_loop_t *loop, const struct bucket_lane_options *options)
{
    static const struct pg_conn_events conn_events = {
        .on_ready = lane_ready_cb,
        .on_lost = lane_lost_cb,
        .on_refused = lane_refused_cb,
        .on_not_replicated = lane_not_replicated_cb,
    };
    static const struct pg_tx_events tx_events = {
        .on_error = lane_error_cb,
        .on_end = lane_end_cb,
    };
    struct bucket_lane *lane = memory_alloc(sizeof(*lane));

    lane->options = *options;
    operation_list_init(&lane->running);
    operation_list_init(&lane->waiting);
    arena_init(&lane->arena, ARENA_BLOCK_SIZE, ARENA_SIZE_MAX);
    pg_params_init(&lane->params);
    snprintf(lane->name, sizeof(lane->name), "bucket-%d", options->index);
    lane->conn = pg_conn_create(loop,
                                &(struct pg_conn_options){
                                    .name = lane->name,
                                    .url = options->url,
                                    .role = STORE_ROLE_WRITER,
                                    .settings = BUCKET_SETTINGS,
                                    .selftest = true,
                                },
                                &conn_events, lane);
    CHECK(lane->conn != NULL);
    pg_tx_init(&lane->tx, lane->conn, &tx_events, lane);
    uv_timer_init(loop, &lane->pause);
    lane->pause.data = lane;
    return lane;
}

/* pg_conn gives its last answers inside pg_conn_destroy. */
void
bucket_lane_destroy(struct bucket_lane *lane)
{
    pg_conn_destroy(lane->conn);
    lane_end_all(lane, &lane->running,
                 lane->is_in_doubt ? OPERATION_UNKNOWN : OPERATION_UNAVAILABLE);
    lane_end_all(lane, &lane->waiting, OPERATION_UNAVAILABLE);
    uv_close((uv_handle_t *)&lane->pause, lane_closed_cb);
}
