/*
 * rollup.c - the levels above 5s, computed again from the one below.
 *
 *   [look] -> 1m: batch, batch, ... -> 1h -> 1d -> 7d -> [look] -> idle
 *
 * A sweep looks which levels have marks and goes through them upwards; what
 * it computes marks the level above, which then has its turn. Whatever fails
 * or ends in an unknown COMMIT has left either the marks or the buckets, so
 * that the next sweep sees what is to be done.
 */

#include "series/rollup.h"

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/metrics.h"
#include "pg/selftest.h"

#include <stdlib.h>

#define BLOCK_SIZE    (64u << 10)
#define ARENA_MAX     (64u << 20)
#define DATA_TRIES    3
#define BATCHES_MAX   20 /* of a level, then those above have their turn */
#define LOOK_MARKS    10000
#define SWEEP_MS      3000
#define REST_MIN_MS   50
#define REST_MAX_MS   2000
#define DAYS_AT_ONCE  32
#define FLOOR_UNKNOWN INT64_MAX

/*
 * As a lane's, but planned for each batch: the planner sees the range of
 * buckets, and opens no partition outside of it.
 */
#define ROLLUP_SETTINGS                                   \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_custom_plan"

/* Marks that one transaction takes. */
#define ROLLUP_BATCH_MARKS 5000
/* More than that is no matter of single marks. */
#define ROLLUP_ASIDES_MAX 100
#define ROLLUP_ASIDE_MS   (10 * 60 * 1000)

struct rollup_aside {
    size_t limit;      /* marks of a batch */
    unsigned failures; /* in a row, of whole batches */
    uint64_t since_ms; /* the first one is aside */
    int64_t ids[ROLLUP_ASIDES_MAX];
    size_t count;
};

enum rollup_aside_step {
    ROLLUP_AGAIN,    /* the same batch */
    ROLLUP_SMALLER,  /* a part of it */
    ROLLUP_SET_ASIDE /* the mark is passed over from now on */
};

enum rollup_state {
    ROLLUP_AWAY,    /* for the connection */
    ROLLUP_IDLE,    /* for a wake or the timer */
    ROLLUP_RUNNING, /* for an answer */
    ROLLUP_MAKING,  /* for partitions */
    ROLLUP_RESTING  /* after a failure, for the timer */
};

struct rollup {
    struct pg_conn *conn;
    struct lane *lane;
    struct partition *partition;
    char *url;
    uv_timer_t timer;
    enum rollup_state state;
    bool is_woken;
    bool is_stopped;
    bool is_partition_due; /* its callback is still to come */
    bool is_closing;
    bool is_closed;
    uint64_t rest_ms;

    enum meter_level level;      /* that is swept */
    bool due[METER_LEVEL_COUNT]; /* levels with marks */
    unsigned batches;            /* of the level, in this sweep */
    bool is_last_look;           /* for the metrics alone */

    struct rollup_batch batch;
    int64_t floor_us; /* of the level below */
    size_t taken;     /* marks */
    bool is_careful;  /* the batch: it may pass marks over */
    int64_t taken_id; /* then: of the first mark */
    struct rollup_aside aside;
    bool is_failed; /* answers behind the failure are passed over */
};

static void rollup_transaction_begin(struct rollup *rollup);
static bool
rollup_answer_ok(struct rollup *rollup, const struct pg_answer *answer);
static void rollup_partitions_due(struct rollup *rollup);
static void rollup_partitions_made_cb(void *asker, bool made);


/* ---- the buckets of a batch --------------------------------------------- */

void
rollup_batch_init(struct rollup_batch *batch)
{
    *batch = (struct rollup_batch){.level = METER_LEVEL_1M};
    arena_init(&batch->arena, BLOCK_SIZE, ARENA_MAX);
}


void
rollup_batch_fini(struct rollup_batch *batch)
{
    arena_fini(&batch->arena);
    free(batch->buckets.list);
    free(batch->above.list);
}


void
rollup_batch_reset(struct rollup_batch *batch, enum meter_level level)
{
    CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
    arena_reset(&batch->arena);
    batch->level = level;
    batch->buckets.count = 0;
    batch->above.count = 0;
}


