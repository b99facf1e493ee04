/*
 * replay_cmd.c - see replay_cmd.h.
 *
 *   command line -> wish -> replay_job.c, or replay_dry.c
 */

#include "cmd/replay_cmd.h"

#include "base/log.h"
#include "base/process.h"
#include "cmd/command_line.h"
#include "cmd/replay_job.h"
#include "meter_event.h"

#include <getopt.h>
#include <stdio.h>

#define COMMAND   "replay"
#define TEXTS_MAX 256

static const char usage_text[] =
    "usage: meterd replay FILE [--format ndjson|csv] [--tenant T]\n"
    "                     [--text COLUMN]... [--rejects FILE] [--dry-run]\n"
    "                     [--restart] -c FILE...\n"
    "\n"
    "Events of a file, through the same gate as POST /v1/events: each counts\n"
    "once, however often it is replayed and whoever else sends it. NDJSON has\n"
    "an event on each line; CSV has a header line, then a record for each\n"
    "event. \"-\" is standard input. A running meterd is not disturbed, and\n"
    "none need run. After an interruption the same command goes on where it\n"
    "was.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "      --format F     ndjson or csv; else by the name of FILE: .csv, or\n"
    "                     .ndjson, .jsonl, .json\n"
    "      --tenant T     of all events; else each names its own\n"
    "      --text COLUMN  of CSV: an attribute that is always text, also\n"
    "                     where it looks like a number\n"
    "      --rejects FILE conflicts and rejected lines go there, with line\n"
    "                     number, verdict and reason; else the first 20 are\n"
    "                     shown\n"
    "      --dry-run      only tells the verdicts; an id that stands in the\n"
    "                     file twice is seen within a batch (5,000)\n"
    "      --restart      from the first line, whatever was done before\n"
    "  -h, --help         this text\n"
    "\n"
    "Exit status: 0 all events were accepted or known before, 1 some are in\n"
    "conflict or rejected, 2 it could not be run, or not to its end.\n"
    "Connects to database and adminDatabase, and keeps a writer and the\n"
    "places to go on from in the directory backfill of stateDir; --dry-run\n"
    "needs database only, and writes nothing there.\n";

struct replay_arguments {
    const char *format;
    struct replay_wish wish;
    const char *texts[TEXTS_MAX];
    struct command_files files;
};

enum replay_parse { PARSE_OK, PARSE_HELP, PARSE_BAD };

static enum replay_parse
options_read(int argc, char **argv, struct replay_arguments *out)
{
    enum { FORMAT = 256, TENANT, TEXT, REJECTS, DRY, RESTART };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"format", required_argument, NULL, FORMAT},
        {"tenant", required_argument, NULL, TENANT},
        {"text", required_argument, NULL, TEXT},
        {"rejects", required_argument, NULL, REJECTS},
        {"dry-run", no_argument, NULL, DRY},
        {"restart", no_argument, NULL, RESTART},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    struct replay_wish *wish = &out->wish;
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&out->files, COMMAND, optarg)) {
                return PARSE_BAD;
            }
            break;
        case FORMAT: out->format = optarg; break;
        case TENANT: wish->tenant = optarg; break;
        case TEXT:
            if (wish->text_count == TEXTS_MAX) {
                command_usage_error(COMMAND, "too many --text", NULL);
                return PARSE_BAD;
            }
            out->texts[wish->text_count++] = optarg;
            break;
        case REJECTS: wish->rejects = optarg; break;
        case DRY: wish->is_dry = true; break;
        case RESTART: wish->is_restart = true; break;
        case 'h': return PARSE_HELP;
        default: fputs(usage_text, stderr); return PARSE_BAD;
        }
    }
    wish->texts = out->texts;
    if (optind < argc) {
        wish->path = argv[optind++];
    }
    if (optind < argc) {
        command_usage_error(COMMAND, "unexpected argument", argv[optind]);
        return PARSE_BAD;
    }
    return PARSE_OK;
}

static bool
has_suffix(const char *path, const char *suffix)
{
    size_t size = strlen(path);
    size_t suffix_size = strlen(suffix);

    return size > suffix_size && strcmp(path + size - suffix_size, suffix) == 0;
}

/* NULL, or what is wrong. */
static const char *
format_choose(struct replay_arguments *arguments)
{
    const char *format = arguments->format;
    struct replay_wish *wish = &arguments->wish;

    if (format != NULL) {
        wish->is_csv = strcmp(format, "csv") == 0;
        return wish->is_csv || strcmp(format, "ndjson") == 0
                   ? NULL
                   : "--format takes ndjson or csv";
    }
    wish->is_csv = has_suffix(wish->path, ".csv");
    return wish->is_csv || has_suffix(wish->path, ".ndjson") ||
                   has_suffix(wish->path, ".jsonl") ||
                   has_suffix(wish->path, ".json")
               ? NULL
               : "say --format ndjson or --format csv";
}

static const char *
wish_check(struct replay_arguments *arguments)
{
    const struct replay_wish *wish = &arguments->wish;
    struct meter_str tenant = replay_tenant(wish);
    const char *wrong;

    if (wish->path == NULL) {
        return "say which file";
    }
    wrong = format_choose(arguments);
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
    if (arguments->files.count == 0) {
        return COMMAND_NO_FILE;
    }
    return NULL;
}

static int
wish_run(struct replay_arguments *arguments)
{
    struct replay_wish *wish = &arguments->wish;
    unsigned needs = CONFIG_NEEDS_DATABASE;
    int status;

    if (!wish->is_dry) {
        needs |= CONFIG_NEEDS_ADMIN_DATABASE | CONFIG_NEEDS_STATE_DIR;
    }
    if (!command_config_load(&arguments->files, needs, &wish->config)) {
        return REPLAY_EXIT_FAILED;
    }
    log_for_person("meterd " COMMAND);
    log_level_set(LOG_WARN);
    status = wish->is_dry ? replay_dry_run(wish) : replay_job_run(wish);
    config_unref(wish->config);
    if (fflush(stdout) != 0) {
        fputs("meterd " COMMAND ": stdout cannot be written\n", stderr);
        return REPLAY_EXIT_FAILED;
    }
    return status;
}

int
replay_cmd_run(int argc, char **argv)
{
    struct replay_arguments arguments = {.format = NULL};
    const char *wrong;

    switch (options_read(argc, argv, &arguments)) {
    case PARSE_OK: break;
    case PARSE_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case PARSE_BAD: return PROCESS_USAGE;
    }
    wrong = wish_check(&arguments);
    if (wrong != NULL) {
        return command_usage_error(COMMAND, wrong, NULL);
    }
    return wish_run(&arguments);
}
