/*
 * replay_input.h - the file that is replayed, from its name to batches.
 *
 *   FILE or standard input -> source -> [replay_input] -> batch
 */

#ifndef CMD_REPLAY_INPUT_H
#define CMD_REPLAY_INPUT_H

#include "cmd/replay_batch.h"
#include "config/config.h"

/* What `meterd replay` is asked for. */
struct replay_wish {
    struct config *config;
    const char *path; /* "-": standard input */
    bool is_csv;
    const char *tenant; /* NULL: each line names its own */
    const char *const *texts;
    size_t text_count;
    const char *rejects; /* NULL: told on stdout */
    bool is_dry;
    bool is_restart;
};

struct replay_input {
    const struct replay_wish *wish;
    const char *name; /* for messages */
    int file;
    bool is_regular; /* has a size and a place to go on from */
    int64_t size;    /* 0: not known */
    struct replay_source *source;
    struct replay_csv *csv;
    struct arena arena; /* the csv's */
    struct replay_batch batch;
};

/* Opens the file; of CSV the header is read. False: told on stderr. */
MUST_CHECK bool
replay_input_open(struct replay_input *input, const struct replay_wish *wish);
/* Also after a failed open. */
void replay_input_close(struct replay_input *input);

/* Goes on at a byte where a line begins. False: told on stderr. */
MUST_CHECK bool
replay_input_move(struct replay_input *input, int64_t offset, int64_t line);
/* The next batch, see replay_batch_fill. FAILED: told on stderr. */
MUST_CHECK enum replay_next replay_input_fill(struct replay_input *input);
/* Blocks until there is something to read. */
void replay_input_wait(const struct replay_input *input);

static inline struct meter_str
replay_tenant(const struct replay_wish *wish)
{
    return wish->tenant == NULL
               ? METER_STR("")
               : (struct meter_str){wish->tenant, strlen(wish->tenant)};
}

/* How the gate takes a body of a batch. */
static inline struct ingest_input
replay_ingest_input(const struct replay_wish *wish)
{
    return (struct ingest_input){.tenant = replay_tenant(wish),
                                 .is_backfill = true,
                                 .form = ENVELOPE_JSON};
}

#endif
