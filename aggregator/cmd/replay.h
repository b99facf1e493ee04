/*
 * replay.h - the pieces of `meterd replay`, and what `meterd dead-letter
 * replay` shares with it.
 *
 *   replay.c         the command line, and the dry run
 *   replay_job.c     the replay: batches -> ingest, resume file
 *   replay_input.c   FILE or standard input -> batches of events
 *   replay_tally.c   verdicts of lines -> counts; rejects file, or stdout
 *   replay_ingest.c  an ingest of the command's own; of dead letters, too
 */

#ifndef CMD_REPLAY_H
#define CMD_REPLAY_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/progress.h"
#include "cmd/letter_store.h"
#include "config/config.h"
#include "ingest/ingest.h"
#include "meter_digest.h"
#include "series/series_engine.h"

#include <limits.h>
#include <stdio.h>

/* Exit statuses of `meterd replay`. */
enum replay_exit {
    REPLAY_EXIT_CLEAN = 0,  /* all events accepted or duplicate */
    REPLAY_EXIT_SOME = 1,   /* some conflict or rejected */
    REPLAY_EXIT_FAILED = 2, /* could not run, or not to the end */
};

/* What `meterd replay` is asked for. */
struct replay_options {
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

/* Writes; the exit status. */
int replay_job_run(const struct replay_options *options);


/* ---- the ingest ------------------------------------------------------- */

#define REPLAY_INGEST_NODE_SIZE 320

struct replay_ingest_options {
    const char *command;        /* for messages */
    const char *name;           /* of the directory, and of the writer's node */
    uint64_t answer_timeout_ms; /* how long the database may keep one back */
    bool has_series;
    void (*on_ready)(void *owner); /* once */
    /* Nothing can be committed any more, and why. */
    void (*on_failed)(void *owner, const char *why);
};

struct replay_ingest {
    const struct replay_ingest_options *options;
    void *owner;
    struct config *config;
    char directory[PATH_MAX];
    char node[REPLAY_INGEST_NODE_SIZE];
    int lock; /* -1: not locked */
    struct lane *lane;
    struct partition *partition;
    struct series_engine *series; /* NULL without has_series */
    struct ingest *ingest;
    bool is_lane_ready;
    bool is_partition_ready;
    uint64_t db_epoch;
    int64_t batch; /* as it was at the start */
    int64_t batches_before;
};

/*
 * Makes the directory and locks it: waits for another one at work there.
 * options and config are borrowed. False: said on stderr. unlock is due in
 * both cases.
 */
MUST_CHECK bool replay_ingest_lock(struct replay_ingest *own,
                                   const struct replay_ingest_options *options,
                                   struct config *config, void *owner);
void replay_ingest_unlock(struct replay_ingest *own);

/*
 * Makes the parts; on_ready follows when lane and partitions are there.
 * False: the reason is logged. stop is due in both cases, and own has to
 * live on until the loop has closed all handles.
 */
MUST_CHECK bool replay_ingest_start(struct replay_ingest *own, uv_loop_t *loop);
void replay_ingest_stop(struct replay_ingest *own);


/* ---- dead letters ------------------------------------------------------ */

#define LETTER_SESSION_SIZE 16
/* 32 digits, '-', up to 19 digits, NUL. */
#define LETTER_IDENTITY_SIZE 53

static inline void
dead_letter_identity_format(const struct letter_identity *identity,
                            char out[LETTER_IDENTITY_SIZE])
{
    meter_hex(identity->session, LETTER_SESSION_SIZE, out);
    snprintf(out + 2 * LETTER_SESSION_SIZE,
             LETTER_IDENTITY_SIZE - 2 * LETTER_SESSION_SIZE, "-%lld",
             (long long)identity->seq);
}

/* What is to be replayed. */
struct dead_letter_options {
    struct config *config;
    const struct letter_identity *identity; /* NULL: all of the tenant */
    const char *tenant;                     /* NULL: of all tenants */
    bool is_dry; /* only tells what the rules say now */
};

/*
 * Tells letters that are rejected again and the counts on stdout. Returns the
 * exit status: 1 when some could not be replayed.
 */
int dead_letter_replay(const struct dead_letter_options *options);


/* ---- the tally -------------------------------------------------------- */

#define TALLY_TOLD_MAX 20

struct replay_tally {
    int64_t counts[METER_VERDICT_COUNT];
    int rejects; /* -1: no file */
    const char *rejects_path;
    int64_t rejects_size; /* as written */
    struct buf pending;   /* not written yet */
    int64_t told;
    struct progress *progress; /* a bar to be wiped before; may be NULL */
    bool has_failed;
};

/* path NULL: no rejects file. */
void replay_tally_init(struct replay_tally *tally, const char *path);
void replay_tally_fini(struct replay_tally *tally);

/*
 * Opens the rejects file, if there is one. from 0: anew, else where an
 * interrupted run left it: what lies behind is cut off. False: told on
 * stderr; also when it is `input`, the file that is read.
 */
MUST_CHECK bool
replay_tally_open(struct replay_tally *tally, int64_t from, int input);

/* reason: of conflicts and rejected ones. */
void replay_tally_add(struct replay_tally *tally, enum meter_verdict verdict,
                      int64_t line, const char *reason, struct meter_str text);
/* What is pending is written. False: it cannot be; told on stderr. */
MUST_CHECK bool replay_tally_flush(struct replay_tally *tally);

/* All events were accepted or known before. */
bool replay_tally_is_clean(const struct replay_tally *tally);
/* "replayed: 5 accepted, ..." on stdout; doing is the first word. */
void replay_tally_tell(const struct replay_tally *tally, const char *doing);


/* ---- the input -------------------------------------------------------- */

enum replay_next {
    REPLAY_RECORD,
    REPLAY_END,
    REPLAY_AGAIN, /* nothing is there yet */
    REPLAY_FAILED /* read said no: errno */
};

struct replay_entry {
    int64_t line;
    const char *error; /* refused here; NULL: goes through the gate */
    size_t text_at;    /* in texts */
    size_t text_size;
    size_t event_at; /* in events */
    size_t event_size;
};

struct replay_batch {
    struct replay_entry *entries;
    size_t count;
    size_t count_max;
    int64_t line_next;   /* after the last one */
    int64_t offset_next; /* likewise */

