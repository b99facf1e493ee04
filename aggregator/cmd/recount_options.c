/*
 * recount_options.c - see recount_options.h.
 */

#include "cmd/recount_options.h"

#include "base/process.h"
#include "maintain/checkpoint_import.h"
#include "maintain/checkpoint_store.h"
#include "project/period.h"

#include <getopt.h>
#include <stdio.h>

#define LIMIT_MAX INT64_C(1000000000)

static struct meter_str
str_of(const char *text)
{
    return (struct meter_str){text, text == NULL ? 0 : strlen(text)};
}

static bool
limit_parse(const char *text, int64_t *limit)
{
    *limit = 0;
    for (; *text >= '0' && *text <= '9' && *limit <= LIMIT_MAX; text++) {
        *limit = *limit * 10 + (*text - '0');
    }
    return *text == '\0' && *limit <= LIMIT_MAX;
}

/* NULL: fine; else what is wrong with the value. */
static const char *
option_take(int found, const char *value, struct recount_options *out)
{
    switch (found) {
    case 't': out->tenant = value; break;
    case 'n': out->counter = value; break;
    case 'm': out->metric = value; break;
    case 's': out->series = value; break;
    case 'p': out->checkpoint = value; break;
    case 'o': out->reopen = value; break;
    case 'r': out->reason = value; break;
    case 'd': out->is_dry = true; break;
    case 'j': out->is_json = true; break;
    case 'f':
        if (!period_parse(BILLING_DAY, str_of(value), &out->from_us)) {
            return "--from takes a date like 2026-09-01";
        }
        break;
    case 'u':
        if (!period_parse(BILLING_DAY, str_of(value), &out->to_us)) {
            return "--to takes a date like 2026-09-01";
        }
        break;
    case 'l':
        if (value[0] == '\0' || !limit_parse(value, &out->limit)) {
            return "--limit takes a number";
        }
        break;
    }
    return NULL;
}

static bool
word_take(const char *word, struct recount_options *out)
{
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (strcmp(word, projections[i]->name) == 0) {
            out->is_wanted[i] = true;
            out->word_count++;
            return true;
        }
    }
    return false;
}

static bool
wants_only(const struct recount_options *options, enum projection_id id)
{
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (options->is_wanted[i] != (i == (int)id)) {
            return false;
        }
    }
    return true;
}

/* Nothing was named: all that the options leave. */
static void
words_default(struct recount_options *out)
{
    bool is_named =
        out->counter != NULL || out->metric != NULL || out->series != NULL;
    bool is_all = !is_named && out->checkpoint == NULL;

    out->is_wanted[PROJECTION_COUNTERS] =
        out->counter != NULL || (!is_named && out->to_us == INT64_MAX);
    out->is_wanted[PROJECTION_USAGE] = !is_named && out->to_us == INT64_MAX;
    out->is_wanted[PROJECTION_METERS] =
        out->metric != NULL || (is_all && out->to_us == INT64_MAX);
    out->is_wanted[PROJECTION_SERIES] = out->series != NULL || is_all;
    out->is_wanted[PROJECTION_INDEX] = is_all && out->to_us == INT64_MAX;
}

/* A name belongs to one of them. */
static const char *
names_check(const struct recount_options *options)
{
    if ((options->counter != NULL) + (options->metric != NULL) +
            (options->series != NULL) >
        1) {
        return "--counter, --metric and --name do not go together";
    }
    if (options->counter != NULL && !wants_only(options, PROJECTION_COUNTERS)) {
        return "--counter goes with counters alone";
    }
    if (options->metric != NULL && !wants_only(options, PROJECTION_METERS)) {
        return "--metric goes with meters alone";
    }
    if (options->series != NULL && !wants_only(options, PROJECTION_SERIES)) {
        return "--name goes with series alone";
    }
    return NULL;
}

static const char *
reopen_check(const struct recount_options *options)
{
    if (options->reopen == NULL) {
        return options->reason == NULL ? NULL : "--reason goes with --reopen";
    }
    if (options->metric == NULL) {
        return "--reopen needs the --metric whose period it is";
    }
    return options->reason == NULL || options->reason[0] == '\0' ||
                   strlen(options->reason) > RECOUNT_REASON_MAX ||
                   !meter_utf8_valid(str_of(options->reason))
               ? "--reopen needs a --reason, a text of at most 1000 bytes"
               : NULL;
}

/* What was named without a word; NULL: it goes together. */
static const char *
options_check(struct recount_options *out)
{
    const bool *is_wanted = out->is_wanted;
    const char *wrong;

    if (out->word_count == 0) {
        words_default(out);
    }
    wrong = names_check(out);
    if (wrong == NULL) {
        wrong = reopen_check(out);
    }
    if (wrong != NULL) {
        return wrong;
    }
    if (out->from_us != RECOUNT_FROM_EVER && !is_wanted[PROJECTION_METERS] &&
        !is_wanted[PROJECTION_SERIES] && !is_wanted[PROJECTION_INDEX]) {
        return "--from goes with meters, series and the index";
    }
    if (out->to_us != INT64_MAX && !wants_only(out, PROJECTION_SERIES)) {
        return "--to goes with series alone";
    }
    if (out->to_us <= out->from_us) {
        return "--to is not after --from";
    }
    if (out->checkpoint != NULL &&
        (is_wanted[PROJECTION_METERS] || is_wanted[PROJECTION_SERIES] ||
         is_wanted[PROJECTION_INDEX])) {
        return "--checkpoint goes with counters and usage: nothing else is in "
               "a checkpoint";
    }
    return out->files.count == 0 ? COMMAND_NO_FILE : NULL;
}

