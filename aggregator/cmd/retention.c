/*
 * retention.c - `meterd retention`: drops what is kept no longer.
 *
 *   options -> clocks agree? -> retention_run, table by table -> lines
 *
 * The daemon starts this command daily with --log. One at a time is at work:
 * a second one says so and ends well. Exit status: 0 nothing is left to drop,
 * 1 something had to be left or waits to be confirmed, 2 usage.
 */

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "cmd/command.h"
#include "maintain/retention_run.h"

#include <stdio.h>

#define COMMAND      "retention"
#define WAIT_SECONDS 60
#define WAIT_MAX     86400

struct retention_line {
    struct command_line line;
    int64_t wait_seconds;
    bool is_dry;
    bool is_forced;
    bool is_log;
};

/* A line on stderr that says what to look at. */
static bool
retention_clocks_agree(const struct retention_run *run)
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
retention_run_held(struct retention_run *run)
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
    if (!retention_clocks_agree(run) && !run->is_forced) {
        log_error(COMMAND, "nothing was dropped; if the time of the database "
                           "is right: --force");
        return PROCESS_FAILED;
    }
    return retention_run(run) ? PROCESS_OK : PROCESS_FAILED;
}

static int
retention_drop(void *data)
{
    const struct retention_line *wanted = data;
    const struct config *config = wanted->line.config;
    struct retention_run run = {
        .is_dry = wanted->is_dry,
        .is_forced = wanted->is_forced,
        .is_log = wanted->is_log,
        .wait_ms = (uint64_t)wanted->wait_seconds * 1000,
    };
    int status = PROCESS_FAILED;

    partition_retention_days(config, run.days);
    run.store = retention_store_open(config->admin_database);
    if (run.store != NULL) {
        status = retention_run_held(&run);
    }
    retention_store_close(run.store);
    return status;
}

static const char *
retention_check(void *data)
{
    struct retention_line *wanted = data;

    if (wanted->is_log) {
        wanted->line.log = COMMAND_LOG_DAEMON;
    }
    return NULL;
}

static const struct command_verb retention_verbs[] = {
    {NULL, retention_drop, CONFIG_NEEDS_ADMIN_DATABASE},
    {NULL},
};

static const struct command_option retention_options[] = {
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct retention_line, is_dry), NULL,
     "only tells what would go"},
    {"force", 0, COMMAND_FLAG, offsetof(struct retention_line, is_forced), NULL,
     "also when a clock seems wrong, when much more than\n"
     "the last days would go at once, or when less is to\n"
     "be kept than before"},
    {"wait", 0, COMMAND_NUMBER, offsetof(struct retention_line, wait_seconds),
     "SECONDS", "for others to be ready", .max = WAIT_MAX,
     .fallback = WAIT_SECONDS},
    {"log", 0, COMMAND_FLAG, offsetof(struct retention_line, is_log), NULL,
     "log lines as the daemon's, for programs"},
    {NULL},
};

const struct command retention_command = {
    .name = COMMAND,
    .summary = "drop what is kept no longer",
    .synopsis = "usage: meterd retention [OPTIONS] -c FILE...\n",
    .about =
        "Drops what the section retention does not keep any longer: whole days "
        "of\n"
        "the ledger, of its index, of the audit of duplicates, and of each "
        "level\n"
        "of the series. Identities, counters, usage and meters are never "
        "touched:\n"
        "a repeat of an event that is gone is still a duplicate. A running "
        "meterd\n"
        "does this daily by itself.\n"
        "\n"
        "A figure that was made shorter is not in force before it is confirmed "
        "by\n"
        "a run with --force; until then all of what was kept before is kept.\n"
        "\n"
        "Nothing goes that others still need: events wait until the series "
        "have\n"
        "them, buckets until the coarser ones are computed.\n",
    .notes =
        "Connects to adminDatabase. Exit status: 0 nothing is left to drop, 1\n"
        "something had to be left or waits to be confirmed, 2 usage.\n",
    .verbs = retention_verbs,
    .options = retention_options,
    .size = sizeof(struct retention_line),
    .log = COMMAND_LOG_QUIET,
    .check = retention_check,
};
