/*
 * dead_letter_replay.c - judges dead letters again and books them.
 *
 *   letter_store -> page of letters -> one by one -> ingest -> verdicts
 *
 * `meterd dead-letter replay` calls it. Each letter has a transaction of its
 * own, oldest first, so that the command may be ended at any moment: what is
 * booked is gone from the letters, and the rest is still there. Pages are read
 * over a blocking connection while the loop stands still; the loop then runs
 * until the last letter of the page has its answer.
 */

#include "base/clock.h"
#include "base/memory.h"
#include "base/process.h"
#include "cmd/replay.h"
#include "meter_msg.h"

#include <stdlib.h>

#define LETTERS_MAX  1000000 /* in one run */
#define PAGE_LETTERS 64
#define READY_MS     20000
#define LETTER_MS    60000
#define PROGRESS_MS  3000
#define REASON_ROOM  1024
#define RECORD_MAX   ((size_t)1 << 20)

/* A letter in hand; its bytes are its own. */
struct letter {
    struct letter_identity identity;
    int64_t recorded_us;
    struct buf node;
    struct buf record;
};

struct letter_replay {
    const struct dead_letter_options *options;
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

    uv_loop_t loop;
    uv_timer_t next;  /* the next letter, in a turn of its own */
    uv_timer_t limit; /* for what is waited for */
    struct replay_ingest own;
    bool is_ready;
    bool is_ending;
};


/* ---- what is told ----------------------------------------------------- */

static void
letter_replay_fail(struct letter_replay *replay, const char *why)
{
    if (!replay->failed) {
        fprintf(stderr, "meterd dead-letter: %s\n", why);
    }
    replay->failed = true;
}

