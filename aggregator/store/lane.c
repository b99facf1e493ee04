/*
 * lane.c - one connection as meter_writer plus one writer row.
 *
 *   ingest -> [lane] -> pg_conn -> PostgreSQL
 *              |
 *              +-> state_dir/writer-0: "xxxxxxxx-xxxx-4...\n"
 *
 * At every connect one transaction opens the lane:
 *
 *   BEGIN; claim (first time only); writer FOR SHARE; writer_seq FOR
 *   UPDATE; heartbeat; rules; salt; role; COMMIT
 *
 * The row lock waits for a backend of ours that may still be committing, so
 * `batch` read after it tells how an unknown COMMIT ended. Whatever fails
 * here drops the connection, and pg_conn tries again later. The incarnation
 * is asked for in a flush of its own, since a server may refuse to tell.
 */

#include "store/lane.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "meter_hash.h"
#include "pg/selftest.h"
#include "store/rule_store.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_SIZE 32

/* An idle lane says that it lives, and hears whether commits are taken. */
#define HEARTBEAT_US UINT64_C(5000000)
#define LOOK_MS      1000

/*
 * Look-ups by arrays are nested loops over an index; nothing else is ever
 * right for them, and a generic plan saves planning 5,000 elements.
 */
#define LANE_SETTINGS                                     \
    "enable_seqscan=off enable_hashjoin=off"              \
    " enable_mergejoin=off enable_bitmapscan=off jit=off" \
    " plan_cache_mode=force_generic_plan"

enum lane_state {
    LANE_AWAY,    /* for the connection */
    LANE_OPENING, /* for the transaction above */
    LANE_READY    /* for ingest */
};

struct lane {
    struct pg_conn *conn;
    struct lane_events events;
    void *owner;
    uv_timer_t heartbeat;
    char *url;
    char *node;
    char name[24];
    int file;

    enum lane_state state;
    bool opening_failed;
    bool claimed;
    uint8_t writer[16];
    int64_t epoch;
    int64_t last;
    int64_t batch;

    bool has_secret;
    uint8_t secret[SECRET_SIZE];
    struct meter_salt salt;
    bool can_copy;
    uint64_t db_epoch;
    bool has_no_epoch; /* and this was logged */

    bool is_beating; /* a heartbeat has no answer yet */
    bool is_refused; /* the last one was */
    struct log_repeat said;

    int64_t db_now_us; /* 0: never seen */
    uint64_t seen_at_us;
};


/* ---- the writer's file ------------------------------------------------ */

/*
 * The file is held with flock for the life of the process, so two processes
 * on one host never share a writer. A copied state directory is caught by
 * the epoch instead. A file whose content is no UUID is left alone and
 * refused: an id that was in use must not silently become another one.
 */
#define UUID_TEXT_SIZE 36

static bool
writer_file_failed(const char *what, const char *path)
{
    log_error("lane", what, log_str("path", path),
              log_str("error", strerror(errno)));
    return false;
}


static bool
writer_file_lock(int fd, const char *path)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno == EWOULDBLOCK) {
        log_error("lane", "another meterd uses this state directory",
                  log_str("path", path));
        return false;
    }
    return writer_file_failed("writer file cannot be locked", path);
}


/* A plain file of this user, and still the one under that name. */
static bool
writer_file_is_ours(int fd, const char *path)
{
    struct stat held;
    struct stat named;

    if (fstat(fd, &held) != 0 || lstat(path, &named) != 0) {
        return writer_file_failed("writer file cannot be looked at", path);
    }
    if (!S_ISREG(held.st_mode) || held.st_uid != geteuid() ||
        held.st_dev != named.st_dev || held.st_ino != named.st_ino) {
        log_error("lane", "writer file is not a plain file of this user",
                  log_str("path", path));
        return false;
    }
    return true;
}


static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}


