/*
 * rebuild_cmd.c - see rebuild_cmd.h.
 *
 *   options -> recount -> lines on stdout, a sum at the end
 */

#include "cmd/rebuild_cmd.h"

#include "base/process.h"
#include "cmd/recount_all.h"
#include "cmd/recount_text.h"
#include "maintain/rule_states.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#define COMMAND "rebuild"

/* All else is right now. */
#define CLOSED_LEFT 3

static const char usage_text[] =
    "usage: meterd rebuild counters [--counter NAME] [--checkpoint FILE]\n"
    "                               [OPTIONS] -c FILE...\n"
    "       meterd rebuild usage    [--checkpoint FILE] [OPTIONS] -c FILE...\n"
    "       meterd rebuild meters   [--metric NAME] [--from DATE]\n"
    "                               [--reopen PERIOD --reason TEXT]\n"
    "                               [OPTIONS] -c FILE...\n"
    "       meterd rebuild series   [--name NAME] [--from DATE] [--to DATE]\n"
    "                               [OPTIONS] -c FILE...\n"
    "       meterd rebuild index    [--from DATE] [OPTIONS] -c FILE...\n"
    "\n"
    "Recomputes a projection from the ledger and puts right the rows that\n"
    "differ, one tenant after the other. Events may arrive meanwhile: meterd\n"
    "waits for a moment where a tenant is written. May be stopped at any time\n"
    "and run again.\n"
    "\n"
    "Series are recomputed slice by slice of time, also for a version of a\n"
    "series that is new, and all levels above are computed again; flushes of\n"
    "meterd wait for a moment where a slice is written. The index is put\n"
    "right day by day and nobody waits. adminDatabase makes partitions that\n"
    "are missing.\n"
    "\n"
    "  -c, --config FILE      a file; later ones add or replace top-level "
    "keys\n"
    "      --tenant T         this tenant only\n"
    "      --counter NAME     this counter only\n"
    "      --metric NAME      this meter only\n"
    "      --name NAME        this series only\n"
    "      --from DATE        periods that start on this day or later; "
    "buckets;\n"
    "                         days of the index\n"
    "      --to DATE          buckets that begin before this day\n"
    "      --checkpoint FILE  start at the rows of the checkpoint, where\n"
    "                         retention has removed events\n"
    "      --reopen PERIOD    also this closed period of the --metric, which\n"
    "                         is noted for ever, with who and when\n"
    "      --reason TEXT      why it is reopened\n"
    "      --dry-run          only tells the differences\n"
    "      --limit N          tells at most so many differences (1000)\n"
    "      --json             differences as JSON, one object a line\n"
    "  -h, --help             this text\n"
    "\n"
    "The rules are those of FILE now, for all events there ever were: a\n"
    "counter that counts in another way since is recomputed in the new way.\n"
    "Figures of a closed period are left as they are, and told, unless it is\n"
    "named with --reopen. What FILE does not have (counters, meters, series\n"
    "and other versions of them, indexed attributes) is left as it is. Events\n"
    "that it would reject now count for nothing, and their number is told.\n"
    "\n"
    "Connects to database. Exit status: 0 all is right now, 1 not, 2 usage, 3\n"
    "all is right but for closed periods that differ and were left.\n";

struct rebuilding {
    struct recount_output out;
    struct rule_states *states;
};

/* A recount_finding_cb. */
static void
finding_take(void *asker, const struct recount_finding *finding)
{
    struct rebuilding *run = asker;

    recount_output_finding(&run->out, finding);
}

static void
left_take(void *asker, struct meter_str metric)
{
    struct rebuilding *run = asker;

    rule_states_leave(run->states, RULE_METER, metric);
}

/*
 * All rows of the projection, or of one rule, are what the rules given make of
 * the ledger. What lies before it, reconcile does not compare.
 */
static bool
is_complete(const struct recount_options *options,
            const struct recount_outcome *outcome)
{
    return !options->is_dry && options->tenant == NULL &&
           options->checkpoint == NULL && options->to_us == INT64_MAX &&
           (options->from_us == RECOUNT_FROM_EVER ||
            options->from_us <= outcome->whole_us);
}