static void
letter_tell_rejected(struct letter_replay *replay, const struct letter *letter,
                     const char *reason)
{
    char identity[LETTER_IDENTITY_SIZE];
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
letter_done(struct letter_replay *replay)
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
letter_tell_end(const struct letter_replay *replay)
{
    const size_t *verdicts = replay->verdicts;

    if (replay->options->is_dry) {
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
letter_page_row(void *asker, const struct letter_row *row)
{
    struct letter_replay *replay = asker;
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
        letter_replay_fail(replay, "out of memory");
    }
}

/* False: there is no more, or it failed. */
static bool
letter_page_read(struct letter_replay *replay, size_t *at)
{
    size_t left = replay->count - *at;
    size_t count = left < PAGE_LETTERS ? left : PAGE_LETTERS;

    replay->page_count = 0;
    replay->page_at = 0;
    if (count == 0 || replay->failed) {
        return false;
    }
    if (!letter_store_read(replay->store, replay->identities + *at, count,
                           letter_page_row, replay)) {
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
letter_page_check(struct letter_replay *replay)
{
    char reason[REASON_ROOM];

    for (size_t i = 0; i < replay->page_count && !replay->failed; i++) {
        struct letter *letter = &replay->page[i];
        struct ingest_letter wanted = letter_of(letter);

        switch (ingest_check_letter(replay->options->config, &wanted,
                                    &letter->record, reason, sizeof(reason))) {
        case INGEST_DONE:
            if (reason[0] == '\0') {
                replay->acceptable++;
            } else {
                letter_tell_rejected(replay, letter, reason);
            }
            break;
        case INGEST_BAD:
            letter_tell_rejected(replay, letter, "the record is damaged");
            break;
        default: letter_replay_fail(replay, "out of memory"); return;
        }
        letter_done(replay);
    }
}


/* ---- the loop --------------------------------------------------------- */

static void next_cb(uv_timer_t *timer);

static void
answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct letter_replay *replay = asker;
    const struct letter *letter = &replay->page[replay->page_at];

    if (replay->is_ending) {
        return;
    }
    switch (answer->outcome) {
    case INGEST_DONE:
        if (answer->codes[0] == METER_CODE_NONE) {
            replay->gone++;
        } else if (answer->codes[0] == METER_VERDICT_REJECTED) {
            letter_tell_rejected(replay, letter, answer->reason);
        } else {
            replay->verdicts[answer->codes[0]]++;
        }
        break;
    case INGEST_BAD:
        letter_tell_rejected(replay, letter, "the record is damaged");
        break;
    default: letter_replay_fail(replay, "out of memory"); break;
    }
    letter_done(replay);
    replay->page_at++;
    uv_timer_start(&replay->next, next_cb, 0, 0);
}

static void
limit_cb(uv_timer_t *timer)
{
    struct letter_replay *replay = timer->data;

    letter_replay_fail(
        replay, replay->is_ready ? "no answer from the database; the letter in "
                                   "hand is booked or still there: run it again"
                                 : "the database cannot be reached");
    uv_stop(&replay->loop);
}

/* The next letter of the page; after the last one the loop stands still. */
static void
next_cb(uv_timer_t *timer)
{
    struct letter_replay *replay = timer->data;
    struct letter *letter = &replay->page[replay->page_at];
    struct ingest_letter wanted;

    uv_timer_stop(&replay->limit);
    if (replay->page_at == replay->page_count || replay->failed) {
        uv_stop(&replay->loop);
        return;
    }
    uv_timer_start(&replay->limit, limit_cb, LETTER_MS, 0);
    wanted = letter_of(letter);
    ingest_replay_letter(replay->own.ingest, &wanted, &letter->record,
                         answer_cb, replay);
}

static void
letter_page_replay(struct letter_replay *replay)
{
    uv_timer_start(&replay->next, next_cb, 0, 0);
    uv_run(&replay->loop, UV_RUN_DEFAULT);
}


/* ---- the parts -------------------------------------------------------- */

static void
ready_cb(void *owner)
{
    struct letter_replay *replay = owner;

    replay->is_ready = true;
    uv_stop(&replay->loop);
}

static void
failed_cb(void *owner, const char *why)
{
    struct letter_replay *replay = owner;

    letter_replay_fail(replay, why);
    uv_stop(&replay->loop);
}

/* The loop is there in any case, for letter_replay_stop. */
static bool
letter_replay_start(struct letter_replay *replay)
{
    static const struct replay_ingest_options options = {
        .command = "dead-letter",
        .name = "replay",
        .answer_timeout_ms = LETTER_MS,
        .on_ready = ready_cb,
        .on_failed = failed_cb,
    };

    CHECK(uv_loop_init(&replay->loop) == 0);
    CHECK(uv_timer_init(&replay->loop, &replay->next) == 0);
    CHECK(uv_timer_init(&replay->loop, &replay->limit) == 0);
    replay->next.data = replay;
    replay->limit.data = replay;
    if (!replay_ingest_lock(&replay->own, &options, replay->options->config,
                            replay)) {
        replay->failed = true;
        return false;
    }
    if (!replay_ingest_start(&replay->own, &replay->loop)) {
        letter_replay_fail(replay, "cannot start");
        return false;
    }
    uv_timer_start(&replay->limit, limit_cb, READY_MS, 0);
    uv_run(&replay->loop, UV_RUN_DEFAULT);
    uv_timer_stop(&replay->limit);
    return !replay->failed;
}

static void
letter_replay_stop(struct letter_replay *replay)
{
    replay->is_ending = true;
    replay_ingest_stop(&replay->own);
    uv_close((uv_handle_t *)&replay->next, NULL);
    uv_close((uv_handle_t *)&replay->limit, NULL);
    while (uv_run(&replay->loop, UV_RUN_DEFAULT) != 0) {
        continue;
    }
    CHECK(uv_loop_close(&replay->loop) == 0);
    replay_ingest_unlock(&replay->own);
}


/* ---- all of it -------------------------------------------------------- */

/* Which letters: one, or those that there are now. */
static bool
letter_replay_find(struct letter_replay *replay)
{
    const struct dead_letter_options *options = replay->options;
    const struct letter_filter filter = {.tenant = options->tenant,
                                         .limit = LETTERS_MAX};

    if (options->identity == NULL) {
        return letter_store_identities(replay->store, &filter,
                                       &replay->identities, &replay->count);
    }
    replay->identities = memory_alloc(sizeof(*replay->identities));
    replay->identities[0] = *options->identity;
    replay->count = 1;
    return true;
}

static void
letter_replay_run(struct letter_replay *replay)
{
    bool is_dry = replay->options->is_dry;
    size_t at = 0;

    replay->store = letter_store_open(replay->options->config->database);
    if (replay->store == NULL || !letter_replay_find(replay)) {
        replay->failed = true;
        return;
    }
    if (!letter_page_read(replay, &at)) {
        letter_tell_end(replay);
        return;
    }
    if (replay->options->identity != NULL && replay->page_count == 0) {
        letter_replay_fail(replay,
                           "there is no dead letter with this identity");
        return;
    }
    if (is_dry || letter_replay_start(replay)) {
        do {
            if (is_dry) {
                letter_page_check(replay);
            } else {
                letter_page_replay(replay);
            }
        } while (letter_page_read(replay, &at));
        letter_tell_end(replay);
    }
    if (!is_dry) {
        letter_replay_stop(replay);
    }
}

int
dead_letter_replay(const struct dead_letter_options *options)
{
    struct letter_replay *replay = memory_alloc(sizeof(*replay));
    bool is_good;

    replay->options = options;
    replay->progress_due_ms = clock_mono_ms() + PROGRESS_MS;
    for (size_t i = 0; i < PAGE_LETTERS; i++) {
        buf_init(&replay->page[i].node, RECORD_MAX);
        buf_init(&replay->page[i].record, RECORD_MAX);
    }
    letter_replay_run(replay);
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
