/*
 * reconcile_cmd.c - see reconcile_cmd.h.
 *
 *   options -> recount -> lines on stdout, a sum on stderr
 *                      -> the result in the database
 */

#include "cmd/reconcile_cmd.h"

#include "base/process.h"
#include "cmd/recount_all.h"
#include "cmd/recount_text.h"
#include "maintain/rule_states.h"

#include <stdio.h>

#define COMMAND "reconcile"

/* Not all could be compared: not to be taken for a difference, nor for none. */
#define UNKNOWN 3

/* There are differences, and for all of them a change of rules is a reason. */
#define RULES_CHANGED 4

static const char usage_text[] =
    "usage: meterd reconcile [counters] [usage] [meters] [series] [index]\n"
    "                        [OPTIONS] -c FILE...\n"
    "\n"
    "Recomputes the projections from the ledger, all of them or those named,\n"
    "and prints each row that is not what it should be. Changes no figure and\n"
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
    "earlier events may differ for that reason alone, which is told with each\n"
    "difference that it may explain: its row has, or should have, events of\n"
    "before the change. meterd rebuild makes these rows again by FILE. What\n"
    "FILE does not have (counters, meters, series, indexed attributes) is not\n"
    "compared.\n"
    "\n"
    "A run that is not narrowed to a tenant, a name or days keeps its result\n"
    "in the database, for the metrics of meterd.\n"
    "\n"
    "Connects to database. Exit status: 0 all was compared and is right, 1\n"
    "there are differences, 2 usage, 3 there are none in what was compared,\n"
    "but not all could be: events are gone and no --checkpoint is given, or\n"
    "there was an error, 4 there are differences, and a change of rules may\n"
    "explain each; whether all could be compared is told then.\n";

/* What is compared: the projections, then ledger and registry. */
#define PART_LEDGER PROJECTION_COUNT
#define PART_COUNT  (PROJECTION_COUNT + 1)

struct reconciliation {
    struct recount_output out;
    struct rule_states *states;
    int64_t differences[PART_COUNT];
    int64_t explained[PART_COUNT]; /* of them, by a change of rules */
};

static const char *
part_name(int part)
{
    return part == PART_LEDGER ? "ledger" : projections[part]->name;
}

static int
part_of(enum rule_kind kind)
{
    static const int parts[RULE_KINDS] = {
        [RULE_COUNTER] = PROJECTION_COUNTERS, [RULE_USAGE] = PROJECTION_USAGE,
        [RULE_METER] = PROJECTION_METERS,     [RULE_SERIES] = PROJECTION_SERIES,
        [RULE_INDEX] = PROJECTION_INDEX,
    };

    return parts[kind];
}

/* A recount_finding_cb. */
static void
finding_take(void *asker, const struct recount_finding *finding)
{
    struct reconciliation *run = asker;
    struct recount_finding told = *finding;
    int part = 0;

    while (part < PART_LEDGER &&
           strcmp(finding->projection, part_name(part)) != 0) {
        part++;
    }
    run->differences[part]++;
    run->explained[part] += rule_states_explain(run->states, &told);
    recount_output_finding(&run->out, &told);
}

/*
 * A rule that changed while rows were read explains what differs in it. What
 * cannot be asked explains nothing.
 */
static void
explain_again(struct reconciliation *run)
{
    int64_t more[RULE_KINDS];

    if (rule_states_again(run->states, more)) {
        for (int i = 0; i < RULE_KINDS; i++) {
            run->explained[part_of((enum rule_kind)i)] += more[i];
        }
    }
}

/* What was found counts, though it may not have gone to the end. */
static int
status_of(int64_t differences, int64_t explained, bool is_all)
{
    return differences > explained ? PROCESS_FAILED
           : differences > 0       ? RULES_CHANGED
           : is_all                ? PROCESS_OK
                                   : UNKNOWN;
}

static bool
is_all_of(int part, enum recount_end end, const struct recount_outcome *outcome)
{
    return end == RECOUNT_DONE &&
           (part == PART_LEDGER || !outcome->is_left_out[part]);
}


/* ---- the result, for the metrics of meterd ---------------------------- */

/* One tenant or name, or some days, are not what the metrics tell of. */
static bool
is_narrowed(const struct recount_options *options)
{
    return options->tenant != NULL || options->counter != NULL ||
           options->metric != NULL || options->series != NULL ||
           options->from_us != RECOUNT_FROM_EVER || options->to_us != INT64_MAX;
}

