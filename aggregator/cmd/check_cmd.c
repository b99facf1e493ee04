/*
 * check_cmd.c - `meterd check`: is this configuration valid?
 *
 *   meterd check -c FILE [-c FILE]... [--print]
 *   meterd check --print-options [--markdown]
 *
 * Loads the files exactly as the daemon does, but starts nothing and needs
 * neither a database nor the options that only a running daemon needs.
 */

#include "cmd/check_cmd.h"

#include <getopt.h>

#include "cmd/command_line.h"
#include "config/config.h"
#include "config/options.h"

#define DUMP_SIZE_MAX (64u << 20)

enum { EXIT_VALID = 0, EXIT_INVALID = 1, EXIT_USAGE = 2 };

struct check_arguments {
    struct command_files files;
    bool print;
    bool print_options;
    bool markdown;
    bool help;
};

static const char usage_text[] =
    "usage: meterd check -c FILE [-c FILE]... [--print]\n"
    "       meterd check --print-options [--markdown]\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "      --print        show the options and the compiled rules\n"
    "      --print-options  list every option with its default\n"
    "      --markdown     the list as a page of documentation\n"
    "  -h, --help         this text\n";

static bool
check_arguments(int argc, char **argv, struct check_arguments *arguments);
static int check_files(const struct check_arguments *arguments);


int
check_cmd_run(int argc, char **argv)
{
    struct check_arguments arguments = {.print = false};

    if (!check_arguments(argc, argv, &arguments)) {
        fputs(usage_text, stderr);
        return EXIT_USAGE;
    }
    if (arguments.help) {
        fputs(usage_text, stdout);
        return EXIT_VALID;
    }
    if (arguments.print_options) {
        options_print(arguments.markdown, stdout);
        return fflush(stdout) == 0 ? EXIT_VALID : EXIT_INVALID;
    }
    return check_files(&arguments);
}


static bool
check_arguments(int argc, char **argv, struct check_arguments *arguments)
{
    enum { PRINT = 256, PRINT_OPTIONS, MARKDOWN };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"print", no_argument, NULL, PRINT},
        {"print-options", no_argument, NULL, PRINT_OPTIONS},
        {"markdown", no_argument, NULL, MARKDOWN},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    optind = 0; /* the main program may have read options before us */
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&arguments->files, "check", optarg)) {
                return false;
            }
            break;
        case PRINT: arguments->print = true; break;
        case PRINT_OPTIONS: arguments->print_options = true; break;
        case MARKDOWN: arguments->markdown = true; break;
        case 'h': arguments->help = true; break;
        default: return false;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "meterd check: unexpected argument \"%s\"\n",
                argv[optind]);
        return false;
    }
    if (arguments->markdown && !arguments->print_options) {
        fputs("meterd check: --markdown goes with --print-options\n", stderr);
        return false;
    }
    if (arguments->files.count == 0 && !arguments->help &&
        !arguments->print_options) {
        fputs("meterd check: " COMMAND_NO_FILE "\n", stderr);
        return false;
    }
    return true;
}

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
plural(size_t count)
{
    return count == 1 ? "" : "s";
}

static int
check_files(const struct check_arguments *arguments)
{
    struct config *config;
    const struct catalog *catalog;
    bool ok = true;

    if (!command_config_load(&arguments->files, 0, &config)) {
        return EXIT_INVALID;
    }
    catalog = config->catalog;
    if (arguments->print) {
        ok = check_print(config);
    }
    /* With --print, standard output holds nothing but the rules. */
    config_notes(config, check_note, arguments->print ? stderr : stdout);
    fprintf(arguments->print ? stderr : stdout,
            "configuration is valid: %zu event type%s, %zu counter%s, "
            "%zu meter%s, %zu series, usage %s\n",
            catalog->event_type_count, plural(catalog->event_type_count),
            catalog->counter_count, plural(catalog->counter_count),
            catalog->meter_count, plural(catalog->meter_count),
            catalog->series_count, catalog->usage ? "on" : "off");
    config_unref(config);
    return ok && fflush(stdout) == 0 ? EXIT_VALID : EXIT_INVALID;
}
