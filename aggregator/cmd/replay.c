/*
 * replay.c - `meterd replay`: events of a file, as if they came by HTTP.
 *
 *   command line -> options -> replay_job.c
 *                           -> dry run: batch -> ingest_check -> tally
 *
 * The dry run is here: it writes nothing and needs no loop. It judges each
 * batch against the registry as it is now. An id that stands in the file twice
 * is seen when both lines are in one batch; else both count as what the
 * registry says, since nothing is written in between. Exit status: enum
 * replay_exit.
 */

#include "cmd/replay.h"

#include "cmd/command.h"
#include "ingest/ingest_check.h"
#include "meter_event.h"

#include <stdio.h>


/* ---- the dry run ------------------------------------------------------ */

struct replay_dry {
    const struct replay_options *options;
    struct replay_input input;
    struct replay_tally tally;
    struct registry_store *registry;
    struct progress progress;
    bool failed;
};

static void
dry_answer_cb(void *asker, const struct ingest_answer *answer)
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
dry_batch_check(struct replay_dry *dry)
{
    const struct ingest_input input = replay_ingest_input(dry->options);
    struct buf body;

    buf_init(&body, METER_BODY_SIZE_MAX);
    while (!dry->failed && replay_batch_next(&dry->input.batch, &body)) {
        if (body.failed) {
            dry->failed = true;
            break;
        }
        ingest_check(dry->registry, dry->options->config, &input, &body,
                     dry_answer_cb, dry);
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
        dry_batch_check(dry);
        dry->failed = !replay_tally_flush(&dry->tally) || dry->failed;
        if (batch->count > 0) {
            progress_add(&dry->progress, batch->offset_next - before);
            before = batch->offset_next;
        }
    } while (next != REPLAY_END && !dry->failed);
    progress_end(&dry->progress);
}

static int
replay_dry_run(const struct replay_options *options)
{
    struct replay_dry dry = {.options = options};
    int status = REPLAY_EXIT_FAILED;

    replay_tally_init(&dry.tally, options->rejects);
    dry.tally.progress = &dry.progress;
    if (replay_input_open(&dry.input, options) &&
        replay_tally_open(&dry.tally, 0, dry.input.file)) {
        dry.registry = registry_store_open(options->config->database);
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


/* ---- the command ------------------------------------------------------ */

struct replay_line {
    struct command_line line;
    const char *format;
    struct command_list texts;
    struct replay_options options;
};

static bool
replay_has_suffix(const char *path, const char *suffix)
{
    size_t size = strlen(path);
    size_t suffix_size = strlen(suffix);

    return size > suffix_size && strcmp(path + size - suffix_size, suffix) == 0;
}

/* NULL, or what is wrong. */
static const char *
replay_format_choose(struct replay_line *wanted)
{
    static const char *const suffixes[] = {".csv", ".ndjson", ".jsonl",
                                           ".json"};
    const char *format = wanted->format;
    struct replay_options *options = &wanted->options;

    if (format != NULL) {
        options->is_csv = strcmp(format, "csv") == 0;
        return options->is_csv || strcmp(format, "ndjson") == 0
                   ? NULL
                   : "--format takes ndjson or csv";
    }
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (replay_has_suffix(options->path, suffixes[i])) {
            options->is_csv = i == 0;
            return NULL;
        }
    }
    return "say --format ndjson or --format csv";
}

static const char *
replay_check(void *data)
{
    struct replay_line *wanted = data;
    struct replay_options *options = &wanted->options;
    struct meter_str tenant = replay_tenant(options);
    const char *wrong;

    options->path = wanted->line.words[0];
    options->texts = wanted->texts.items;
    options->text_count = wanted->texts.count;
    wrong = replay_format_choose(wanted);
    if (wrong != NULL) {
        return wrong;
    }
    if (options->text_count > 0 && !options->is_csv) {
        return "--text belongs to CSV";
    }
    if (options->tenant != NULL &&
        (tenant.size == 0 || tenant.size > METER_TENANT_SIZE_MAX ||
         !meter_utf8_valid(tenant))) {
        return "--tenant takes a name of 1 to 255 bytes of UTF-8";
    }
    if (options->is_dry) {
        wanted->line.needs = CONFIG_NEEDS_DATABASE;
    }
    return NULL;
}

static int
replay_file(void *data)
{
    struct replay_line *wanted = data;
    struct replay_options *options = &wanted->options;

    options->config = wanted->line.config;
    return options->is_dry ? replay_dry_run(options) : replay_job_run(options);
}

static const struct command_verb replay_verbs[] = {
    {NULL, replay_file,
     CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_ADMIN_DATABASE |
         CONFIG_NEEDS_STATE_DIR,
     "a file", 1, 1},
    {NULL},
};

static const struct command_option replay_options[] = {
    {"format", 0, COMMAND_TEXT, offsetof(struct replay_line, format), "F",
     "ndjson or csv; else by the name of FILE: .csv, or\n"
     ".ndjson, .jsonl, .json"},
    {"tenant", 0, COMMAND_TEXT, offsetof(struct replay_line, options.tenant),
     "T", "of all events; else each names its own"},
    {"text", 0, COMMAND_LIST, offsetof(struct replay_line, texts), "COLUMN",
     "of CSV: an attribute that is always text, also\n"
     "where it looks like a number"},
    {"rejects", 0, COMMAND_TEXT, offsetof(struct replay_line, options.rejects),
     "FILE",
     "conflicts and rejected lines go there, with line\n"
     "number, verdict and reason; else the first 20 are\n"
     "shown"},
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct replay_line, options.is_dry),
     NULL,
     "only tells the verdicts; an id that stands in the\n"
     "file twice is seen within a batch (5,000)"},
    {"restart", 0, COMMAND_FLAG,
     offsetof(struct replay_line, options.is_restart), NULL,
     "from the first line, whatever was done before"},
    {NULL},
};

const struct command replay_command = {
    .name = "replay",
    .summary = "events of a file, each counted once",
    .synopsis =
        "usage: meterd replay FILE [--format ndjson|csv] [--tenant T]\n"
        "                     [--text COLUMN]... [--rejects FILE] [--dry-run]\n"
        "                     [--restart] -c FILE...\n",
    .about =
        "Events of a file, through the same gate as POST /v1/events: each "
        "counts\n"
        "once, however often it is replayed and whoever else sends it. NDJSON "
        "has\n"
        "an event on each line; CSV has a header line, then a record for each\n"
        "event. \"-\" is standard input. A running meterd is not disturbed, "
        "and\n"
        "none need run. After an interruption the same command goes on where "
        "it\n"
        "was.\n",
    .notes =
        "Exit status: 0 all events were accepted or known before, 1 some are "
        "in\n"
        "conflict or rejected, 2 it could not be run, or not to its end.\n"
        "Connects to database and adminDatabase, and keeps a writer and the\n"
        "places to go on from in the directory backfill of stateDir; "
        "--dry-run\n"
        "needs database only, and writes nothing there.\n",
    .verbs = replay_verbs,
    .options = replay_options,
    .size = sizeof(struct replay_line),
    .log = COMMAND_LOG_QUIET,
    .failed = REPLAY_EXIT_FAILED,
    .check = replay_check,
};