    size_t from; /* entries [from, to) are at the gate; all before are done */
    size_t to;
    bool is_single; /* one by one */

    struct buf texts;
    struct buf events;
    struct arena reasons;
};

struct replay_input {
    const struct replay_options *options;
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
MUST_CHECK bool replay_input_open(struct replay_input *input,
                                  const struct replay_options *options);
/* Also after a failed open. */
void replay_input_close(struct replay_input *input);

/* Goes on at a byte where a line begins. False: told on stderr. */
MUST_CHECK bool
replay_input_move(struct replay_input *input, int64_t offset, int64_t line);
/*
 * Fills the batch anew. RECORD: it is full. END: there is no more. AGAIN: for
 * now; a dry run waits instead while there is nothing. FAILED: told on
 * stderr. With END and AGAIN there may be entries all the same.
 */
MUST_CHECK enum replay_next replay_input_fill(struct replay_input *input);

/*
 * The next entries for the gate as a body, which is empty before and may
 * have failed; it may be a list of none. False: all entries are done.
 */
MUST_CHECK bool replay_batch_next(struct replay_batch *batch, struct buf *body);
/*
 * What the gate said of the body, DONE or BAD: the entries are counted, or
 * come again one by one.
 */
void replay_batch_answered(struct replay_batch *batch,
                           const struct ingest_answer *answer,
                           struct replay_tally *tally);

static inline struct meter_str
replay_tenant(const struct replay_options *options)
{
    return options->tenant == NULL
               ? METER_STR("")
               : (struct meter_str){options->tenant, strlen(options->tenant)};
}

/* How the gate takes a body of a batch. */
static inline struct ingest_input
replay_ingest_input(const struct replay_options *options)
{
    return (struct ingest_input){.tenant = replay_tenant(options),
                                 .is_backfill = true,
                                 .form = ENVELOPE_JSON};
}

#endif