static bool
push(struct rollup_marks *marks, const struct rollup_mark *mark)
{
    if (marks->count == marks->room) {
        size_t room = marks->room == 0 ? 256 : 2 * marks->room;
        struct rollup_mark *list = realloc(marks->list, room * sizeof(*list));

        if (list == NULL) {
            return false;
        }
        marks->list = list;
        marks->room = room;
    }
    marks->list[marks->count++] = *mark;
    return true;
}


bool
rollup_batch_add(struct rollup_batch *batch, const struct rollup_mark *mark)
{
    struct rollup_mark copy = *mark;

    return arena_copy(&batch->arena, mark->tenant, &copy.tenant) &&
           arena_copy(&batch->arena, mark->series, &copy.series) &&
           arena_copy(&batch->arena, mark->dimension_key,
                      &copy.dimension_key) &&
           push(&batch->buckets, &copy);
}


static int
order_int(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}


/* The order in which rows of a level are locked. */
static int
order_marks(const void *left, const void *right)
{
    const struct rollup_mark *a = left;
    const struct rollup_mark *b = right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->series, b->series);
    }
    if (order == 0) {
        order = order_int(a->version, b->version);
    }
    if (order == 0) {
        order = meter_str_compare(a->dimension_key, b->dimension_key);
    }
    return order == 0 ? order_int(a->bucket_us, b->bucket_us) : order;
}


/* Marks are in order: equal ones become one, with the oldest time. */
static void
unite(struct rollup_marks *marks)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        const struct rollup_mark *mark = &marks->list[i];

        if (kept > 0 && order_marks(&marks->list[kept - 1], mark) == 0) {
            struct rollup_mark *same = &marks->list[kept - 1];

            if (mark->marked_us < same->marked_us) {
                same->marked_us = mark->marked_us;
            }
            continue;
        }
        marks->list[kept++] = *mark;
    }
    marks->count = kept;
}


static void
leave_out_below(struct rollup_marks *marks, int64_t floor_us)
{
    size_t kept = 0;

    for (size_t i = 0; i < marks->count; i++) {
        if (marks->list[i].bucket_us >= floor_us) {
            marks->list[kept++] = marks->list[i];
        }
    }
    marks->count = kept;
}


bool
rollup_batch_settle(struct rollup_batch *batch, int64_t child_floor_us)
{
    struct rollup_marks *buckets = &batch->buckets;

    leave_out_below(buckets, child_floor_us);
    if (buckets->count > 0) {
        qsort(buckets->list, buckets->count, sizeof(*buckets->list),
              order_marks);
    }
    unite(buckets);

    if (batch->level == METER_LEVEL_7D) {
        return true;
    }
    for (size_t i = 0; i < buckets->count; i++) {
        struct rollup_mark mark = buckets->list[i];

        mark.bucket_us = meter_level_bucket(batch->level + 1, mark.bucket_us);
        if (!push(&batch->above, &mark)) {
            return false;
        }
    }
    unite(&batch->above);
    return true;
}


void
rollup_batch_range(const struct rollup_batch *batch, int64_t *first_us,
                   int64_t *end_us)
{
    int64_t first = INT64_MAX;
    int64_t last = INT64_MIN;

    CHECK(batch->buckets.count > 0);
    for (size_t i = 0; i < batch->buckets.count; i++) {
        int64_t bucket_us = batch->buckets.list[i].bucket_us;

        first = bucket_us < first ? bucket_us : first;
        last = bucket_us > last ? bucket_us : last;
    }
    *first_us = first;
    *end_us = last + meter_level_size_us(batch->level);
}


void
rollup_marks_put(const struct rollup_marks *marks, struct pg_params *params)
{
    const struct rollup_mark *list = marks->list;
    size_t count = marks->count;

    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i].tenant);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, list[i].series);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_int8(&params->bytes, list[i].version);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_BYTEA, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_bytes(&params->bytes, list[i].dimension_key);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TIMESTAMPTZ, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_time(&params->bytes, list[i].bucket_us);
    }
    pg_param_array_end(params);
}


void
rollup_batch_put_ends(const struct rollup_batch *batch,
                      struct pg_params *params)
{
    const struct rollup_marks *buckets = &batch->buckets;
    int64_t size_us = meter_level_size_us(batch->level);

