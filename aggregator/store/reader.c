/*
 * reader.c - a few connections that serve clients, apart from ingest.
 *
 *   api -> [reader: queue] -> slot -> pg_conn -> PostgreSQL
 *
 * A slot runs one query at a time. A read is set_tenant and its statement:
 * what stands before a Sync is one transaction, which ends with it. A write is
 * BEGIN; statement; COMMIT, after a failure ROLLBACK. So no query ever meets
 * another one's transaction. The rows of a write are kept until its COMMIT.
 */

#include "store/reader.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "pg/selftest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>

#define READER_CONNECTIONS_MAX 64
#define BRISK_US               120 /* between an answer and the next question */
#define MESSAGE_SIZE           256

/*
 * Answers come soon or not at all; a client waits. Queries are by key: a plan
 * made while a table was small must not scan it when it has grown. A write
 * waits for rows that ingest holds, a transaction or two.
 */
#define READER_GRACE_MS 5000 /* past the timeout the server is given up */
#define READER_SETTINGS                                              \
    "statement_timeout=%" PRId64 "ms lock_timeout=%d"                \
    " default_transaction_read_only=%s"                              \
    " enable_seqscan=off jit=off plan_cache_mode=force_generic_plan" \
    " max_parallel_workers_per_gather=0"
#define READER_SETTINGS_SIZE 320

static const struct {
    const char *name;
    const char *role;
    int lock_timeout_ms;
    const char *read_only;
    const char *failed; /* for the log */
} accesses[] = {
    [READER_READS] = {"reader", STORE_ROLE_READER, 2000, "on", "a read failed"},
    [READER_WRITES] = {"client", STORE_ROLE_WRITER, 5000, "off",
                       "a write failed"},
};

struct read_request {
    STAILQ_ENTRY(read_request) next;
    enum statement statement;
    pg_answer_cb cb; /* NULL: answered */
    void *asker;
    struct pg_params params;
    size_t tenant_size;
    char tenant[];
};

struct slot {
    struct reader *reader;
    struct pg_conn *conn;
    struct read_request *request; /* NULL: free */
    unsigned answers_due;         /* of the flush */
    void *rows;                   /* of a write, until its COMMIT */
    bool lost;                    /* the connection, meanwhile */
    bool unsure;                  /* not replicated, or no memory for rows */
    bool failed;                  /* a ROLLBACK is due */
    char sqlstate[6];             /* of the first error */
    enum sqlstate_kind kind;
    char message[MESSAGE_SIZE];
    char name[24];
};

struct reader {
    struct reader_options options;
    struct reader_events events;
    void *owner;
    char *url;
    char settings[READER_SETTINGS_SIZE];
    struct slot *slots;
    int slot_count;
    uint64_t asked_us;    /* when the last query was sent */
    uint64_t answered_us; /* when the last one was answered */
    bool is_brisk;        /* the last two came close to each other */
    int busy_count;       /* slots with a request */
    bool ready_told;
    bool destroyed;
    unsigned entered; /* callbacks of ours on the stack */
    STAILQ_HEAD(read_queue, read_request) queue;
    size_t queue_count;
};


/* ---- requests ---------------------------------------------------------- */

static void
request_destroy(struct read_request *request)
{
    if (request != NULL) {
        pg_params_fini(&request->params);
        free(request);
    }
}


static void
request_lose(struct read_request *request)
{
    struct pg_answer answer = {.outcome = PG_OUTCOME_LOST};

    if (request->cb != NULL) {
        request->cb(request->asker, &answer);
    }
    request_destroy(request);
}


static bool
params_copy(struct pg_params *to, const struct pg_params *from)
{
    pg_params_init(to);
    if (from == NULL) {
        return true;
    }
    buf_put(&to->bytes, from->bytes.data, from->bytes.size);
    to->count = from->count;
    memcpy(to->offset, from->offset, sizeof(to->offset));
    memcpy(to->size, from->size, sizeof(to->size));
    return !to->bytes.failed && !from->bytes.failed;
}