/* For reconcile: what was counted by other rules is there no more. */
static bool
rules_rebuilt(const struct recount_options *options,
              const struct recount_wish *wish, struct rule_states *states)
{
    static const enum rule_kind kinds[PROJECTION_COUNT] = {
        [PROJECTION_COUNTERS] = RULE_COUNTER, [PROJECTION_USAGE] = RULE_USAGE,
        [PROJECTION_METERS] = RULE_METER,     [PROJECTION_SERIES] = RULE_SERIES,
        [PROJECTION_INDEX] = RULE_INDEX,
    };

    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (options->is_wanted[i] &&
            !rule_states_rebuilt(states, kinds[i], wish->name)) {
            return false;
        }
    }
    return true;
}

static void
tell_end(const struct recount_options *options,
         const struct recount_output *out,
         const struct recount_outcome *outcome)
{
    FILE *where = options->is_json ? stderr : stdout;

    if (out->told > out->limit) {
        fprintf(where, "... and %lld more\n",
                (long long)(out->told - out->limit));
    }
    fprintf(where, "%lld tenants, %lld events: %lld differences%s",
            (long long)outcome->tenants, (long long)outcome->events,
            (long long)outcome->differences,
            options->is_dry ? ", nothing was written\n" : "");
    if (!options->is_dry) {
        fprintf(where, ", %lld %s written\n", (long long)outcome->rebuilt,
                options->is_wanted[PROJECTION_SERIES]  ? "slices"
                : options->is_wanted[PROJECTION_INDEX] ? "days"
                                                       : "tenants");
    }
    if (outcome->left > 0) {
        fprintf(where,
                "%lld differences of closed periods %s left; to put a period "
                "right all the same: --metric NAME --reopen PERIOD --reason "
                "TEXT\n",
                (long long)outcome->left,
                options->is_dry ? "would be" : "were");
    }
}

static int
rebuild_run(const struct recount_options *options, const struct config *config)
{
    struct recount_outcome outcome;
    struct rebuilding run;
    struct checkpoint_reader *base;
    struct recount_wish wish;
    enum recount_end end;

    if (!recount_options_known(options, config, COMMAND)) {
        return PROCESS_USAGE;
    }
    if (!recount_options_base(options, config, &base)) {
        return PROCESS_FAILED;
    }
    run.states = rule_states_read(config, COMMAND);
    if (run.states == NULL) {
        checkpoint_reader_close(base);
        return PROCESS_FAILED;
    }
    recount_output_init(&run.out, options->is_json, options->limit);
    wish = recount_options_wish(options, config, base, COMMAND);
    wish.is_writing = !options->is_dry;
    wish.cb = finding_take;
    wish.left_cb = left_take;
    wish.asker = &run;
    end = recount_all_run(options, &wish, &outcome);
    if (end == RECOUNT_DONE) {
        tell_end(options, &run.out, &outcome);
    }
    if (end == RECOUNT_DONE && is_complete(options, &outcome) &&
        !rules_rebuilt(options, &wish, run.states)) {
        end = RECOUNT_TROUBLE;
    }
    recount_output_fini(&run.out);
    checkpoint_reader_close(base);
    rule_states_free(run.states);
    return end != RECOUNT_DONE ? PROCESS_FAILED
           : outcome.left > 0  ? CLOSED_LEFT
                               : PROCESS_OK;
}

/* Who runs the command, for what is noted of a reopening. */
static void
actor_read(char out[RECOUNT_ACTOR_SIZE])
{
    const struct passwd *user = getpwuid(getuid());

    if (user != NULL) {
        snprintf(out, RECOUNT_ACTOR_SIZE, "%s", user->pw_name);
    } else {
        snprintf(out, RECOUNT_ACTOR_SIZE, "uid %ld", (long)getuid());
    }
}

int
rebuild_cmd_run(int argc, char **argv)
{
    struct recount_options options;
    struct config *config;
    int status;

    switch (recount_options_read(argc, argv, COMMAND, usage_text, &options)) {
    case RECOUNT_READ_OK: break;
    case RECOUNT_READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case RECOUNT_READ_BAD: return PROCESS_USAGE;
    }
    actor_read(options.actor);
    if (options.word_count != 1) {
        return command_usage_error(COMMAND,
                                   "say counters, usage, meters, series or "
                                   "index",
                                   NULL);
    }
    if (!command_config_load(&options.files, CONFIG_NEEDS_DATABASE, &config)) {
        return PROCESS_FAILED;
    }
    log_for_person("meterd " COMMAND);
    log_level_set(LOG_WARN);
    status = rebuild_run(&options, config);
    config_unref(config);
    if (fflush(stdout) != 0) {
        fputs("meterd " COMMAND ": stdout cannot be written\n", stderr);
        return PROCESS_FAILED;
    }
    return status;
}
