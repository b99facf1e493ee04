/*
 * dead_letter_cmd.c - see dead_letter_cmd.h.
 *
 *   list, show  letter_store -> dead_letter_text -> stdout
 *   replay      dead_letter_replay.c
 */

#include "base/process.h"
#include "cmd/command.h"
#include "cmd/dead_letter_replay.h"
#include "cmd/dead_letter_text.h"

#include <stdio.h>

#define COMMAND       "dead-letter"
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     100000
#define REASONS_MAX   10
#define OUTPUT_MAX    ((size_t)1 << 30)

struct letter_line {
    struct command_line line;
    const char *tenant;
    int64_t since_us;
    int64_t limit;
    bool is_json;
    bool is_all;
    bool is_dry;
    struct letter_identity identity; /* of the word */
};


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
letter_list_row(void *asker, const struct letter_row *row)
{
    struct letter_output *out = asker;

    if (out->is_json) {
        dead_letter_json(&out->json, row, false);
    } else {
        dead_letter_put_line(&out->text, row);
    }
}

static void
letter_list_reason(void *asker, struct meter_str reason, int64_t letters)
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

/* Letters, or the reasons of all of them. */
static struct letter_filter
letter_filter(const struct letter_line *wanted, int64_t limit)
{
    return (struct letter_filter){
        .tenant = wanted->tenant, .since_us = wanted->since_us, .limit = limit};
}

static bool
letter_list_json(struct letter_store *store, const struct letter_line *wanted,
                 struct letter_output *out)
{
    const struct letter_filter letters = letter_filter(wanted, wanted->limit);
    const struct letter_filter reasons = letter_filter(wanted, REASONS_MAX);
    int64_t total;

