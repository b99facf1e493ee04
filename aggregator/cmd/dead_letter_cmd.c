/*
 * dead_letter_cmd.c - see dead_letter_cmd.h.
 *
 *   list, show  letter_store -> dead_letter_text -> stdout
 *   replay      dead_letter_replay.c
 */

#include "cmd/dead_letter_cmd.h"

#include "base/log.h"
#include "base/process.h"
#include "cmd/command_line.h"
#include "cmd/dead_letter_replay.h"
#include "cmd/dead_letter_text.h"
#include "meter_time.h"

#include <getopt.h>
#include <stdio.h>

#define COMMAND       "dead-letter"
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     100000
#define REASONS_MAX   10
#define OUTPUT_MAX    ((size_t)1 << 30)

static const char usage_text[] =
    "usage: meterd dead-letter list [--tenant T] [--since TIME] [--limit N]\n"
    "                               [--json] -c FILE...\n"
    "       meterd dead-letter show SESSION-SEQ [--json] -c FILE...\n"
    "       meterd dead-letter replay SESSION-SEQ|--tenant T|--all "
    "[--dry-run]\n"
    "                               -c FILE...\n"
    "\n"
    "Dead letters are records of the edge that meterd had to reject: they\n"
    "were answered and are not billed. list shows them, newest first, and\n"
    "how many there are for which reason; show one of them in full. replay\n"
    "judges them again by the rules that FILE has now and books those that\n"
    "are acceptable, each exactly once and under its own identity. The others\n"
    "stay, and the exit status is 1. A running meterd is not disturbed.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "      --tenant T     whose letters; \"-\": those that name no tenant\n"
    "      --since TIME   rejected then or later, as 2026-09-01T12:00:00Z\n"
    "      --limit N      at most so many (100)\n"
    "      --all          letters of all tenants\n"
    "      --dry-run      only tells what the rules say now\n"
    "      --json         for programs\n"
    "  -h, --help         this text\n"
    "\n"
    "Connects to database; replay to adminDatabase too, and keeps a writer of\n"
    "its own in the directory replay of stateDir.\n";

struct letter_arguments {
    const char *verb;
    const char *id;
    const char *tenant;
    const char *since;
    const char *limit;
    bool is_json;
    bool is_all;
    bool is_dry;
    struct command_files files;

    /* The same, understood. */
    struct letter_identity identity;
    struct letter_filter filter;
};

static int
letters_list(const struct letter_arguments *arguments, struct config *config);
static int
letter_show(const struct letter_arguments *arguments, struct config *config);
static int
letters_replay(const struct letter_arguments *arguments, struct config *config);

/* What each verb takes, needs and does. */
static const struct letter_verb {
    const char *name;
    bool takes_id;
    bool takes_tenant;
    bool takes_window; /* since, limit */
    bool takes_json;
    bool takes_replay; /* all, dry-run */
    int (*run)(const struct letter_arguments *arguments, struct config *config);
} verbs[] = {
    {"list", false, true, true, true, false, letters_list},
    {"show", true, false, false, true, false, letter_show},
    {"replay", true, true, false, false, true, letters_replay},
};


/* ---- the command line ------------------------------------------------- */

enum letter_read { LETTER_READ_OK, LETTER_READ_HELP, LETTER_READ_BAD };

static enum letter_read
letter_options_read(int argc, char **argv, struct letter_arguments *out)
{
    enum { TENANT = 256, SINCE, LIMIT, JSON, ALL, DRY };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"tenant", required_argument, NULL, TENANT},
        {"since", required_argument, NULL, SINCE},
        {"limit", required_argument, NULL, LIMIT},
        {"json", no_argument, NULL, JSON},
        {"all", no_argument, NULL, ALL},
        {"dry-run", no_argument, NULL, DRY},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&out->files, COMMAND, optarg)) {
                return LETTER_READ_BAD;
            }
            break;
        case TENANT: out->tenant = optarg; break;
        case SINCE: out->since = optarg; break;
        case LIMIT: out->limit = optarg; break;
        case JSON: out->is_json = true; break;
        case ALL: out->is_all = true; break;
        case DRY: out->is_dry = true; break;
        case 'h': return LETTER_READ_HELP;
        default: fputs(usage_text, stderr); return LETTER_READ_BAD;
        }
    }
    if (optind < argc) {
        out->verb = argv[optind++];
    }
    if (optind < argc) {
        out->id = argv[optind++];
    }
    if (optind < argc) {
        command_usage_error(COMMAND, "unexpected argument", argv[optind]);
        return LETTER_READ_BAD;
    }
    return LETTER_READ_OK;
}

static const struct letter_verb *
letter_verb_find(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}