static bool
writer_id_parse(const char *text, ssize_t size, uint8_t writer[16])
{
    size_t at = 0;

    if (size != UUID_TEXT_SIZE + 1 || text[UUID_TEXT_SIZE] != '\n') {
        return false;
    }
    for (int i = 0; i < 16; i++) {
        if (at == 8 || at == 13 || at == 18 || at == 23) {
            if (text[at++] != '-') {
                return false;
            }
        }

        int high = hex_value(text[at]);
        int low = hex_value(text[at + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        writer[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return true;
}


static void
writer_id_format(const uint8_t writer[16], char text[UUID_TEXT_SIZE + 2])
{
    char hex[33];

    meter_hex(writer, 16, hex);
    snprintf(text, UUID_TEXT_SIZE + 2, "%.8s-%.4s-%.4s-%.4s-%.12s\n", hex,
             hex + 8, hex + 12, hex + 16, hex + 20);
}


static bool
directory_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return false;
    }

    bool ok = fsync(fd) == 0;

    close(fd);
    return ok;
}


/* A new id, on disk before it is used. */
static bool
writer_file_draw(int fd, const char *state_dir, const char *path,
                 uint8_t writer[16])
{
    char text[UUID_TEXT_SIZE + 2];

    if (getrandom(writer, 16, 0) != 16) {
        return writer_file_failed("no random bytes for a writer id", path);
    }
    writer[6] = (uint8_t)((writer[6] & 0x0f) | 0x40); /* version 4 */
    writer[8] = (uint8_t)((writer[8] & 0x3f) | 0x80); /* RFC 4122 */
    writer_id_format(writer, text);
    if (pwrite(fd, text, UUID_TEXT_SIZE + 1, 0) != UUID_TEXT_SIZE + 1 ||
        fsync(fd) != 0 || !directory_sync(state_dir)) {
        return writer_file_failed("writer file cannot be written", path);
    }
    log_info("lane", "new writer",
             log_bytes("writer", (struct meter_str){text, UUID_TEXT_SIZE}));
    return true;
}


/*
 * Opens state_dir/writer-<index>, locks it and reads the id; makes the file
 * (0600) and draws an id when there is none. *fd is to be kept open. False:
 * logged.
 */
static bool
writer_file_open(const char *state_dir, int index, int *fd, uint8_t writer[16])
{
    char path[PATH_MAX];
    char text[UUID_TEXT_SIZE + 8];
    bool ok = false;

    if (snprintf(path, sizeof(path), "%s/writer-%d", state_dir, index) >=
        (int)sizeof(path)) {
        errno = ENAMETOOLONG;
        return writer_file_failed("state directory", state_dir);
    }
    *fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    if (*fd < 0) {
        return writer_file_failed("writer file cannot be opened", path);
    }
    if (!writer_file_lock(*fd, path) || !writer_file_is_ours(*fd, path)) {
        goto done;
    }

    ssize_t size = pread(*fd, text, sizeof(text), 0);

    if (size < 0) {
        writer_file_failed("writer file cannot be read", path);
    } else if (size == 0) {
        ok = writer_file_draw(*fd, state_dir, path, writer);
    } else if (writer_id_parse(text, size, writer)) {
        ok = true;
    } else {
        log_error("lane", "writer file holds no UUID", log_str("path", path));
    }

done:
    if (!ok) {
        close(*fd);
        *fd = -1;
    }
    return ok;
}


/* ---- what others ask --------------------------------------------------- */

bool
lane_is_ready(const struct lane *lane)
{
    return lane->state == LANE_READY && pg_conn_is_ready(lane->conn);
}


bool
lane_is_refused(const struct lane *lane)
{
    return lane->is_refused;
}


struct pg_conn *
lane_conn(struct lane *lane)
{
    return lane->conn;
}


const uint8_t *
lane_writer(const struct lane *lane)
{
    return lane->writer;
}


int64_t
lane_epoch(const struct lane *lane)
{
    return lane->epoch;
}


const struct meter_salt *
lane_salt(const struct lane *lane)
{
    CHECK(lane->has_secret);
    return &lane->salt;
}


bool
lane_can_copy(const struct lane *lane)
{
    return lane->can_copy;
}


uint64_t
lane_db_epoch(const struct lane *lane)
{
    return lane->db_epoch;
}


int64_t
lane_now_us(const struct lane *lane)
{
    if (lane->db_now_us == 0) {
        return 0;
    }
    return lane->db_now_us + (int64_t)(clock_mono_us() - lane->seen_at_us);
}


void
lane_clock_seen(struct lane *lane, int64_t db_now_us)
{
    lane->db_now_us = db_now_us;
    lane->seen_at_us = clock_mono_us();
}


void
lane_fenced(const struct lane *lane, int64_t epoch_seen)
{
    log_error("lane", "another instance took this writer; stopping",
              log_str("lane", lane->name), log_int("epoch", lane->epoch),
              log_int("epoch_seen", epoch_seen));
    _exit(EXIT_FAILURE);
}


/* ---- opening ----------------------------------------------------------- */

static void
opening_fail(struct lane *lane, const char *why)
{
    if (lane->opening_failed) {
        return;
    }
    lane->opening_failed = true;
    pg_conn_reset(lane->conn, why); /* which logs it */
}


/* False: this opening is over; who met the reason has said so. */
static bool
opening_ok(struct lane *lane, const struct pg_answer *answer)
{
    if (lane->state != LANE_OPENING || lane->opening_failed) {
        return false;
    }
    if (answer->outcome == PG_OUTCOME_ERROR) {
        opening_fail(lane, answer->message);
    }
    return answer->outcome == PG_OUTCOME_OK;
}


static void
open_plain_cb(void *asker, const struct pg_answer *answer)
{
    (void)opening_ok(asker, answer);
}


static void
open_claim_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (opening_ok(lane, answer)) {
        lane->epoch = pg_get_int8(answer->result, 0, 0);
    }
}


static void
open_writer_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (!opening_ok(lane, answer)) {
        return;
    }

    /* No row: the database forgot us, so it went back in time. */
    int64_t epoch = pg_row_count(answer->result) == 0
                        ? 0
                        : pg_get_int8(answer->result, 0, 0);

    if (epoch != lane->epoch) {
        lane_fenced(lane, epoch);
    }
}