    pg_param_array_begin(params, PG_TIMESTAMPTZ, buckets->count);
    for (size_t i = 0; i < buckets->count; i++) {
        pg_put_time(&params->bytes, buckets->list[i].bucket_us + size_us);
    }
    pg_param_array_end(params);
}


void
rollup_marks_put_marked(const struct rollup_marks *marks,
                        struct pg_params *params)
{
    pg_param_array_begin(params, PG_TIMESTAMPTZ, marks->count);
    for (size_t i = 0; i < marks->count; i++) {
        pg_put_time(&params->bytes, marks->list[i].marked_us);
    }
    pg_param_array_end(params);
}


size_t
rollup_marks_put_series(const struct rollup_marks *marks, size_t from,
                        struct pg_params *params)
{
    const struct rollup_mark *first = &marks->list[from];
    size_t end = from;

    while (end < marks->count &&
           meter_str_equal(marks->list[end].tenant, first->tenant) &&
           meter_str_equal(marks->list[end].series, first->series) &&
           marks->list[end].version == first->version) {
        end++;
    }
    pg_param_text(params, first->tenant);
    pg_param_text(params, first->series);
    pg_param_int8(params, first->version);
    pg_param_array_begin(params, PG_BYTEA, end - from);
    for (size_t i = from; i < end; i++) {
        pg_put_bytes(&params->bytes, marks->list[i].dimension_key);
    }
    pg_param_array_end(params);
    return end;
}


/* ---- marks set aside ---------------------------------------------------- */

static void
rollup_aside_init(struct rollup_aside *aside)
{
    aside->limit = ROLLUP_BATCH_MARKS;
    aside->failures = 0;
    aside->count = 0;
}

static bool
rollup_aside_is_careful(const struct rollup_aside *aside)
{
    return aside->limit < ROLLUP_BATCH_MARKS || aside->count > 0;
}

static enum rollup_aside_step
rollup_aside_failed(struct rollup_aside *aside, size_t taken, int64_t id,
                    uint64_t now_ms)
{
    if (++aside->failures < DATA_TRIES) {
        return ROLLUP_AGAIN;
    }
    /* The next one is alone for sure only when it was asked for alone. */
    if (taken > 1 || aside->limit > 1) {
        aside->limit = taken > 1 ? taken / 2 : 1;
        return ROLLUP_SMALLER;
    }
    if (aside->count == ROLLUP_ASIDES_MAX) {
        return ROLLUP_AGAIN;
    }
    if (aside->count == 0) {
        aside->since_ms = now_ms;
    }
    aside->ids[aside->count++] = id;
    return ROLLUP_SET_ASIDE;
}

static void
rollup_aside_done(struct rollup_aside *aside)
{
    size_t twice = 2 * aside->limit;

    aside->limit = twice < ROLLUP_BATCH_MARKS ? twice : ROLLUP_BATCH_MARKS;
    if (aside->limit == ROLLUP_BATCH_MARKS) {
        aside->failures = 0;
    }
}

static void
rollup_aside_retry(struct rollup_aside *aside, uint64_t now_ms)
{
    if (aside->count > 0 && now_ms >= aside->since_ms + ROLLUP_ASIDE_MS) {
        aside->count = 0;
    }
}


/* ---- the sweep ---------------------------------------------------------- */

static void conn_ready(void *owner);
static void conn_lost(void *owner, const char *why);
static void timer_cb(uv_timer_t *timer);
static void closed_cb(uv_handle_t *handle);
static void release_if_done(struct rollup *rollup);
static void sweep(struct rollup *rollup);
static void look(struct rollup *rollup);
static void look_cb(void *asker, const struct pg_answer *answer);
static void level_next(struct rollup *rollup);
static void sweep_done(struct rollup *rollup);
static void batch_fail(struct rollup *rollup, const struct pg_answer *answer);
static void refused(struct rollup *rollup, const struct pg_answer *answer);
static void rest(struct rollup *rollup);
static void plain_cb(void *asker, const struct pg_answer *answer);