enum recount_read
recount_options_read(int argc, char **argv, const char *command,
                     const char *usage_text, struct recount_options *out)
{
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"tenant", required_argument, NULL, 't'},
        {"counter", required_argument, NULL, 'n'},
        {"metric", required_argument, NULL, 'm'},
        {"name", required_argument, NULL, 's'},
        {"from", required_argument, NULL, 'f'},
        {"to", required_argument, NULL, 'u'},
        {"checkpoint", required_argument, NULL, 'p'},
        {"reopen", required_argument, NULL, 'o'},
        {"reason", required_argument, NULL, 'r'},
        {"limit", required_argument, NULL, 'l'},
        {"dry-run", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    const char *wrong = NULL;
    int found;

    *out = (struct recount_options){.from_us = RECOUNT_FROM_EVER,
                                    .to_us = INT64_MAX,
                                    .limit = RECOUNT_LIMIT_DEFAULT};
    optind = 0;
    while (wrong == NULL &&
           (found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        if (found == 'h') {
            return RECOUNT_READ_HELP;
        }
        if (found == '?') {
            fputs(usage_text, stderr);
            return RECOUNT_READ_BAD;
        }
        if (found != 'c') {
            wrong = option_take(found, optarg, out);
        } else if (!command_files_add(&out->files, command, optarg)) {
            return RECOUNT_READ_BAD;
        }
    }
    for (; wrong == NULL && optind < argc; optind++) {
        if (!word_take(argv[optind], out)) {
            command_usage_error(command, "there is no projection",
                                argv[optind]);
            return RECOUNT_READ_BAD;
        }
    }
    wrong = wrong == NULL ? options_check(out) : wrong;
    if (wrong != NULL) {
        command_usage_error(command, wrong, NULL);
        return RECOUNT_READ_BAD;
    }
    return RECOUNT_READ_OK;
}

/* The period of --reopen; the rules have its metric. */
static bool
reopen_period(const struct recount_options *options,
              const struct catalog *catalog, int64_t *out)
{
    return period_parse(catalog_meter(catalog, str_of(options->metric))->period,
                        str_of(options->reopen), out);
}

bool
recount_options_known(const struct recount_options *options,
                      const struct config *config, const char *command)
{
    const struct catalog *catalog = config->catalog;
    int64_t period_us;

    if (options->counter != NULL &&
        catalog_counter(catalog, str_of(options->counter)) == NULL) {
        command_usage_error(command, "the rules have no counter",
                            options->counter);
        return false;
    }
    if (options->metric != NULL &&
        catalog_meter(catalog, str_of(options->metric)) == NULL) {
        command_usage_error(command, "the rules have no meter",
                            options->metric);
        return false;
    }
    if (options->series != NULL &&
        catalog_series(catalog, str_of(options->series)) == NULL) {
        command_usage_error(command, "the rules have no series",
                            options->series);
        return false;
    }
    if (options->reopen != NULL &&
        !reopen_period(options, catalog, &period_us)) {
        command_usage_error(command, "that is no period of the metric",
                            options->reopen);
        return false;
    }
    return true;
}

bool
recount_options_base(const struct recount_options *options,
                     const struct config *config,
                     struct checkpoint_reader **out)
{
    struct checkpoint_store *store;
    const char *why;
    bool is_final;

    *out = NULL;
    if (options->checkpoint == NULL) {
        return true;
    }
    *out = checkpoint_reader_open(options->checkpoint);
    if (*out == NULL) {
        return false;
    }
    store = checkpoint_store_open(config->database);
    if (store != NULL) {
        why = checkpoint_misfit(checkpoint_reader_header(*out),
                                checkpoint_store_header(store), &is_final);
        checkpoint_store_close(store);
        if (why == NULL) {
            return true;
        }
        log_error("checkpoint", why);
    }
    checkpoint_reader_close(*out);
    *out = NULL;
    return false;
}

static bool
has_states(const struct catalog *catalog)
{
    for (size_t i = 0; i < catalog->series_count; i++) {
        if (catalog->series[i].kind == SERIES_STATE) {
            return true;
        }
    }
    return false;
}

struct recount_wish
recount_options_wish(const struct recount_options *options,
                     const struct config *config,
                     struct checkpoint_reader *base, const char *command)
{
    struct recount_wish wish = {
        .command = command,
        .config = config,
        .tenant = options->tenant,
        .name = options->counter != NULL  ? options->counter
                : options->metric != NULL ? options->metric
                                          : options->series,
        .from_us = options->from_us,
        .base = base,
    };

    wish.is_reopened =
        options->reopen != NULL &&
        reopen_period(options, config->catalog, &wish.reopen.period_us);
    wish.reopen.actor = str_of(options->actor);
    wish.reopen.reason = str_of(options->reason);
    memcpy(wish.is_wanted, options->is_wanted, sizeof(wish.is_wanted));
    wish.is_wanted[PROJECTION_INDEX] = false;
    wish.is_wanted[PROJECTION_SERIES] =
        options->is_wanted[PROJECTION_SERIES] && has_states(config->catalog);
    return wish;
}