static void
open_seq_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (!opening_ok(lane, answer)) {
        return;
    }
    if (pg_row_count(answer->result) == 0) {
        opening_fail(lane, "the writer has no sequence row");
        return;
    }
    lane->last = pg_get_int8(answer->result, 0, 0);
    lane->batch = pg_get_int8(answer->result, 0, 1);
    lane_clock_seen(lane, pg_get_time(answer->result, 0, 3));
}


static void
open_secret_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (!opening_ok(lane, answer)) {
        return;
    }

    struct meter_str secret = pg_row_count(answer->result) == 0
                                  ? (struct meter_str){NULL, 0}
                                  : pg_get_bytes(answer->result, 0, 0);

    if (secret.size != SECRET_SIZE) {
        opening_fail(lane, "the database has no salt");
        return;
    }
    if (lane->has_secret &&
        memcmp(lane->secret, secret.data, SECRET_SIZE) != 0) {
        opening_fail(lane, "the database has another salt than before");
        return;
    }
    if (!lane->has_secret) {
        memcpy(lane->secret, secret.data, SECRET_SIZE);
        meter_salt_init(&lane->salt, lane->secret, SECRET_SIZE);
        lane->has_secret = true;
    }
}


static void
open_role_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (opening_ok(lane, answer)) {
        lane->can_copy = pg_row_count(answer->result) == 1 &&
                         pg_get_bool(answer->result, 0, 0);
    }
}


static void
lane_epoch_set(struct lane *lane, struct meter_str incarnation)
{
    uint64_t epoch = meter_hash(incarnation.data, incarnation.size, 0);

    epoch += epoch == 0;
    if (lane->db_epoch != 0 && lane->db_epoch != epoch) {
        log_warn("lane", "another incarnation of the database",
                 log_str("lane", lane->name));
    }
    lane->db_epoch = epoch;
}


static void
lane_ready(struct lane *lane)
{
    lane->state = LANE_READY;
    lane->is_refused = false;
    if (!lane->can_copy) {
        log_warn("lane",
                 "meter_writer has no BYPASSRLS: ingest works without COPY, "
                 "slower");
    }
    log_info("lane", "ready", log_str("lane", lane->name),
             log_int("epoch", lane->epoch), log_int("last", lane->last),
             log_int("batch", lane->batch));
    lane->events.on_ready(lane->owner, lane->last, lane->batch);
}


/*
 * A server that does not tell gets a name that never changes, drawn from the
 * salt: a database that went back then shows by what it has forgotten.
 */