/* NULL: fine; else what does not belong to the verb. */
static const char *
letter_options_check(const struct letter_verb *verb,
                     const struct letter_arguments *arguments)
{
    if (!verb->takes_id && arguments->id != NULL) {
        return "list takes no identity";
    }
    if (!verb->takes_tenant && arguments->tenant != NULL) {
        return "--tenant does not belong here";
    }
    if (!verb->takes_window &&
        (arguments->since != NULL || arguments->limit != NULL)) {
        return "--since and --limit belong to list";
    }
    if (!verb->takes_json && arguments->is_json) {
        return "--json belongs to list and show";
    }
    if (!verb->takes_replay && (arguments->is_all || arguments->is_dry)) {
        return "--all and --dry-run belong to replay";
    }
    if (arguments->files.count == 0) {
        return COMMAND_NO_FILE;
    }
    return NULL;
}

/* Exactly one word says which letters. */
static const char *
letter_choice_check(const struct letter_verb *verb,
                    const struct letter_arguments *arguments)
{
    int choices = (arguments->id != NULL) + (arguments->tenant != NULL) +
                  arguments->is_all;

    if (verb->takes_replay && choices != 1) {
        return "replay needs an identity, --tenant or --all";
    }
    if (verb->takes_id && !verb->takes_replay && arguments->id == NULL) {
        return "show needs the identity of a letter";
    }
    return NULL;
}

static bool
limit_parse(const char *text, int64_t *limit)
{
    *limit = 0;
    for (; *text >= '0' && *text <= '9' && *limit <= LIMIT_MAX; text++) {
        *limit = *limit * 10 + (*text - '0');
    }
    return *text == '\0' && *limit >= 1 && *limit <= LIMIT_MAX;
}

/* Values of options, understood. */
static const char *
letter_values_read(struct letter_arguments *arguments)
{
    arguments->filter.tenant = arguments->tenant;
    arguments->filter.limit = LIMIT_DEFAULT;
    if (arguments->id != NULL &&
        !dead_letter_identity_parse(arguments->id, &arguments->identity)) {
        return "an identity is 32 hexadecimal digits, a '-' and a number";
    }
    if (arguments->since != NULL &&
        !meter_time_parse(
            (struct meter_str){arguments->since, strlen(arguments->since)},
            &arguments->filter.since_us)) {
        return "--since takes a time like 2026-09-01T12:00:00Z";
    }
    if (arguments->limit != NULL &&
        !limit_parse(arguments->limit, &arguments->filter.limit)) {
        return "--limit takes a number from 1 to 100000";
    }
    return NULL;
}

static unsigned
letter_needs(const struct letter_verb *verb,
             const struct letter_arguments *arguments)
{
    return verb->takes_replay && !arguments->is_dry
               ? CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_ADMIN_DATABASE |
                     CONFIG_NEEDS_STATE_DIR
               : CONFIG_NEEDS_DATABASE;
}

static int
letter_run(const struct letter_verb *verb,
           const struct letter_arguments *arguments)
{
    struct config *config;
    int status;

    if (!command_config_load(&arguments->files, letter_needs(verb, arguments),
                             &config)) {
        return PROCESS_FAILED;
    }
    log_for_person("meterd " COMMAND);
    log_level_set(LOG_WARN);
    status = verb->run(arguments, config);
    config_unref(config);
    if (fflush(stdout) != 0) {
        fputs("meterd " COMMAND ": stdout cannot be written\n", stderr);
        return PROCESS_FAILED;
    }
    return status;
}

int
dead_letter_cmd_run(int argc, char **argv)
{
    struct letter_arguments arguments = {.verb = NULL};
    const struct letter_verb *verb;
    const char *wrong;

    switch (letter_options_read(argc, argv, &arguments)) {
    case LETTER_READ_OK: break;
    case LETTER_READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case LETTER_READ_BAD: return PROCESS_USAGE;
    }
    if (arguments.verb == NULL) {
        return command_usage_error(COMMAND, "say list, show or replay", NULL);
    }
    verb = letter_verb_find(arguments.verb);
    if (verb == NULL) {
        return command_usage_error(COMMAND, "there is no command",
                                   arguments.verb);
    }
    wrong = letter_options_check(verb, &arguments);
    if (wrong == NULL) {
        wrong = letter_choice_check(verb, &arguments);
    }
    if (wrong == NULL) {
        wrong = letter_values_read(&arguments);
    }
    if (wrong != NULL) {
        return command_usage_error(COMMAND, wrong, NULL);
    }
    return letter_run(verb, &arguments);
}


/* ---- list ------------------------------------------------------------- */

/* What is read goes into a buffer: a list that cannot be had shows none. */
struct letter_output {
    struct buf text;
    struct json_writer json;
    bool is_json;
    size_t count; /* of letters or reasons */
    int64_t told; /* letters whose reason was told */
};

static void
list_row(void *asker, const struct letter_row *row)
{
    struct letter_output *out = asker;

    if (out->is_json) {
        dead_letter_json(&out->json, row, false);
    } else {
        dead_letter_put_line(&out->text, row);
    }
}