struct rollup *
rollup_create(uv_loop_t *loop, const struct rollup_options *options)
{
    static const struct pg_conn_events events = {
        .on_ready = conn_ready,
        .on_lost = conn_lost,
    };
    struct rollup *rollup = calloc(1, sizeof(*rollup));

    if (rollup == NULL) {
        return NULL;
    }
    rollup->lane = options->lane;
    rollup->partition = options->partition;
    rollup->rest_ms = REST_MIN_MS;
    rollup->url = strdup(options->url);
    if (rollup->url != NULL) {
        rollup->conn = pg_conn_create(loop,
                                      &(struct pg_conn_options){
                                          .name = "rollup",
                                          .url = rollup->url,
                                          .role = STORE_ROLE_WRITER,
                                          .settings = ROLLUP_SETTINGS,
                                          .selftest = true,
                                      },
                                      &events, rollup);
    }
    if (rollup->conn == NULL) {
        free(rollup->url);
        free(rollup);
        return NULL;
    }
    rollup_batch_init(&rollup->batch);
    rollup_aside_init(&rollup->aside);
    uv_timer_init(loop, &rollup->timer);
    rollup->timer.data = rollup;
    uv_timer_start(&rollup->timer, timer_cb, SWEEP_MS, SWEEP_MS);
    return rollup;
}


void
rollup_destroy(struct rollup *rollup)
{
    if (rollup == NULL) {
        return;
    }
    rollup->is_closing = true;
    rollup->is_failed = true;
    pg_conn_destroy(rollup->conn);
    uv_close((uv_handle_t *)&rollup->timer, closed_cb);
}


static void
closed_cb(uv_handle_t *handle)
{
    struct rollup *rollup = handle->data;

    rollup->is_closed = true;
    release_if_done(rollup);
}


static void
release_if_done(struct rollup *rollup)
{
    if (rollup->is_closed && !rollup->is_partition_due) {
        rollup_batch_fini(&rollup->batch);
        free(rollup->url);
        free(rollup);
    }
}


void
rollup_wake(struct rollup *rollup)
{
    rollup->is_woken = true;
    sweep(rollup);
}


void
rollup_stop(struct rollup *rollup)
{
    rollup->is_stopped = true;
}


bool
rollup_is_idle(const struct rollup *rollup)
{
    return rollup->state != ROLLUP_RUNNING && rollup->state != ROLLUP_MAKING;
}


bool
rollup_is_settled(const struct rollup *rollup)
{
    return rollup->state == ROLLUP_IDLE && !rollup->is_woken;
}


static void
conn_ready(void *owner)
{
    struct rollup *rollup = owner;

    /* Partitions that are being made go on without us. */
    if (rollup->state != ROLLUP_MAKING) {
        rollup->state = ROLLUP_IDLE;
        sweep(rollup);
    }
}


static void
conn_lost(void *owner, const char *why)
{
    struct rollup *rollup = owner;

    (void)why;
    if (rollup->state != ROLLUP_MAKING) {
        rollup->state = ROLLUP_AWAY;
    }
}


static void
timer_cb(uv_timer_t *timer)
{
    struct rollup *rollup = timer->data;

    if (rollup->state == ROLLUP_RESTING) {
        rollup->state = ROLLUP_IDLE;
    }
    sweep(rollup);
}


/* Begins one, if nothing is against it; else the timer asks again. */
static void
sweep(struct rollup *rollup)
{
    if (rollup->state != ROLLUP_IDLE || rollup->is_stopped ||
        !pg_conn_is_ready(rollup->conn) || lane_db_epoch(rollup->lane) == 0 ||
        !partition_is_ready(rollup->partition)) {
        return;
    }
    rollup->state = ROLLUP_RUNNING;
    rollup->is_failed = false;
    rollup->is_woken = false;
    rollup->is_last_look = false;
    rollup->level = METER_LEVEL_5S;
    rollup_aside_retry(&rollup->aside, clock_mono_ms());
    metrics.edgemeter_rollup_asides = (int64_t)rollup->aside.count;
    look(rollup);
}


static void
look(struct rollup *rollup)
{
    struct pg_params params;

    pg_params_init(&params);
    pg_param_int8(&params, LOOK_MARKS);
    pg_conn_query(rollup->conn, STATEMENT_ROLLUP_LAG, &params, look_cb, rollup);
    pg_conn_flush(rollup->conn);
    pg_params_fini(&params);
}