/* NULL: the parameters found no room. */
static struct read_request *
request_create(struct meter_str tenant, enum statement statement,
               const struct pg_params *params, pg_answer_cb cb, void *asker)
{
    struct read_request *request = memory_alloc(sizeof(*request) + tenant.size);

    request->statement = statement;
    request->cb = cb;
    request->asker = asker;
    request->tenant_size = tenant.size;
    if (tenant.size > 0) {
        memcpy(request->tenant, tenant.data, tenant.size);
    }
    if (!params_copy(&request->params, params)) {
        request_destroy(request);
        return NULL;
    }
    return request;
}


/* NULL: nobody waits. */
static struct read_request *
queue_pop(struct reader *reader)
{
    struct read_request *request = STAILQ_FIRST(&reader->queue);

    if (request != NULL) {
        STAILQ_REMOVE_HEAD(&reader->queue, next);
        reader->queue_count--;
    }
    return request;
}


/* ---- one query on one connection --------------------------------------- */

static void plain_cb(void *asker, const struct pg_answer *answer);
static void statement_cb(void *asker, const struct pg_answer *answer);

/* An asker may destroy the reader in its answer: the last one out frees. */
static void
reader_leave(struct reader *reader)
{
    if (--reader->entered > 0 || !reader->destroyed) {
        return;
    }
    free(reader->slots);
    free(reader->url);
    free(reader);
}


/* NULL: all are busy or away. */
static struct slot *
slot_free(struct reader *reader)
{
    for (int i = 0; i < reader->slot_count; i++) {
        struct slot *slot = &reader->slots[i];

        if (slot->request == NULL && pg_conn_is_ready(slot->conn)) {
            return slot;
        }
    }
    return NULL;
}


/* The first error is the one to tell; those after it follow from it. */
static void
slot_note(struct slot *slot, const struct pg_answer *answer)
{
    if (answer->outcome != PG_OUTCOME_ERROR || slot->failed) {
        return;
    }
    slot->failed = true;
    slot->kind = answer->kind;
    memcpy(slot->sqlstate, answer->sqlstate, sizeof(slot->sqlstate));
    snprintf(slot->message, sizeof(slot->message), "%s", answer->message);
}


/* Once for each request. */
static void
slot_answer(struct slot *slot, const struct pg_answer *answer)
{
    struct read_request *request = slot->request;
    pg_answer_cb cb = request->cb;

    request->cb = NULL;
    cb(request->asker, answer);
}


static void
slot_answer_error(struct slot *slot)
{
    struct pg_answer error = {
        .outcome = PG_OUTCOME_ERROR,
        .kind = slot->kind,
        .message = slot->message,
    };

    memcpy(error.sqlstate, slot->sqlstate, sizeof(error.sqlstate));
    slot_answer(slot, &error);
}


/* Everything up to the COMMIT is answered. */
static void
slot_write_ended(struct slot *slot)
{
    void *rows = slot->rows;

    slot->rows = NULL;
    if (slot->lost || (slot->unsure && !slot->failed)) {
        slot_answer(slot, &(struct pg_answer){.outcome = PG_OUTCOME_LOST});
    } else if (slot->failed) {
        slot_answer_error(slot);
    } else {
        slot_answer(slot, &(struct pg_answer){.outcome = PG_OUTCOME_OK,
                                              .result = rows});
    }
    pg_rows_free(rows);
}


/* Takes the request. */
static void
slot_run(struct slot *slot, struct read_request *request)
{
    struct pg_conn *conn = slot->conn;
    bool is_write = slot->reader->options.access == READER_WRITES;

    CHECK(slot->request == NULL);
    slot->request = request;
    slot->reader->busy_count++;
    slot->reader->asked_us = clock_mono_us();
    slot->reader->is_brisk =
        slot->reader->asked_us - slot->reader->answered_us < BRISK_US;
    slot->lost = false;
    slot->unsure = false;
    slot->failed = false;
    slot->answers_due = 1 + (is_write ? 2 : 0) + (request->tenant_size > 0);

    if (is_write) {
        pg_conn_command(conn, STATEMENT_BEGIN, plain_cb, slot);
    }
    if (request->tenant_size > 0) {
        struct pg_params tenant;

        pg_params_init(&tenant);
        pg_param_text(
            &tenant, (struct meter_str){request->tenant, request->tenant_size});
        pg_conn_query(conn, STATEMENT_SET_TENANT, &tenant, plain_cb, slot);
        pg_params_fini(&tenant);
    }
    pg_conn_query(conn, request->statement, &request->params, statement_cb,
                  slot);
    if (is_write) {
        pg_conn_command(conn, STATEMENT_COMMIT, plain_cb, slot);
    }
    pg_conn_flush(conn);
}


