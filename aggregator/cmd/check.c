/*
 * check.c - `meterd check`: is this configuration valid?
 *
 * Loads the files exactly as the daemon does, but starts nothing and needs
 * neither a database nor the options that only a running daemon needs. Exit
 * status: 0 valid, 1 not, 2 usage.
 */

#include "base/process.h"
#include "cmd/command.h"
#include "config/options.h"

#include <stdio.h>

#define DUMP_SIZE_MAX (64u << 20)

struct check_line {
    struct command_line line;
    bool is_printing;
    bool is_listing; /* the options */
    bool is_markdown;
};

/* Options as comments, then the rules, so that the text is itself valid. */
static bool
check_print(const struct config *config)
{
    size_t count;
    const struct option_row *rows = options_table(&count);
    struct buf text;
    bool ok;

    buf_init(&text, DUMP_SIZE_MAX);
    for (size_t i = 0; i < count; i++) {
        buf_printf(&text, "# %s: ", rows[i].name);
        options_format(&rows[i], config, &text);
        buf_put_byte(&text, '\n');
    }
    catalog_dump(config->catalog, &text);
    ok = !text.failed && fwrite(text.data, 1, text.size, stdout) == text.size;
    buf_fini(&text);
    return ok;
}

static void
check_note(void *asker, const char *text)
{
    fprintf(asker, "note: %s\n", text);
}

static const char *
check_plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static int
check_files(const struct check_line *wanted)
{
    const struct config *config = wanted->line.config;
    const struct catalog *catalog = config->catalog;
    /* With --print, standard output holds nothing but the rules. */
    FILE *out = wanted->is_printing ? stderr : stdout;
    bool ok = !wanted->is_printing || check_print(config);

    config_notes(config, check_note, out);
    fprintf(out,
            "configuration is valid: %zu event type%s, %zu counter%s, "
            "%zu meter%s, %zu series, usage %s\n",
            catalog->event_type_count, check_plural(catalog->event_type_count),
            catalog->counter_count, check_plural(catalog->counter_count),
            catalog->meter_count, check_plural(catalog->meter_count),
            catalog->series_count, catalog->usage ? "on" : "off");
    return ok ? PROCESS_OK : PROCESS_FAILED;
}

static int
check_run(void *data)
{
    const struct check_line *wanted = data;

    if (wanted->is_listing) {
        options_print(wanted->is_markdown, stdout);
        return PROCESS_OK;
    }
    return check_files(wanted);
}

static const char *
check_line_check(void *data)
{
    struct check_line *wanted = data;

    if (wanted->is_listing) {
        wanted->line.needs = COMMAND_NO_CONFIG;
    } else if (wanted->is_markdown) {
        return "--markdown goes with --print-options";
    }
    return NULL;
}

static const struct command_verb check_verbs[] = {
    {NULL, check_run},
    {NULL},
};

static const struct command_option check_options[] = {
    {"print", 0, COMMAND_FLAG, offsetof(struct check_line, is_printing), NULL,
     "show the options and the compiled rules"},
    {"print-options", 0, COMMAND_FLAG, offsetof(struct check_line, is_listing),
     NULL, "list every option with its default"},
    {"markdown", 0, COMMAND_FLAG, offsetof(struct check_line, is_markdown),
     NULL, "the list as a page of documentation"},
    {NULL},
};

const struct command check_command = {
    .name = "check",
    .summary = "is this configuration valid?",
    .synopsis = "usage: meterd check -c FILE [-c FILE]... [--print]\n"
                "       meterd check --print-options [--markdown]\n",
    .about = "",
    .verbs = check_verbs,
    .options = check_options,
    .size = sizeof(struct check_line),
    .check = check_line_check,
};