static void
look_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;
    int64_t marks = 0;
    int64_t lag_us = 0;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    memset(rollup->due, 0, sizeof(rollup->due));
    for (int row = 0; row < pg_row_count(answer->result); row++) {
        int32_t level = pg_get_int4(answer->result, row, 0);
        int64_t of_level = pg_get_int8(answer->result, row, 1);

        CHECK(level > METER_LEVEL_5S && level < METER_LEVEL_COUNT);
        marks += of_level;
        rollup->due[level] = of_level > 0;
        if (of_level > 0) {
            int64_t age_us = pg_get_time(answer->result, row, 3) -
                             pg_get_time(answer->result, row, 2);

            lag_us = age_us > lag_us ? age_us : lag_us;
        }
    }
    metrics.edgemeter_rollup_marks = marks;
    metrics.edgemeter_rollup_lag_seconds = lag_us / METER_TIME_SECOND;
    if (rollup->is_last_look) {
        sweep_done(rollup);
    } else {
        metrics.edgemeter_rollup_sweeps_total++;
        level_next(rollup);
    }
}


/* The next level that has marks, or the end of the sweep. */
static void
level_next(struct rollup *rollup)
{
    bool had_batches = rollup->level != METER_LEVEL_5S;

    rollup->batches = 0;
    for (int level = rollup->level + 1; level < METER_LEVEL_COUNT; level++) {
        if (rollup->due[level] && !rollup->is_stopped) {
            rollup->level = level;
            rollup_transaction_begin(rollup);
            return;
        }
    }
    if (had_batches) {
        rollup->is_last_look = true;
        look(rollup);
    } else {
        sweep_done(rollup);
    }
}


static void
rollup_batch_done(struct rollup *rollup)
{
    size_t limit = rollup->aside.limit; /* of this batch */

    rollup->rest_ms = REST_MIN_MS;
    if (rollup->taken > 0) {
        rollup_aside_done(&rollup->aside);
    }
    if (rollup->batch.above.count > 0) {
        rollup->due[rollup->level + 1] = true;
    }
    if (rollup->taken < limit) {
        level_next(rollup);
    } else if (++rollup->batches < BATCHES_MAX && !rollup->is_stopped) {
        rollup_transaction_begin(rollup);
    } else {
        rollup->is_woken = true; /* there is more: sweep again */
        level_next(rollup);
    }
}


static void
sweep_done(struct rollup *rollup)
{
    rollup->state = ROLLUP_IDLE;
    if (rollup->is_woken) {
        sweep(rollup);
    }
}


/* False: the batch is over; what failed first has seen to that. */
static bool
rollup_answer_ok(struct rollup *rollup, const struct pg_answer *answer)
{
    if (rollup->is_failed) {
        return false;
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        batch_fail(rollup, answer);
        return false;
    }
    return true;
}


/* After a loss, conn_lost or conn_ready goes on from here. */
static void
batch_fail(struct rollup *rollup, const struct pg_answer *answer)
{
    rollup->is_failed = true;
    if (answer->outcome != PG_OUTCOME_ERROR) {
        return;
    }
    if (answer->kind == SQL_DATA && rollup->taken > 0) {
        refused(rollup, answer);
    } else {
        log_warn("rollup", "a batch failed; it is done again",
                 log_str("series_level", meter_level_name(rollup->level)),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("reason", answer->message));
    }
    if (answer->kind == SQL_NO_PARTITION) {
        rollup_partitions_due(rollup);
        partition_refresh(rollup->partition, rollup_partitions_made_cb, rollup);
        return;
    }
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, plain_cb, rollup);
    pg_conn_flush(rollup->conn);
    rest(rollup);
}


