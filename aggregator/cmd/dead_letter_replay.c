/*
 * dead_letter_replay.c - see dead_letter_replay.h.
 *
 *   identities -> page of letters -> one by one -> verdicts -> tally
 *
 * Pages are read over a blocking connection while the loop stands still;
 * the loop then runs until the last letter of the page has its answer.
 */

#include "cmd/dead_letter_replay.h"

#include "base/clock.h"
#include "base/process.h"
#include "cmd/dead_letter_text.h"
#include "ingest/ingest.h"
#include "meter_msg.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LETTERS_MAX  1000000 /* in one run */
#define PAGE_LETTERS 64
#define READY_MS     20000
#define LETTER_MS    60000
#define PROGRESS_MS  3000
#define REASON_ROOM  1024
#define NODE_SIZE    320
#define RECORD_MAX   ((size_t)1 << 20)

/* A letter in hand; its bytes are its own. */
struct letter {
    struct letter_identity identity;
    int64_t recorded_us;
    struct buf node;
    struct buf record;
};

struct replay {
    const struct dead_letter_wish *wish;
    struct letter_store *store;
    struct letter_identity *identities;
    size_t count;
    size_t done;

    struct letter page[PAGE_LETTERS];
    size_t page_count;
    size_t page_at;

    size_t verdicts[METER_VERDICT_COUNT];
    size_t acceptable; /* dry run */
    size_t gone;
    bool failed; /* not to the end; the reason is told */
    uint64_t progress_due_ms;

    char state_dir[PATH_MAX];
    char node[NODE_SIZE];
    int lock;
    uv_loop_t loop;
    uv_timer_t next;  /* the next letter, in a turn of its own */
    uv_timer_t limit; /* for what is waited for */
    struct lane *lane;
    struct partition *partition;
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;
    bool is_ending;
};


/* ---- what is told ----------------------------------------------------- */

static void
replay_fail(struct replay *replay, const char *why)
{
    if (!replay->failed) {
        fprintf(stderr, "meterd dead-letter: %s\n", why);
    }
    replay->failed = true;
}

static void
tell_rejected(struct replay *replay, const struct letter *letter,
              const char *reason)
{
    char identity[DEAD_LETTER_IDENTITY_SIZE];
    struct buf text;

    replay->verdicts[METER_VERDICT_REJECTED]++;
    dead_letter_identity_format(&letter->identity, identity);
    buf_init(&text, RECORD_MAX);
    buf_put_printable(&text, (struct meter_str){reason, strlen(reason)});
    buf_put_byte(&text, 0);
    printf("%s stays: %s\n", identity, text.failed ? "rejected" : text.data);
    buf_fini(&text);
}

/* A letter has its answer. */
static void
letter_done(struct replay *replay)
{
    uint64_t now_ms = clock_mono_ms();

    replay->done++;
    if (now_ms >= replay->progress_due_ms) {
        replay->progress_due_ms = now_ms + PROGRESS_MS;
        fprintf(stderr, "meterd dead-letter: %zu of %zu letters\n",
                replay->done, replay->count);
    }
}

static void
tell_end(const struct replay *replay)
{
    const size_t *verdicts = replay->verdicts;

    if (replay->wish->is_dry) {
        printf("dry run: %zu acceptable, %zu rejected\n", replay->acceptable,
               verdicts[METER_VERDICT_REJECTED]);
    } else {
        printf(
            "replayed: %zu accepted, %zu duplicate, %zu conflict; "
            "%zu rejected\n",
            verdicts[METER_VERDICT_ACCEPTED], verdicts[METER_VERDICT_DUPLICATE],
            verdicts[METER_VERDICT_CONFLICT], verdicts[METER_VERDICT_REJECTED]);
    }
    if (replay->gone > 0) {
        printf("%zu were gone: replayed by someone else\n", replay->gone);
    }
    if (replay->count == LETTERS_MAX) {
        printf("there may be more: run it again\n");
    }
}


/* ---- pages ------------------------------------------------------------ */