/* The slot's request is over: the next one, if the connection still is. */
static void
slot_next(struct slot *slot)
{
    struct reader *reader = slot->reader;

    if (slot->request != NULL) {
        reader->busy_count--;
        reader->answered_us = clock_mono_us();
    }
    request_destroy(slot->request);
    slot->request = NULL;
    if (reader->destroyed || !pg_conn_is_ready(slot->conn)) {
        return;
    }

    struct read_request *request = queue_pop(reader);

    if (request != NULL) {
        slot_run(slot, request);
    }
}


static void
rollback_cb(void *asker, const struct pg_answer *answer)
{
    struct slot *slot = asker;

    if (answer->outcome == PG_OUTCOME_ERROR) {
        pg_conn_reset(slot->conn, "a transaction could not be ended");
    }
    slot_next(slot);
}


/*
 * One piece of the flush is answered. They come in order, except that one
 * for which there was no memory is LOST at once: all are waited for.
 */
static void
slot_answered(struct slot *slot, const struct pg_answer *answer)
{
    slot_note(slot, answer);
    slot->lost = slot->lost || answer->outcome == PG_OUTCOME_LOST;
    if (--slot->answers_due > 0) {
        return;
    }
    if (slot->reader->options.access == READER_WRITES) {
        slot_write_ended(slot);
    }
    if (slot->lost || !slot->failed) {
        slot_next(slot);
        return;
    }
    log_warn("store", accesses[slot->reader->options.access].failed,
             log_str("connection", slot->name),
             log_str("statement", statements[slot->request->statement].name),
             log_str("sqlstate", slot->sqlstate),
             log_str("reason", slot->message));
    if (slot->reader->options.access == READER_READS) {
        slot_next(slot); /* the server has ended the transaction itself */
        return;
    }
    pg_conn_command(slot->conn, STATEMENT_ROLLBACK, rollback_cb, slot);
    pg_conn_flush(slot->conn);
}


/* BEGIN, set_tenant, COMMIT. */
static void
plain_cb(void *asker, const struct pg_answer *answer)
{
    struct slot *slot = asker;
    struct reader *reader = slot->reader;

    reader->entered++;
    slot_answered(slot, answer);
    reader_leave(reader);
}


static void
statement_cb(void *asker, const struct pg_answer *answer)
{
    struct slot *slot = asker;
    struct reader *reader = slot->reader;

    reader->entered++;
    if (reader->options.access == READER_WRITES) {
        if (answer->outcome == PG_OUTCOME_OK) {
            slot->rows = pg_rows_copy(answer->result);
            slot->unsure = slot->unsure || slot->rows == NULL;
        }
    } else if (answer->outcome == PG_OUTCOME_ABORTED) {
        slot_answer_error(slot);
    } else {
        slot_answer(slot, answer);
    }
    slot_answered(slot, answer);
    reader_leave(reader);
}


/* ---- connections ------------------------------------------------------- */

/* One connection is up at least. */
static bool
reader_is_ready(const struct reader *reader)
{
    for (int i = 0; i < reader->slot_count; i++) {
        if (pg_conn_is_ready(reader->slots[i].conn)) {
            return true;
        }
    }
    return false;
}


static void
conn_ready(void *owner)
{
    struct slot *slot = owner;
    struct reader *reader = slot->reader;

    if (!reader->ready_told) {
        reader->ready_told = true;
        reader->events.on_ready(reader->owner);
    }
    if (slot->request == NULL) {
        slot_next(slot);
    }
}