/* Ledger and registry are looked at with the rows of whole tenants. */
static bool
is_told(int part, const struct recount_options *options)
{
    return part == PART_LEDGER ? options->is_wanted[PROJECTION_COUNTERS] ||
                                     options->is_wanted[PROJECTION_USAGE] ||
                                     options->is_wanted[PROJECTION_METERS]
                               : options->is_wanted[part];
}

static void
put_parts(struct pg_params *params, const struct recount_options *options,
          const struct reconciliation *run, enum recount_end end,
          const struct recount_outcome *outcome)
{
    size_t count = 0;

    for (int i = 0; i < PART_COUNT; i++) {
        count += is_told(i, options);
    }
    pg_param_array_begin(params, PG_TEXT, count);
    for (int i = 0; i < PART_COUNT; i++) {
        if (is_told(i, options)) {
            pg_put_text(&params->bytes,
                        (struct meter_str){part_name(i), strlen(part_name(i))});
        }
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT4, count);
    for (int i = 0; i < PART_COUNT; i++) {
        if (is_told(i, options)) {
            pg_put_int4(&params->bytes,
                        status_of(run->differences[i], run->explained[i],
                                  is_all_of(i, end, outcome)));
        }
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_INT8, count);
    for (int i = 0; i < PART_COUNT; i++) {
        if (is_told(i, options)) {
            pg_put_int8(&params->bytes, run->differences[i]);
        }
    }
    pg_param_array_end(params);
}

/* The status of the command stays what it is: the comparison was made. */
static void
result_store(const struct recount_options *options, const struct config *config,
             const struct reconciliation *run, enum recount_end end,
             const struct recount_outcome *outcome)
{
    struct ledger_store *store = ledger_store_open(config->database, COMMAND);
    struct pg_params params;

    pg_params_init(&params);
    put_parts(&params, options, run, end, outcome);
    if (store == NULL || !ledger_store_rows(store, STATEMENT_RECONCILE_STORE,
                                            &params, NULL, NULL)) {
        fputs("meterd " COMMAND ": the result is not in the metrics of "
              "meterd\n",
              stderr);
    }
    pg_params_fini(&params);
    ledger_store_close(store);
}


/* ---- the command ------------------------------------------------------ */

static void
tell_end(const struct reconciliation *run,
         const struct recount_outcome *outcome, int64_t explained, bool is_all)
{
    if (run->out.told > run->out.limit) {
        fprintf(stderr, "meterd " COMMAND ": %lld more are not printed\n",
                (long long)(run->out.told - run->out.limit));
    }
    fprintf(stderr,
            "meterd " COMMAND ": %lld tenants, %lld events: %lld "
            "differences\n",
            (long long)outcome->tenants, (long long)outcome->events,
            (long long)outcome->differences);
    if (explained > 0) {
        fprintf(stderr,
                "meterd " COMMAND ": a change of rules may explain %lld of "
                "them%s; meterd rebuild makes these rows again\n",
                (long long)explained,
                is_all ? "" : ", but not all could be compared");
    }
}

static int
reconcile_run(const struct recount_options *options,
              const struct config *config)
{
    struct recount_outcome outcome;
    struct reconciliation run = {.differences = {0}};
    int64_t explained = 0;
    struct checkpoint_reader *base;
    struct recount_wish wish;
    enum recount_end end;
    bool is_all = true;

    if (!recount_options_known(options, config, COMMAND)) {
        return PROCESS_USAGE;
    }
    if (!recount_options_base(options, config, &base)) {
        return UNKNOWN;
    }
    run.states = rule_states_read(config, COMMAND);
    if (run.states == NULL) {
        checkpoint_reader_close(base);
        return UNKNOWN;
    }
    recount_output_init(&run.out, options->is_json, options->limit);
    wish = recount_options_wish(options, config, base, COMMAND);
    wish.is_reconciled = true;
    wish.cb = finding_take;
    wish.asker = &run;
    end = recount_all_run(options, &wish, &outcome);
    explain_again(&run);
    for (int i = 0; i < PART_COUNT; i++) {
        explained += run.explained[i];
        is_all = is_all && is_all_of(i, end, &outcome);
    }
    if (end == RECOUNT_DONE) {
        tell_end(&run, &outcome, explained, is_all);
    }
    recount_output_fini(&run.out);
    checkpoint_reader_close(base);
    rule_states_free(run.states);
    if (!is_narrowed(options)) {
        result_store(options, config, &run, end, &outcome);
    }
    return status_of(outcome.differences, explained, is_all);
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