/* The data of the batch are refused: which of them is found by halves. */
static void
refused(struct rollup *rollup, const struct pg_answer *answer)
{
    const struct rollup_mark *mark = rollup->batch.buckets.list;
    char bucket[METER_TIME_TEXT_SIZE + 1];

    switch (rollup_aside_failed(&rollup->aside, rollup->taken, rollup->taken_id,
                                clock_mono_ms())) {
    case ROLLUP_AGAIN:
        log_warn("rollup", "the data of a batch are refused; it is done again",
                 log_str("series_level", meter_level_name(rollup->level)),
                 log_str("sqlstate", answer->sqlstate),
                 log_str("reason", answer->message));
        return;
    case ROLLUP_SMALLER: rollup->rest_ms = REST_MIN_MS; return;
    case ROLLUP_SET_ASIDE: break;
    }
    rollup->rest_ms = REST_MIN_MS;
    meter_time_format(mark->bucket_us, bucket);
    log_error("rollup", "a bucket is refused and set aside; it stays marked",
              log_str("series_level", meter_level_name(rollup->level)),
              log_bytes("tenant", mark->tenant),
              log_bytes("series", mark->series), log_str("bucket", bucket),
              log_str("sqlstate", answer->sqlstate),
              log_str("reason", answer->message));
}


static void
rest(struct rollup *rollup)
{
    rollup->state = ROLLUP_RESTING;
    uv_timer_start(&rollup->timer, timer_cb, rollup->rest_ms, SWEEP_MS);
    rollup->rest_ms =
        2 * rollup->rest_ms > REST_MAX_MS ? REST_MAX_MS : 2 * rollup->rest_ms;
}


static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    (void)rollup_answer_ok(asker, answer);
}


static void
rollup_partitions_due(struct rollup *rollup)
{
    rollup->state = ROLLUP_MAKING;
    rollup->is_failed = true;
    rollup->is_partition_due = true;
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, plain_cb, rollup);
    pg_conn_flush(rollup->conn);
}


static void
rollup_partitions_made_cb(void *asker, bool made)
{
    struct rollup *rollup = asker;

    rollup->is_partition_due = false;
    if (rollup->is_closing) {
        release_if_done(rollup);
        return;
    }
    CHECK(rollup->state == ROLLUP_MAKING);
    if (!made) {
        rest(rollup);
        return;
    }
    rollup->state = pg_conn_is_ready(rollup->conn) ? ROLLUP_IDLE : ROLLUP_AWAY;
    sweep(rollup);
}


/* ---- one batch ---------------------------------------------------------- */

/* Of each level, by what it is computed from. */
static const struct {
    enum statement ensure;
    enum statement recompute;
    enum statement empty_delete;
} statements_of[METER_LEVEL_COUNT] = {
    [METER_LEVEL_1M] = {STATEMENT_SERIES_ENSURE_5S,
                        STATEMENT_SERIES_RECOMPUTE_5S,
                        STATEMENT_SERIES_EMPTY_DELETE_5S},
    [METER_LEVEL_1H] = {STATEMENT_SERIES_ENSURE_1M,
                        STATEMENT_SERIES_RECOMPUTE_1M,
                        STATEMENT_SERIES_EMPTY_DELETE_1M},
    [METER_LEVEL_1D] = {STATEMENT_SERIES_ENSURE_1H,
                        STATEMENT_SERIES_RECOMPUTE_1H,
                        STATEMENT_SERIES_EMPTY_DELETE_1H},
    [METER_LEVEL_7D] = {STATEMENT_SERIES_ENSURE_1D,
                        STATEMENT_SERIES_RECOMPUTE_1D,
                        STATEMENT_SERIES_EMPTY_DELETE_1D},
};

static void writer_cb(void *asker, const struct pg_answer *answer);
static void floors_cb(void *asker, const struct pg_answer *answer);
static void take_ask(struct rollup *rollup, struct pg_params *params);
static void take_cb(void *asker, const struct pg_answer *answer);
static bool take_rows(struct rollup *rollup, const void *result);
static void batch_none(struct rollup *rollup);
static void none_cb(void *asker, const struct pg_answer *answer);
static bool partitions_exist(struct rollup *rollup);
static void batch_write(struct rollup *rollup);
static void recompute_cb(void *asker, const struct pg_answer *answer);
static void batch_empty_delete(struct rollup *rollup);
static void batch_commit(struct rollup *rollup);
static void commit_cb(void *asker, const struct pg_answer *answer);