static void
list_reason(void *asker, struct meter_str reason, int64_t letters)
{
    struct letter_output *out = asker;

    out->told += letters;
    if (out->is_json) {
        json_object_begin(&out->json);
        json_key(&out->json, "reason");
        json_string(&out->json, reason);
        json_key(&out->json, "letters");
        json_int(&out->json, letters);
        json_object_end(&out->json);
        return;
    }
    buf_printf(&out->text, "%s%lld ", out->count++ == 0 ? ": " : "; ",
               (long long)letters);
    buf_put_printable(&out->text, reason);
}

static struct letter_filter
reasons_of(const struct letter_filter *filter)
{
    return (struct letter_filter){.tenant = filter->tenant,
                                  .since_us = filter->since_us,
                                  .limit = REASONS_MAX};
}

static bool
list_fill_json(struct letter_store *store, const struct letter_filter *filter,
               struct letter_output *out)
{
    const struct letter_filter reasons = reasons_of(filter);
    int64_t total;

    json_object_begin(&out->json);
    json_key(&out->json, "letters");
    json_array_begin(&out->json);
    if (!letter_store_list(store, filter, list_row, out)) {
        return false;
    }
    json_array_end(&out->json);
    json_key(&out->json, "reasons");
    json_array_begin(&out->json);
    if (!letter_store_reasons(store, &reasons, list_reason, out, &total)) {
        return false;
    }
    json_array_end(&out->json);
    json_key(&out->json, "total");
    json_int(&out->json, total);
    json_object_end(&out->json);
    buf_put_byte(&out->text, '\n');
    return true;
}

/* The last line says how many there are in all, then why. */
static bool
list_fill(struct letter_store *store, const struct letter_filter *filter,
          struct letter_output *out)
{
    const struct letter_filter reasons = reasons_of(filter);
    struct letter_output summary = {.count = 0};
    int64_t total;
    bool is_good;

    dead_letter_put_head(&out->text);
    buf_init(&summary.text, OUTPUT_MAX);
    is_good =
        letter_store_list(store, filter, list_row, out) &&
        letter_store_reasons(store, &reasons, list_reason, &summary, &total);
    if (is_good) {
        buf_printf(&out->text, "%lld in all", (long long)total);
        buf_put_str(&out->text, buf_str(&summary.text));
        if (summary.told < total) {
            buf_printf(&out->text, "; %lld others",
                       (long long)(total - summary.told));
        }
        buf_put_byte(&out->text, '\n');
    }
    out->text.failed = out->text.failed || summary.text.failed;
    buf_fini(&summary.text);
    return is_good;
}

/* Prints what was filled in; the status of the command. */
static int
output_end(struct letter_output *out, bool is_good)
{
    if (is_good && out->text.failed) {
        fputs("meterd " COMMAND ": out of memory\n", stderr);
        is_good = false;
    }
    if (is_good) {
        fwrite(out->text.data, 1, out->text.size, stdout);
    }
    buf_fini(&out->text);
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}

static int
letters_list(const struct letter_arguments *arguments, struct config *config)
{
    struct letter_store *store = letter_store_open(config->database);
    struct letter_output out = {.is_json = arguments->is_json};
    bool is_good = false;

    buf_init(&out.text, OUTPUT_MAX);
    json_writer_init(&out.json, &out.text);
    if (store != NULL) {
        is_good = arguments->is_json
                      ? list_fill_json(store, &arguments->filter, &out)
                      : list_fill(store, &arguments->filter, &out);
    }
    letter_store_close(store);
    return output_end(&out, is_good);
}


/* ---- show and replay -------------------------------------------------- */

static void
show_row(void *asker, const struct letter_row *row)
{
    struct letter_output *out = asker;

    out->count++;
    if (out->is_json) {
        json_writer_init(&out->json, &out->text);
        dead_letter_json(&out->json, row, true);
        buf_put_byte(&out->text, '\n');
    } else {
        dead_letter_put_fields(&out->text, row);
    }
}

static int
letter_show(const struct letter_arguments *arguments, struct config *config)
{
    struct letter_store *store = letter_store_open(config->database);
    struct letter_output out = {.is_json = arguments->is_json};
    bool is_good;

    buf_init(&out.text, OUTPUT_MAX);
    is_good = store != NULL &&
              letter_store_read(store, &arguments->identity, 1, show_row, &out);
    letter_store_close(store);
    if (is_good && out.count == 0) {
        fputs("meterd " COMMAND ": there is no dead letter with this "
              "identity\n",
              stderr);
        is_good = false;
    }
    return output_end(&out, is_good);
}

static int
letters_replay(const struct letter_arguments *arguments, struct config *config)
{
    const struct dead_letter_wish wish = {
        .config = config,
        .identity = arguments->id == NULL ? NULL : &arguments->identity,
        .tenant = arguments->tenant,
        .is_dry = arguments->is_dry,
    };

    return dead_letter_replay(&wish);
}