static void
page_row(void *asker, const struct letter_row *row)
{
    struct replay *replay = asker;
    struct letter *letter;

    /* Two rows of one identity are one letter: taking it takes both. */
    if (replay->page_count == PAGE_LETTERS ||
        (replay->page_count > 0 &&
         memcmp(&replay->page[replay->page_count - 1].identity, &row->identity,
                sizeof(row->identity)) == 0)) {
        return;
    }
    letter = &replay->page[replay->page_count++];
    letter->identity = row->identity;
    letter->recorded_us = row->recorded_us;
    buf_reset(&letter->node);
    buf_reset(&letter->record);
    buf_put_str(&letter->node, row->node);
    buf_put_str(&letter->record, row->record);
    if (letter->record.failed || letter->node.failed) {
        replay_fail(replay, "out of memory");
    }
}

/* False: there is no more, or it failed. */
static bool
page_read(struct replay *replay, size_t *at)
{
    size_t left = replay->count - *at;
    size_t count = left < PAGE_LETTERS ? left : PAGE_LETTERS;

    replay->page_count = 0;
    replay->page_at = 0;
    if (count == 0 || replay->failed) {
        return false;
    }
    if (!letter_store_read(replay->store, replay->identities + *at, count,
                           page_row, replay)) {
        replay->failed = true;
        return false;
    }
    *at += count;
    replay->gone += count - replay->page_count;
    replay->done += count - replay->page_count;
    return !replay->failed;
}

static struct ingest_letter
letter_of(const struct letter *letter)
{
    struct ingest_letter out = {
        .seq = (uint64_t)letter->identity.seq,
        .node = buf_str(&letter->node),
        .recorded_us = letter->recorded_us,
    };

    memcpy(out.session, letter->identity.session, sizeof(out.session));
    return out;
}

static void
page_check(struct replay *replay)
{
    char reason[REASON_ROOM];

    for (size_t i = 0; i < replay->page_count && !replay->failed; i++) {
        struct letter *letter = &replay->page[i];
        struct ingest_letter wanted = letter_of(letter);

        switch (ingest_check_letter(replay->wish->config, &wanted,
                                    &letter->record, reason, sizeof(reason))) {
        case INGEST_DONE:
            if (reason[0] == '\0') {
                replay->acceptable++;
            } else {
                tell_rejected(replay, letter, reason);
            }
            break;
        case INGEST_BAD:
            tell_rejected(replay, letter, "the record is damaged");
            break;
        default: replay_fail(replay, "out of memory"); return;
        }
        letter_done(replay);
    }
}


/* ---- the loop --------------------------------------------------------- */

static void next_cb(uv_timer_t *timer);

static void
answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct replay *replay = asker;
    const struct letter *letter = &replay->page[replay->page_at];

    if (replay->is_ending) {
        return;
    }
    switch (answer->outcome) {
    case INGEST_DONE:
        if (answer->codes[0] == METER_CODE_NONE) {
            replay->gone++;
        } else if (answer->codes[0] == METER_VERDICT_REJECTED) {
            tell_rejected(replay, letter, answer->reason);
        } else {
            replay->verdicts[answer->codes[0]]++;
        }
        break;
    case INGEST_BAD:
        tell_rejected(replay, letter, "the record is damaged");
        break;
    default: replay_fail(replay, "out of memory"); break;
    }
    letter_done(replay);
    replay->page_at++;
    uv_timer_start(&replay->next, next_cb, 0, 0);
}

static void
limit_cb(uv_timer_t *timer)
{
    struct replay *replay = timer->data;

    replay_fail(replay, replay->ingest != NULL && replay->is_lane_ready
                            ? "no answer from the database; the letter in "
                              "hand is booked or still there: run it again"
                            : "the database cannot be reached");
    uv_stop(&replay->loop);
}