static void
rollup_transaction_begin(struct rollup *rollup)
{
    struct pg_conn *conn = rollup->conn;
    struct pg_params params;

    rollup_batch_reset(&rollup->batch, rollup->level);
    rollup->floor_us = FLOOR_UNKNOWN;
    rollup->taken = 0;
    pg_conn_command(conn, STATEMENT_BEGIN, plain_cb, rollup);

    pg_params_init(&params);
    pg_param_uuid(&params, lane_writer(rollup->lane));
    pg_conn_query(conn, STATEMENT_INGEST_LOCK_WRITER, &params, writer_cb,
                  rollup);
    pg_conn_query(conn, STATEMENT_ROLLUP_FLOORS, NULL, floors_cb, rollup);
    pg_params_reset(&params);
    take_ask(rollup, &params);
    pg_conn_flush(conn);
    pg_params_fini(&params);
}


/* Only where it is careful, some marks are passed over. */
static void
take_ask(struct rollup *rollup, struct pg_params *params)
{
    const struct rollup_aside *aside = &rollup->aside;
    enum statement statement = STATEMENT_SERIES_DIRTY_TAKE;

    pg_param_int4(params, rollup->level);
    pg_param_int8(params, (int64_t)aside->limit);
    rollup->is_careful = rollup_aside_is_careful(aside);
    if (rollup->is_careful) {
        statement = STATEMENT_SERIES_DIRTY_TAKE_OTHERS;
        pg_param_array_begin(params, PG_INT8, aside->count);
        for (size_t i = 0; i < aside->count; i++) {
            pg_put_int8(&params->bytes, aside->ids[i]);
        }
        pg_param_array_end(params);
    }
    pg_conn_query(rollup->conn, statement, params, take_cb, rollup);
}


static void
writer_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }

    int64_t epoch = pg_row_count(answer->result) == 0
                        ? 0
                        : pg_get_int8(answer->result, 0, 0);

    if (epoch != lane_epoch(rollup->lane)) {
        lane_fenced(rollup->lane, epoch);
    }
}


static void
floors_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;
    enum partition_parent below = PARTITION_SERIES + rollup->level - 1;
    const char *name = partition_parent_name(below);

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    for (int row = 0; row < pg_row_count(answer->result); row++) {
        struct meter_str parent = pg_get_bytes(answer->result, row, 0);

        if (meter_str_equal(parent, (struct meter_str){name, strlen(name)})) {
            rollup->floor_us =
                pg_get_date(answer->result, row, 1) * METER_TIME_DAY;
        }
    }
}


static void
take_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    rollup->taken = (size_t)pg_row_count(answer->result);
    if (rollup->taken == 0) {
        batch_none(rollup);
        return;
    }
    if (rollup->is_careful) {
        rollup->taken_id = pg_get_int8(answer->result, 0, 6);
    }
    if (!take_rows(rollup, answer->result)) {
        rollup->is_failed = true;
        pg_conn_reset(rollup->conn, "a rollup cannot be done");
        return;
    }
    if (rollup->batch.buckets.count == 0) {
        batch_commit(rollup); /* all are below the floor */
        return;
    }
    if (partitions_exist(rollup)) {
        batch_write(rollup);
    }
}


static bool
take_rows(struct rollup *rollup, const void *result)
{
    if (rollup->floor_us == FLOOR_UNKNOWN) {
        log_error("rollup", "a level has no floor",
                  log_str("series_level", meter_level_name(rollup->level - 1)));
        return false;
    }
    for (int row = 0; row < pg_row_count(result); row++) {
        struct rollup_mark mark = {
            .tenant = pg_get_bytes(result, row, 0),
            .series = pg_get_bytes(result, row, 1),
            .version = pg_get_int8(result, row, 2),
            .dimension_key = pg_get_bytes(result, row, 3),
            .bucket_us = pg_get_time(result, row, 4),
            .marked_us = pg_get_time(result, row, 5),
        };

        if (!rollup_batch_add(&rollup->batch, &mark)) {
            log_error("rollup", "out of memory");
            return false;
        }
    }
    return rollup_batch_settle(&rollup->batch, rollup->floor_us);
}


/* No marks, or another instance has them in its hands. */
static void
batch_none(struct rollup *rollup)
{
    pg_conn_command(rollup->conn, STATEMENT_ROLLBACK, none_cb, rollup);
    pg_conn_flush(rollup->conn);
}