/* With the last connection gone, those who wait are not kept waiting. */
static void
conn_lost(void *owner, const char *why)
{
    struct slot *slot = owner;
    struct reader *reader = slot->reader;
    struct read_request *request;

    (void)why;
    reader->entered++;
    while (!reader->destroyed && !reader_is_ready(reader) &&
           (request = queue_pop(reader)) != NULL) {
        request_lose(request);
    }
    reader_leave(reader);
}


static void
conn_refused(void *owner, const char *why)
{
    struct slot *slot = owner;

    slot->reader->events.on_refused(slot->reader->owner, why);
}


/* Said before the answer to the COMMIT. */
static void
conn_not_replicated(void *owner)
{
    struct slot *slot = owner;

    slot->unsure = true;
}


/* ---- for the callers --------------------------------------------------- */

struct reader *
reader_create(uv_loop_t *loop, const struct reader_options *options,
              const struct reader_events *events, void *owner)
{
    static const struct pg_conn_events conn_events = {
        .on_ready = conn_ready,
        .on_lost = conn_lost,
        .on_refused = conn_refused,
        .on_not_replicated = conn_not_replicated,
    };
    const int64_t timeout_ms = options->statement_timeout_us / 1000;
    const uint64_t patience_ms =
        timeout_ms == 0 ? 0 : (uint64_t)timeout_ms + READER_GRACE_MS;
    struct reader *reader = memory_alloc(sizeof(*reader));

    CHECK(options->connections > 0 &&
          options->connections <= READER_CONNECTIONS_MAX);
    reader->options = *options;
    reader->events = *events;
    reader->owner = owner;
    reader->url = memory_strdup(options->url);
    STAILQ_INIT(&reader->queue);
    snprintf(reader->settings, sizeof(reader->settings), READER_SETTINGS,
             timeout_ms, accesses[options->access].lock_timeout_ms,
             accesses[options->access].read_only);
    reader->slot_count = options->connections;
    reader->slots =
        memory_array((size_t)options->connections, sizeof(struct slot));
    for (int i = 0; i < options->connections; i++) {
        struct slot *slot = &reader->slots[i];

        slot->reader = reader;
        snprintf(slot->name, sizeof(slot->name), "%s-%d",
                 accesses[options->access].name, i);
        slot->conn = pg_conn_create(loop,
                                    &(struct pg_conn_options){
                                        .name = slot->name,
                                        .url = reader->url,
                                        .role = accesses[options->access].role,
                                        .settings = reader->settings,
                                        .selftest = true,
                                        .patience_ms = patience_ms,
                                    },
                                    &conn_events, slot);
    }
    return reader;
}


/* pg_conn gives its last callbacks inside pg_conn_destroy. */
void
reader_destroy(struct reader *reader)
{
    struct read_request *request;

    if (reader == NULL) {
        return;
    }
    reader->entered++;
    reader->destroyed = true;
    for (int i = 0; i < reader->slot_count; i++) {
        pg_conn_destroy(reader->slots[i].conn);
    }
    while ((request = queue_pop(reader)) != NULL) {
        request_lose(request);
    }
    reader_leave(reader);
}


bool
reader_is_expecting(const struct reader *reader, uint64_t within_us)
{
    if (reader->busy_count > 0) {
        return clock_mono_us() - reader->asked_us < within_us;
    }
    return reader->is_brisk && clock_mono_us() - reader->answered_us < BRISK_US;
}


void
reader_query(struct reader *reader, struct meter_str tenant,
             enum statement statement, const struct pg_params *params,
             pg_answer_cb cb, void *asker)
{
    static const struct pg_answer lost = {.outcome = PG_OUTCOME_LOST};
    struct slot *slot = slot_free(reader);
    struct read_request *request = NULL;

    if (slot != NULL || (reader_is_ready(reader) &&
                         reader->queue_count < reader->options.queue_max)) {
        request = request_create(tenant, statement, params, cb, asker);
    }
    if (request == NULL || reader->destroyed) {
        request_destroy(request);
        cb(asker, &lost);
        return;
    }
    if (slot != NULL) {
        slot_run(slot, request);
    } else {
        STAILQ_INSERT_TAIL(&reader->queue, request, next);
        reader->queue_count++;
    }
}