static void
open_incarnation_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;
    uint8_t digest[METER_DIGEST_SIZE];
    char text[64];

    if (lane->state != LANE_OPENING || lane->opening_failed ||
        answer->outcome == PG_OUTCOME_LOST) {
        return;
    }
    if (answer->outcome == PG_OUTCOME_OK && pg_row_count(answer->result) == 1) {
        struct meter_str timeline = pg_get_bytes(answer->result, 0, 1);
        int size =
            snprintf(text, sizeof(text), "%lld %.*s",
                     (long long)pg_get_int8(answer->result, 0, 0),
                     timeline.size > 8 ? 8 : (int)timeline.size, timeline.data);

        lane_epoch_set(lane, (struct meter_str){text, (size_t)size});
    } else {
        if (!lane->has_no_epoch) {
            log_warn("lane",
                     "the server does not tell its timeline: a fail-over is "
                     "only noticed by missing records",
                     log_str("sqlstate", answer->sqlstate));
        }
        lane->has_no_epoch = true;
        meter_hmac(&lane->salt.id, "incarnation", 11, digest);
        lane_epoch_set(lane,
                       (struct meter_str){(char *)digest, sizeof(digest)});
    }
    lane_ready(lane);
}


static void
open_commit_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    if (!opening_ok(lane, answer)) {
        return;
    }
    lane->claimed = true;
    pg_conn_query(lane->conn, STATEMENT_LANE_INCARNATION, NULL,
                  open_incarnation_cb, lane);
    pg_conn_flush(lane->conn);
}


/* One round trip; the answers come one by one below. */
/*
 * After the claim, so that whoever had this writer before counts no more;
 * at every connect, since the database may have gone back.
 */
static void
open_rules(struct lane *lane, struct pg_params *params)
{
    struct rule_digests digests;

    if (lane->events.on_rules == NULL) {
        return;
    }
    if (!rule_digests_make(lane->events.on_rules(lane->owner), &digests)) {
        opening_fail(lane, "no memory is left for the rules");
        return;
    }
    pg_params_reset(params);
    rule_note_put(lane->writer, &digests, NULL, params);
    rule_digests_fini(&digests);
    pg_conn_query(lane->conn, STATEMENT_RULE_NOTE, params, open_plain_cb, lane);
}


static void
open_begin(void *owner)
{
    struct lane *lane = owner;
    struct pg_conn *conn = lane->conn;
    struct pg_params params;

    lane->state = LANE_OPENING;
    lane->opening_failed = false;
    pg_params_init(&params);

    pg_conn_command(conn, STATEMENT_BEGIN, open_plain_cb, lane);
    pg_param_uuid(&params, lane->writer);
    if (!lane->claimed) {
        pg_param_text(&params,
                      (struct meter_str){lane->node, strlen(lane->node)});
        pg_conn_query(conn, STATEMENT_WRITER_CLAIM, &params, open_claim_cb,
                      lane);
        pg_params_reset(&params);
        pg_param_uuid(&params, lane->writer);
        pg_conn_query(conn, STATEMENT_WRITER_SEQ_ENSURE, &params, open_plain_cb,
                      lane);
        pg_conn_query(conn, STATEMENT_WRITER_FLUSH_ENSURE, &params,
                      open_plain_cb, lane);
    }
    pg_conn_query(conn, STATEMENT_INGEST_LOCK_WRITER, &params, open_writer_cb,
                  lane);
    pg_conn_query(conn, STATEMENT_INGEST_LOCK_SEQ, &params, open_seq_cb, lane);
    pg_conn_query(conn, STATEMENT_LANE_HEARTBEAT, &params, open_plain_cb, lane);
    open_rules(lane, &params);
    pg_conn_query(conn, STATEMENT_LANE_SECRET, NULL, open_secret_cb, lane);
    pg_conn_query(conn, STATEMENT_LANE_ROLE, NULL, open_role_cb, lane);
    pg_conn_command(conn, STATEMENT_COMMIT, open_commit_cb, lane);
    pg_conn_flush(conn);

    pg_params_fini(&params);
}


/* ---- the heartbeat ----------------------------------------------------- */

