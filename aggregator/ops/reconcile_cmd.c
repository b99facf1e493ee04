/*
 * reconcile_cmd.c - see reconcile_cmd.h.
 *
 *   options -> recount -> lines on stdout, a sum on stderr
 */

#include "ops/reconcile_cmd.h"

#include "ops/process.h"
#include "ops/recount_all.h"
#include "ops/recount_text.h"

#include <stdio.h>

#define COMMAND "reconcile"

/* Not all could be compared: not to be taken for a difference, nor for none. */
#define UNKNOWN 3

static const char usage_text[] =
    "usage: meterd reconcile [counters] [usage] [meters] [series] [index]\n"
    "                        [OPTIONS] -c FILE...\n"
    "\n"
    "Recomputes the projections from the ledger, all of them or those named,\n"
    "and prints each row that is not what it should be. Changes nothing and\n"
    "pauses no one; exact also while events arrive. Also looks whether the\n"
    "ledger is whole, whether each event has its registry row, and whether\n"
    "the audit log of a counter ends with its value. Of series, what is not\n"
    "flushed yet is not expected, and a bucket that waits to be computed from\n"
    "the level below is not compared.\n"
    "\n"
    "  -c, --config FILE      a file; later ones add or replace top-level "
    "keys\n"
    "      --tenant T         this tenant only\n"
    "      --counter NAME     this counter only\n"
    "      --metric NAME      this meter only\n"
    "      --name NAME        this series only\n"
    "      --from DATE        meters: periods that start then or later; "
    "buckets\n"
    "                         of series; days of the index\n"
    "      --to DATE          series: buckets that begin before\n"
    "      --checkpoint FILE  counters and usage start at its rows, where\n"
    "                         retention has removed events\n"
    "      --limit N          prints at most so many differences (1000)\n"
    "      --json             one object a line\n"
    "  -h, --help             this text\n"
    "\n"
    "The rules are those of FILE now: after a change of a rule, rows of\n"
    "earlier events may differ for that reason alone. Counters, meters,\n"
    "series and indexed attributes that FILE does not have are not compared.\n"
    "\n"
    "Connects to database. Exit status: 0 all was compared and is right, 1\n"
    "there are differences, 2 usage, 3 there are none in what was compared,\n"
    "but not all could be: events are gone and no --checkpoint is given, or\n"
    "there was an error.\n";

/* What was found counts, though it may not have gone to the end. */
static int
status_of(enum recount_end end, const struct recount_outcome *outcome)
{
    bool is_all = end == RECOUNT_DONE;

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        is_all = is_all && !outcome->is_left_out[i];
    }
    return outcome->differences > 0 ? PROCESS_FAILED
           : is_all                 ? PROCESS_OK
                                    : UNKNOWN;
}

static int
reconcile_run(const struct recount_options *options,
              const struct config *config)
{
    struct recount_outcome outcome;
    struct recount_output out;
    struct checkpoint_reader *base;
    struct recount_wish wish;
    enum recount_end end;

    if (!recount_options_known(options, config, COMMAND)) {
        return PROCESS_USAGE;
    }
    if (!recount_options_base(options, config, &base)) {
        return UNKNOWN;
    }
    recount_output_init(&out, options->is_json, options->limit);
    wish = recount_options_wish(options, config, base, COMMAND);
    wish.is_reconciled = true;
    wish.cb = recount_output_finding;
    wish.asker = &out;
    end = recount_all_run(options, &wish, &outcome);
    if (end == RECOUNT_DONE) {
        if (out.told > out.limit) {
            fprintf(stderr, "meterd " COMMAND ": %lld more are not printed\n",
                    (long long)(out.told - out.limit));
        }
        fprintf(stderr,
                "meterd " COMMAND ": %lld tenants, %lld events: %lld "
                "differences\n",
                (long long)outcome.tenants, (long long)outcome.events,
                (long long)outcome.differences);
    }
    recount_output_fini(&out);
    checkpoint_reader_close(base);
    return status_of(end, &outcome);
}

int
reconcile_cmd_run(int argc, char **argv)
{
    struct recount_options options;
    struct config *config;
    int status;

    switch (recount_options_read(argc, argv, COMMAND, usage_text, &options)) {
    case RECOUNT_READ_OK: break;
    case RECOUNT_READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case RECOUNT_READ_BAD: return PROCESS_USAGE;
    }
    if (options.is_dry) {
        return command_usage_error(COMMAND, "--dry-run belongs to rebuild",
                                   NULL);
    }
    if (options.reopen != NULL) {
        return command_usage_error(COMMAND, "--reopen belongs to rebuild",
                                   NULL);
    }
    if (!command_config_load(&options.files, CONFIG_NEEDS_DATABASE, &config)) {
        return UNKNOWN;
    }
    log_for_person("meterd " COMMAND);
    log_level_set(LOG_WARN);
    status = reconcile_run(&options, config);
    config_unref(config);
    if (fflush(stdout) != 0) {
        fputs("meterd " COMMAND ": stdout cannot be written\n", stderr);
        return UNKNOWN;
    }
    return status;
}