/* The next letter of the page; behind the last one the loop stands still. */
static void
next_cb(uv_timer_t *timer)
{
    struct replay *replay = timer->data;
    struct letter *letter = &replay->page[replay->page_at];
    struct ingest_letter wanted;

    uv_timer_stop(&replay->limit);
    if (replay->page_at == replay->page_count || replay->failed) {
        uv_stop(&replay->loop);
        return;
    }
    uv_timer_start(&replay->limit, limit_cb, LETTER_MS, 0);
    wanted = letter_of(letter);
    ingest_replay_letter(replay->ingest, &wanted, &letter->record, answer_cb,
                         replay);
}

static void
page_replay(struct replay *replay)
{
    uv_timer_start(&replay->next, next_cb, 0, 0);
    uv_run(&replay->loop, UV_RUN_DEFAULT);
}


/* ---- the lane --------------------------------------------------------- */

/* Whoever is at work there is waited for. False: errno. */
static bool
state_lock(struct replay *replay)
{
    if (mkdir(replay->state_dir, 0700) != 0 && errno != EEXIST) {
        return false;
    }
    replay->lock = open(replay->state_dir,
                        O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (replay->lock < 0) {
        return false;
    }
    if (flock(replay->lock, LOCK_EX | LOCK_NB) == 0) {
        return true;
    }
    if (errno != EWOULDBLOCK) {
        return false;
    }
    fputs("meterd dead-letter: waiting for another replay\n", stderr);
    return flock(replay->lock, LOCK_EX) == 0;
}

/* A directory of our own, held to the end. */
static bool
state_open(struct replay *replay)
{
    int size = snprintf(replay->state_dir, sizeof(replay->state_dir),
                        "%s/replay", replay->wish->config->state_dir);

    if (size < 0 || (size_t)size >= sizeof(replay->state_dir)) {
        replay_fail(replay, "the path of stateDir is too long");
        return false;
    }
    if (!state_lock(replay)) {
        fprintf(stderr, "meterd dead-letter: %s: %s\n", replay->state_dir,
                strerror(errno));
        replay->failed = true;
    }
    return !replay->failed;
}

static void
ready_check(struct replay *replay)
{
    if (replay->is_lane_ready && replay->is_partition_ready) {
        uv_stop(&replay->loop);
    }
}

static void
lane_ready_cb(void *owner, int64_t last, int64_t batch)
{
    struct replay *replay = owner;
    bool was_ready = replay->is_lane_ready;

    ingest_lane_ready(replay->ingest, last, batch);
    replay->is_lane_ready = true;
    if (!was_ready) {
        ready_check(replay);
    }
}

static void
lane_lost_cb(void *owner, const char *why)
{
    struct replay *replay = owner;

    (void)why; /* logged by the connection */
    ingest_lane_lost(replay->ingest);
}

static void
lane_refused_cb(void *owner, const char *why)
{
    struct replay *replay = owner;

    replay_fail(replay, why);
    uv_stop(&replay->loop);
}

static void
lane_not_replicated_cb(void *owner)
{
    struct replay *replay = owner;

    ingest_not_replicated(replay->ingest);
}

static void
partition_ready_cb(void *owner)
{
    struct replay *replay = owner;

    replay->is_partition_ready = true;
    ready_check(replay);
}

static bool
parts_create(struct replay *replay)
{
    static const struct lane_events events = {
        .on_ready = lane_ready_cb,
        .on_lost = lane_lost_cb,
        .on_refused = lane_refused_cb,
        .on_not_replicated = lane_not_replicated_cb,
    };
    struct config *config = replay->wish->config;
    const struct lane_options lane = {.url = config->database,
                                      .state_dir = replay->state_dir,
                                      .node = replay->node};
    struct partition_options partition = {.admin_url = config->admin_database};
    const struct ingest_options ingest = {.answer_timeout_ms = LETTER_MS,
                                          .state_dir = replay->state_dir};

    snprintf(replay->node, sizeof(replay->node), "%s replay", config->node);
    partition_retention_days(config, partition.retention_days);
    if (!lane_create(&replay->loop, &lane, &events, replay, &replay->lane)) {
        return false;
    }
    replay->partition =
        partition_create(&replay->loop, &partition, partition_ready_cb, replay);
    if (replay->partition == NULL) {
        return false;
    }
    replay->ingest = ingest_create(&replay->loop, config, replay->lane,
                                   replay->partition, &ingest);
    return replay->ingest != NULL;
}

/* The loop is there in any case, for parts_destroy. */
static bool
parts_start(struct replay *replay)
{
    CHECK(uv_loop_init(&replay->loop) == 0);
    CHECK(uv_timer_init(&replay->loop, &replay->next) == 0);
    CHECK(uv_timer_init(&replay->loop, &replay->limit) == 0);
    replay->next.data = replay;
    replay->limit.data = replay;
    if (!state_open(replay)) {
        return false;
    }
    if (!parts_create(replay)) {
        replay_fail(replay, "cannot start");
        return false;
    }
    uv_timer_start(&replay->limit, limit_cb, READY_MS, 0);
    uv_run(&replay->loop, UV_RUN_DEFAULT);
    uv_timer_stop(&replay->limit);
    return !replay->failed;
}

static void
parts_destroy(struct replay *replay)
{
    replay->is_ending = true;
    ingest_destroy(replay->ingest);
    partition_destroy(replay->partition);
    lane_destroy(replay->lane);
    uv_close((uv_handle_t *)&replay->next, NULL);
    uv_close((uv_handle_t *)&replay->limit, NULL);
    while (uv_run(&replay->loop, UV_RUN_DEFAULT) != 0) {
        continue;
    }
    CHECK(uv_loop_close(&replay->loop) == 0);
    if (replay->lock >= 0) {
        close(replay->lock);
    }
}


/* ---- all of it -------------------------------------------------------- */

/* Which letters: one, or those that there are now. */
static bool
replay_find(struct replay *replay)
{
    const struct dead_letter_wish *wish = replay->wish;
    const struct letter_filter filter = {.tenant = wish->tenant,
                                         .limit = LETTERS_MAX};

    if (wish->identity == NULL) {
        return letter_store_identities(replay->store, &filter,
                                       &replay->identities, &replay->count);
    }
    replay->identities = malloc(sizeof(*replay->identities));
    if (replay->identities == NULL) {
        return false;
    }
    replay->identities[0] = *wish->identity;
    replay->count = 1;
    return true;
}

static void
replay_run(struct replay *replay)
{
    bool is_dry = replay->wish->is_dry;
    size_t at = 0;

    replay->store = letter_store_open(replay->wish->config->database);
    if (replay->store == NULL || !replay_find(replay)) {
        replay->failed = true;
        return;
    }
    if (!page_read(replay, &at)) {
        tell_end(replay);
        return;
    }
    if (replay->wish->identity != NULL && replay->page_count == 0) {
        replay_fail(replay, "there is no dead letter with this identity");
        return;
    }
    if (is_dry || parts_start(replay)) {
        do {
            if (is_dry) {
                page_check(replay);
            } else {
                page_replay(replay);
            }
        } while (page_read(replay, &at));
        tell_end(replay);
    }
    if (!is_dry) {
        parts_destroy(replay);
    }
}

int
dead_letter_replay(const struct dead_letter_wish *wish)
{
    struct replay *replay = calloc(1, sizeof(*replay));
    bool is_good;

    if (replay == NULL) {
        fputs("meterd dead-letter: out of memory\n", stderr);
        return PROCESS_FAILED;
    }
    replay->wish = wish;
    replay->lock = -1;
    replay->progress_due_ms = clock_mono_ms() + PROGRESS_MS;
    for (size_t i = 0; i < PAGE_LETTERS; i++) {
        buf_init(&replay->page[i].node, RECORD_MAX);
        buf_init(&replay->page[i].record, RECORD_MAX);
    }
    replay_run(replay);
    is_good = !replay->failed && replay->verdicts[METER_VERDICT_REJECTED] == 0;
    for (size_t i = 0; i < PAGE_LETTERS; i++) {
        buf_fini(&replay->page[i].node);
        buf_fini(&replay->page[i].record);
    }
    letter_store_close(replay->store);
    free(replay->identities);
    free(replay);
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}
