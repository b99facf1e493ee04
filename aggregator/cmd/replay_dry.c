/*
 * replay_dry.c - what a replay would do, see replay_job.h.
 *
 *   replay_input -> batch -> ingest_check -> tally;  registry: looked at
 *
 * Each batch is judged against the registry as it is now. An id that stands
 * in the file twice is seen when both lines are in one batch; else both count
 * as what the registry says, since nothing is written in between.
 */

#include "cmd/replay_job.h"

#include "base/clock.h"
#include "base/progress.h"
#include "ingest/ingest_check.h"

#include <stdio.h>

struct replay_dry {
    const struct replay_wish *wish;
    struct replay_input input;
    struct replay_tally tally;
    struct registry_store *registry;
    struct progress progress;
    bool failed;
};

static void
answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct replay_dry *dry = asker;

    if (answer->outcome != INGEST_DONE && answer->outcome != INGEST_BAD) {
        progress_end(&dry->progress);
        fputs("meterd replay: no database, or no memory\n", stderr);
        dry->failed = true;
        return;
    }
    replay_batch_answered(&dry->input.batch, answer, &dry->tally);
}

static void
batch_check(struct replay_dry *dry)
{
    const struct ingest_input input = replay_ingest_input(dry->wish);
    struct buf body;

    buf_init(&body, METER_BODY_SIZE_MAX);
    while (!dry->failed && replay_batch_next(&dry->input.batch, &body)) {
        if (body.failed) {
            dry->failed = true;
            break;
        }
        ingest_check(dry->registry, dry->wish->config, &input, &body, answer_cb,
                     dry);
    }
    buf_fini(&body);
}

static void
dry_work(struct replay_dry *dry)
{
    const struct replay_batch *batch = &dry->input.batch;
    enum replay_next next;
    int64_t before = 0;

    progress_start(&dry->progress, "dry run", NULL, dry->input.size);
    do {
        next = replay_input_fill(&dry->input);
        dry->failed = next == REPLAY_FAILED;
        batch_check(dry);
        dry->failed = !replay_tally_flush(&dry->tally) || dry->failed;
        if (batch->count > 0) {
            progress_add(&dry->progress, batch->offset_next - before);
            before = batch->offset_next;
        }
        if (next == REPLAY_AGAIN && !dry->failed) {
            replay_input_wait(&dry->input);
        }
    } while (next != REPLAY_END && !dry->failed);
    progress_end(&dry->progress);
}

int
replay_dry_run(const struct replay_wish *wish)
{
    struct replay_dry dry = {.wish = wish};
    int status = REPLAY_EXIT_FAILED;

    replay_tally_init(&dry.tally, wish->rejects);
    dry.tally.progress = &dry.progress;
    if (replay_input_open(&dry.input, wish) &&
        replay_tally_open(&dry.tally, 0, dry.input.file)) {
        dry.registry = registry_store_open(wish->config->database);
    }
    if (dry.registry != NULL) {
        dry_work(&dry);
    }
    if (dry.registry != NULL && !dry.failed) {
        replay_tally_tell(&dry.tally, "dry run");
        status = replay_tally_is_clean(&dry.tally) ? REPLAY_EXIT_CLEAN
                                                   : REPLAY_EXIT_SOME;
    }
    registry_store_close(dry.registry);
    replay_tally_fini(&dry.tally);
    replay_input_close(&dry.input);
    return status;
}
