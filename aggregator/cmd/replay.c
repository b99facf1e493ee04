/*
 * replay_cmd.c - see replay_cmd.h.
 *
 *   command line -> wish -> replay_job.c, or replay_dry.c
 */

#include "cmd/command.h"
#include "cmd/replay_job.h"
#include "meter_event.h"

struct replay_line {
    struct command_line line;
    const char *format;
    struct command_list texts;
    struct replay_wish wish;
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
    struct replay_wish *wish = &wanted->wish;

    if (format != NULL) {
        wish->is_csv = strcmp(format, "csv") == 0;
        return wish->is_csv || strcmp(format, "ndjson") == 0
                   ? NULL
                   : "--format takes ndjson or csv";
    }
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (replay_has_suffix(wish->path, suffixes[i])) {
            wish->is_csv = i == 0;
            return NULL;
        }
    }
    return "say --format ndjson or --format csv";
}

static const char *
replay_check(void *data)
{
    struct replay_line *wanted = data;
    struct replay_wish *wish = &wanted->wish;
    struct meter_str tenant = replay_tenant(wish);
    const char *wrong;

    wish->path = wanted->line.words[0];
    wish->texts = wanted->texts.items;
    wish->text_count = wanted->texts.count;
    wrong = replay_format_choose(wanted);
    if (wrong != NULL) {
        return wrong;
    }
    if (wish->text_count > 0 && !wish->is_csv) {
        return "--text belongs to CSV";
    }
    if (wish->tenant != NULL &&
        (tenant.size == 0 || tenant.size > METER_TENANT_SIZE_MAX ||
         !meter_utf8_valid(tenant))) {
        return "--tenant takes a name of 1 to 255 bytes of UTF-8";
    }
    if (wish->is_dry) {
        wanted->line.needs = CONFIG_NEEDS_DATABASE;
    }
    return NULL;
}

static int
replay_file(void *data)
{
    struct replay_line *wanted = data;
    struct replay_wish *wish = &wanted->wish;

    wish->config = wanted->line.config;
    return wish->is_dry ? replay_dry_run(wish) : replay_job_run(wish);
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
    {"tenant", 0, COMMAND_TEXT, offsetof(struct replay_line, wish.tenant), "T",
     "of all events; else each names its own"},
    {"text", 0, COMMAND_LIST, offsetof(struct replay_line, texts), "COLUMN",
     "of CSV: an attribute that is always text, also\n"
     "where it looks like a number"},
    {"rejects", 0, COMMAND_TEXT, offsetof(struct replay_line, wish.rejects),
     "FILE",
     "conflicts and rejected lines go there, with line\n"
     "number, verdict and reason; else the first 20 are\n"
     "shown"},
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct replay_line, wish.is_dry),
     NULL,
     "only tells the verdicts; an id that stands in the\n"
     "file twice is seen within a batch (5,000)"},
    {"restart", 0, COMMAND_FLAG, offsetof(struct replay_line, wish.is_restart),
     NULL, "from the first line, whatever was done before"},
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