    json_object_begin(&out->json);
    json_key(&out->json, "letters");
    json_array_begin(&out->json);
    if (!letter_store_list(store, &letters, letter_list_row, out)) {
        return false;
    }
    json_array_end(&out->json);
    json_key(&out->json, "reasons");
    json_array_begin(&out->json);
    if (!letter_store_reasons(store, &reasons, letter_list_reason, out,
                              &total)) {
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
letter_list_text(struct letter_store *store, const struct letter_line *wanted,
                 struct letter_output *out)
{
    const struct letter_filter letters = letter_filter(wanted, wanted->limit);
    const struct letter_filter reasons = letter_filter(wanted, REASONS_MAX);
    struct letter_output summary = {.count = 0};
    int64_t total;
    bool is_good;

    dead_letter_put_head(&out->text);
    buf_init(&summary.text, OUTPUT_MAX);
    is_good = letter_store_list(store, &letters, letter_list_row, out) &&
              letter_store_reasons(store, &reasons, letter_list_reason,
                                   &summary, &total);
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
letter_output_end(struct letter_output *out, bool is_good)
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
letter_list(void *data)
{
    const struct letter_line *wanted = data;
    struct letter_store *store =
        letter_store_open(wanted->line.config->database);
    struct letter_output out = {.is_json = wanted->is_json};
    bool is_good = false;

    buf_init(&out.text, OUTPUT_MAX);
    json_writer_init(&out.json, &out.text);
    if (store != NULL) {
        is_good = wanted->is_json ? letter_list_json(store, wanted, &out)
                                  : letter_list_text(store, wanted, &out);
    }
    letter_store_close(store);
    return letter_output_end(&out, is_good);
}


/* ---- show and replay -------------------------------------------------- */

static void
letter_show_row(void *asker, const struct letter_row *row)
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
letter_show(void *data)
{
    const struct letter_line *wanted = data;
    struct letter_store *store =
        letter_store_open(wanted->line.config->database);
    struct letter_output out = {.is_json = wanted->is_json};
    bool is_good;

    buf_init(&out.text, OUTPUT_MAX);
    is_good = store != NULL && letter_store_read(store, &wanted->identity, 1,
                                                 letter_show_row, &out);
    letter_store_close(store);
    if (is_good && out.count == 0) {
        fputs("meterd " COMMAND ": there is no dead letter with this "
              "identity\n",
              stderr);
        is_good = false;
    }
    return letter_output_end(&out, is_good);
}

static int
letter_replay(void *data)
{
    const struct letter_line *wanted = data;
    const struct dead_letter_wish wish = {
        .config = wanted->line.config,
        .identity = wanted->line.word_count == 0 ? NULL : &wanted->identity,
        .tenant = wanted->tenant,
        .is_dry = wanted->is_dry,
    };

    return dead_letter_replay(&wish);
}


/* ---- the command ------------------------------------------------------ */

enum { LIST = 1 << 0, SHOW = 1 << 1, REPLAY = 1 << 2 };

static const struct command_verb letter_verbs[] = {
    {"list", letter_list, CONFIG_NEEDS_DATABASE},
    {"show", letter_show, CONFIG_NEEDS_DATABASE, "the identity of a letter", 1,
     1},
    {"replay", letter_replay,
     CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_ADMIN_DATABASE |
         CONFIG_NEEDS_STATE_DIR,
     "an identity, --tenant or --all", 0, 1},
    {NULL},
};

static const char *
letter_check(void *data)
{
    struct letter_line *wanted = data;
    size_t count = wanted->line.word_count;

    /* Exactly one word says which letters. */
    if (wanted->line.verb->run == letter_replay &&
        count + (wanted->tenant != NULL) + wanted->is_all != 1) {
        return "replay needs an identity, --tenant or --all";
    }
    if (count > 0 &&
        !dead_letter_identity_parse(wanted->line.words[0], &wanted->identity)) {
        return "an identity is 32 hexadecimal digits, a '-' and a number";
    }
    if (wanted->is_dry) {
        wanted->line.needs = CONFIG_NEEDS_DATABASE;
    }
    return NULL;
}

static const struct command_option letter_options[] = {
    {"tenant", 0, COMMAND_TEXT, offsetof(struct letter_line, tenant), "T",
     "whose letters; \"-\": those that name no tenant", LIST | REPLAY},
    {"since", 0, COMMAND_TIME, offsetof(struct letter_line, since_us), "TIME",
     "rejected then or later, as 2026-09-01T12:00:00Z", LIST},
    {"limit", 0, COMMAND_NUMBER, offsetof(struct letter_line, limit), "N",
     "at most so many", LIST, 1, LIMIT_MAX, LIMIT_DEFAULT},
    {"all", 0, COMMAND_FLAG, offsetof(struct letter_line, is_all), NULL,
     "letters of all tenants", REPLAY},
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct letter_line, is_dry), NULL,
     "only tells what the rules say now", REPLAY},
    {"json", 0, COMMAND_FLAG, offsetof(struct letter_line, is_json), NULL,
     "for programs", LIST | SHOW},
    {NULL},
};

const struct command dead_letter_command = {
    .name = COMMAND,
    .summary = "list, show and replay rejected records",
    .synopsis =
        "usage: meterd dead-letter list [--tenant T] [--since TIME] [--limit "
        "N]\n"
        "                               [--json] -c FILE...\n"
        "       meterd dead-letter show SESSION-SEQ [--json] -c FILE...\n"
        "       meterd dead-letter replay SESSION-SEQ|--tenant T|--all "
        "[--dry-run]\n"
        "                               -c FILE...\n",
    .about =
        "Dead letters are records of the edge that meterd had to reject: they\n"
        "were answered and are not billed. list shows them, newest first, and\n"
        "how many there are for which reason; show one of them in full. "
        "replay\n"
        "judges them again by the rules that FILE has now and books those "
        "that\n"
        "are acceptable, each exactly once and under its own identity. The "
        "others\n"
        "stay, and the exit status is 1. A running meterd is not disturbed.\n",
    .notes = "Connects to database; replay to adminDatabase too, and keeps a "
             "writer of\n"
             "its own in the directory replay of stateDir.\n",
    .verbs = letter_verbs,
    .options = letter_options,
    .size = sizeof(struct letter_line),
    .log = COMMAND_LOG_QUIET,
    .check = letter_check,
};