static void
none_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (rollup_answer_ok(rollup, answer)) {
        rollup_batch_done(rollup);
    }
}


/* False: they are being made, and the batch comes again. */
static bool
partitions_exist(struct rollup *rollup)
{
    enum partition_parent parent = PARTITION_SERIES + rollup->level;
    const struct rollup_marks *buckets = &rollup->batch.buckets;
    int32_t missing[DAYS_AT_ONCE];
    size_t count = 0;
    int32_t known = INT32_MIN;

    for (size_t i = 0; i < buckets->count && count < DAYS_AT_ONCE; i++) {
        int32_t day = meter_time_day(buckets->list[i].bucket_us);
        bool is_new = day != known;

        known = day;
        if (!is_new || partition_exists(rollup->partition, parent, day)) {
            continue;
        }
        for (size_t j = 0; j < count && is_new; j++) {
            is_new = partition_first_day(parent, missing[j]) !=
                     partition_first_day(parent, day);
        }
        if (is_new) {
            missing[count++] = day;
        }
    }
    if (count == 0) {
        return true;
    }
    rollup_partitions_due(rollup);
    partition_make(rollup->partition, parent, missing, count,
                   rollup_partitions_made_cb, rollup);
    return false;
}


static void
batch_write(struct rollup *rollup)
{
    const struct rollup_batch *batch = &rollup->batch;
    struct pg_conn *conn = rollup->conn;
    struct pg_params params;
    int64_t first_us;
    int64_t end_us;

    pg_params_init(&params);
    rollup_marks_put(&batch->buckets, &params);
    pg_conn_query(conn, statements_of[batch->level].ensure, &params, plain_cb,
                  rollup);
    if (batch->above.count > 0) {
        struct pg_params above;

        pg_params_init(&above);
        pg_param_int4(&above, batch->level + 1);
        rollup_marks_put(&batch->above, &above);
        rollup_marks_put_marked(&batch->above, &above);
        pg_conn_query(conn, STATEMENT_SERIES_DIRTY_MARK, &above, plain_cb,
                      rollup);
        pg_params_fini(&above);
    }
    rollup_batch_put_ends(batch, &params);
    rollup_batch_range(batch, &first_us, &end_us);
    pg_param_time(&params, first_us);
    pg_param_time(&params, end_us);
    pg_conn_query(conn, statements_of[batch->level].recompute, &params,
                  recompute_cb, rollup);
    pg_conn_flush(conn);
    pg_params_fini(&params);
}


static void
recompute_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (!rollup_answer_ok(rollup, answer)) {
        return;
    }
    CRASH_POINT("inside_rollup");
    if (pg_get_int8(answer->result, 0, 0) > 0) {
        batch_empty_delete(rollup);
    }
    batch_commit(rollup);
}


/* A statement for each series of a tenant. */
static void
batch_empty_delete(struct rollup *rollup)
{
    const struct rollup_batch *batch = &rollup->batch;
    struct pg_params params;
    int64_t first_us;
    int64_t end_us;

    rollup_batch_range(batch, &first_us, &end_us);
    pg_params_init(&params);
    for (size_t from = 0; from < batch->buckets.count;) {
        pg_params_reset(&params);
        from = rollup_marks_put_series(&batch->buckets, from, &params);
        pg_param_time(&params, first_us);
        pg_param_time(&params, end_us);
        pg_conn_query(rollup->conn, statements_of[batch->level].empty_delete,
                      &params, plain_cb, rollup);
    }
    pg_params_fini(&params);
}


static void
batch_commit(struct rollup *rollup)
{
    CRASH_POINT("before_rollup_commit");
    pg_conn_command(rollup->conn, STATEMENT_COMMIT, commit_cb, rollup);
    pg_conn_flush(rollup->conn);
}


static void
commit_cb(void *asker, const struct pg_answer *answer)
{
    struct rollup *rollup = asker;

    if (rollup_answer_ok(rollup, answer)) {
        CRASH_POINT("after_rollup_commit");
        metrics.edgemeter_rollups_total += (int64_t)rollup->batch.buckets.count;
        rollup_batch_done(rollup);
    }
}