/* Without events nobody else would notice that nothing can be committed. */
static void
heartbeat_answer_cb(void *asker, const struct pg_answer *answer)
{
    struct lane *lane = asker;

    lane->is_beating = false;
    lane->is_refused = answer->outcome == PG_OUTCOME_ERROR;
    if (lane->is_refused &&
        log_repeat_is_due(&lane->said, answer->message, clock_mono_ms())) {
        log_warn("lane", "the database takes no commits",
                 log_str("sqlstate", answer->sqlstate),
                 log_str("reason", answer->message));
    }
    if (answer->outcome != PG_OUTCOME_OK) {
        return; /* a loss is reported elsewhere */
    }
    log_repeat_forget(&lane->said);
    if (pg_row_count(answer->result) == 0) {
        lane_fenced(lane, 0);
    }
    lane_clock_seen(lane, pg_get_time(answer->result, 0, 0));
}


/* Every ingest transaction is a heartbeat; only an idle lane needs more. */
static void
heartbeat_cb(uv_timer_t *timer)
{
    struct lane *lane = timer->data;
    struct pg_params params;

    if (!lane_is_ready(lane) || lane->is_beating ||
        clock_mono_us() - lane->seen_at_us < HEARTBEAT_US) {
        return;
    }
    lane->is_beating = true;
    pg_params_init(&params);
    pg_param_uuid(&params, lane->writer);
    pg_param_int8(&params, lane->epoch);
    pg_conn_query(lane->conn, STATEMENT_LANE_HEARTBEAT_IDLE, &params,
                  heartbeat_answer_cb, lane);
    pg_conn_flush(lane->conn);
    pg_params_fini(&params);
}


/* ---- life -------------------------------------------------------------- */

static void
lane_conn_lost(void *owner, const char *why)
{
    struct lane *lane = owner;
    bool was_ready = lane->state == LANE_READY;

    lane->state = LANE_AWAY;
    if (was_ready) {
        lane->events.on_lost(lane->owner, why);
    }
}


static void
lane_conn_refused(void *owner, const char *why)
{
    struct lane *lane = owner;

    lane->events.on_refused(lane->owner, why);
}


static void
lane_conn_not_replicated(void *owner)
{
    struct lane *lane = owner;

    if (lane->state == LANE_READY) {
        lane->events.on_not_replicated(lane->owner);
    } else {
        opening_fail(lane, "the opening commit is not replicated");
    }
}


static void
lane_free(struct lane *lane)
{
    if (lane->file >= 0) {
        close(lane->file); /* the lock goes with it */
    }
    free(lane->url);
    free(lane->node);
    free(lane);
}


static void
lane_closed_cb(uv_handle_t *handle)
{
    lane_free(handle->data);
}


bool
lane_create(uv_loop_t *loop, const struct lane_options *options,
            const struct lane_events *events, void *owner, struct lane **out)
{
    static const struct pg_conn_events conn_events = {
        .on_ready = open_begin,
        .on_lost = lane_conn_lost,
        .on_refused = lane_conn_refused,
        .on_not_replicated = lane_conn_not_replicated,
    };
    struct lane *lane = memory_alloc(sizeof(*lane));

    *out = NULL;
    lane->file = -1;
    lane->events = *events;
    lane->owner = owner;
    lane->url = memory_strdup(options->url);
    lane->node = memory_strdup(options->node);
    snprintf(lane->name, sizeof(lane->name), "lane-%d", options->index);
    if (!writer_file_open(options->state_dir, options->index, &lane->file,
                          lane->writer)) {
        lane_free(lane);
        return false;
    }

    lane->conn = pg_conn_create(loop,
                                &(struct pg_conn_options){
                                    .name = lane->name,
                                    .url = lane->url,
                                    .role = STORE_ROLE_WRITER,
                                    .settings = LANE_SETTINGS,
                                    .selftest = true,
                                },
                                &conn_events, lane);
    uv_timer_init(loop, &lane->heartbeat);
    lane->heartbeat.data = lane;
    uv_timer_start(&lane->heartbeat, heartbeat_cb, LOOK_MS, LOOK_MS);
    *out = lane;
    return true;
}


void
lane_destroy(struct lane *lane)
{
    if (lane == NULL) {
        return;
    }
    lane->state = LANE_AWAY;
    pg_conn_destroy(lane->conn);
    uv_close((uv_handle_t *)&lane->heartbeat, lane_closed_cb);
}
