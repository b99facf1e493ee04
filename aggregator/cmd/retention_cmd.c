/*
 * retention_cmd.c - see retention_cmd.h.
 *
 *   options -> clocks agree? -> retention_run, table by table -> lines
 */

#include "cmd/retention_cmd.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "cmd/command_line.h"
#include "maintain/retention_run.h"

#include <getopt.h>
#include <stdio.h>

#define COMMAND      "retention"
#define WAIT_SECONDS 60
#define WAIT_MAX     86400

static const char usage_text[] =
    "usage: meterd retention [OPTIONS] -c FILE...\n"
    "\n"
    "Drops what the section retention does not keep any longer: whole days of\n"
    "the ledger, of its index, of the audit of duplicates, and of each level\n"
    "of the series. Identities, counters, usage and meters are never touched:\n"
    "a repeat of an event that is gone is still a duplicate. A running meterd\n"
    "does this daily by itself.\n"
    "\n"
    "A figure that was made shorter is not in force before it is confirmed by\n"
    "a run with --force; until then all of what was kept before is kept.\n"
    "\n"
    "Nothing goes that others still need: events wait until the series have\n"
    "them, buckets until the coarser ones are computed.\n"
    "\n"
    "  -c, --config FILE   a file; later ones add or replace top-level keys\n"
    "      --dry-run       only tells what would go\n"
    "      --force         also when a clock seems wrong, when much more than\n"
    "                      the last days would go at once, or when less is to\n"
    "                      be kept than before\n"
    "      --wait SECONDS  for others to be ready (60)\n"
    "      --log           log lines as the daemon's, for programs\n"
    "  -h, --help          this text\n"
    "\n"
    "Connects to adminDatabase. Exit status: 0 nothing is left to drop, 1\n"
    "something had to be left or waits to be confirmed, 2 usage.\n";

struct retention_arguments {
    struct command_files files;
    const char *wait_text;
    bool is_dry;
    bool is_forced;
    bool is_log;
};

enum retention_read { READ_OK, READ_HELP, READ_BAD };

static enum retention_read
options_read(int argc, char **argv, struct retention_arguments *out)
{
    enum { DRY = 256, FORCE, WAIT, LOG };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"dry-run", no_argument, NULL, DRY},
        {"force", no_argument, NULL, FORCE},
        {"wait", required_argument, NULL, WAIT},
        {"log", no_argument, NULL, LOG},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&out->files, COMMAND, optarg)) {
                return READ_BAD;
            }
            break;
        case DRY: out->is_dry = true; break;
        case FORCE: out->is_forced = true; break;
        case WAIT: out->wait_text = optarg; break;
        case LOG: out->is_log = true; break;
        case 'h': return READ_HELP;
        default: fputs(usage_text, stderr); return READ_BAD;
        }
    }
    if (optind < argc) {
        command_usage_error(COMMAND, "unexpected argument", argv[optind]);
        return READ_BAD;
    }
    if (out->files.count == 0) {
        command_usage_error(COMMAND, COMMAND_NO_FILE, NULL);
        return READ_BAD;
    }
    return READ_OK;
}

static bool
wait_read(const char *text, uint64_t *seconds)
{
    *seconds = WAIT_SECONDS;
    if (text == NULL) {
        return true;
    }
    if (*text == '\0') {
        return false;
    }
    *seconds = 0;
    for (; *text >= '0' && *text <= '9' && *seconds <= WAIT_MAX; text++) {
        *seconds = *seconds * 10 + (uint64_t)(*text - '0');
    }
    return *text == '\0' && *seconds <= WAIT_MAX;
}

/* A line on stderr that says what to look at. */
static bool
clocks_agree(const struct retention_run *run)
{
    char database[METER_TIME_TEXT_SIZE + 1];
    char other[METER_TIME_TEXT_SIZE + 1];
    int64_t wall_us = clock_wall_us();

    meter_time_format(run->clock.now_us, database);
    switch (retention_plan_doubt(&run->clock, wall_us)) {
    case RETENTION_SURE: return true;
    case RETENTION_CLOCKS_DIFFER:
        meter_time_format(wall_us, other);
        log_error(COMMAND, "the clocks of database and machine differ",
                  log_str("database", database), log_str("machine", other));
        break;
    case RETENTION_CLOCK_AHEAD:
        meter_time_format(run->clock.heartbeat_us, other);
        log_error(COMMAND,
                  "no meterd was at work for more than a day, or the clock "
                  "of the database has jumped",
                  log_str("database", database), log_str("newest", other));
        break;
    }
    return false;
}

static int
run_with(const struct retention_arguments *arguments, struct retention_run *run)
{
    switch (retention_store_take(run->store)) {
    case RETENTION_DONE: break;
    case RETENTION_BUSY:
        if (!run->is_log) {
            puts("another retention is at work");
        }
        return PROCESS_OK;
    case RETENTION_FAILED: return PROCESS_FAILED;
    }
    if (!retention_store_clock(run->store, &run->clock)) {
        return PROCESS_FAILED;
    }
    if (!clocks_agree(run) && !arguments->is_forced) {
        log_error(COMMAND, "nothing was dropped; if the time of the database "
                           "is right: --force");
        return PROCESS_FAILED;
    }
    return retention_run(run) ? PROCESS_OK : PROCESS_FAILED;
}

static int
retention_command(const struct retention_arguments *arguments,
                  uint64_t wait_seconds)
{
    struct config *config;
    struct retention_run run = {
        .is_dry = arguments->is_dry,
        .is_forced = arguments->is_forced,
        .is_log = arguments->is_log,
        .wait_ms = wait_seconds * 1000,
    };
    int status = PROCESS_FAILED;

    if (!command_config_load(&arguments->files, CONFIG_NEEDS_ADMIN_DATABASE,
                             &config)) {
        return PROCESS_FAILED;
    }
    if (!arguments->is_log) {
        log_for_person("meterd " COMMAND);
        log_level_set(LOG_WARN);
    }
    partition_retention_days(config, run.days);
    run.store = retention_store_open(config->admin_database);
    if (run.store != NULL) {
        status = run_with(arguments, &run);
    }
    retention_store_close(run.store);
    config_unref(config);
    if (fflush(stdout) != 0) {
        fputs("meterd " COMMAND ": stdout cannot be written\n", stderr);
        return PROCESS_FAILED;
    }
    return status;
}

int
retention_cmd_run(int argc, char **argv)
{
    struct retention_arguments arguments = {.is_dry = false};
    uint64_t wait_seconds;

    switch (options_read(argc, argv, &arguments)) {
    case READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case READ_BAD: return PROCESS_USAGE;
    default: break;
    }
    if (!wait_read(arguments.wait_text, &wait_seconds)) {
        return command_usage_error(COMMAND, "--wait takes 0 to 86400 seconds",
                                   NULL);
    }
    return retention_command(&arguments, wait_seconds);
}
