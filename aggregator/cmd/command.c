/*
 * command.c - runs a command: its command line, help and configuration.
 *
 * main.c calls command_run with the row of the command. All that a command
 * accepts stands in its tables, so that errors and help read the same
 * everywhere: a sentence on stderr, the synopsis, and exit status 2. Nothing
 * is opened or changed before the whole command line is known to be right.
 */

#include "cmd/command.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "meter_time.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#define OPTIONS_MAX   32 /* as many as `given` has bits */
#define NAME_SIZE     32
#define OPTION_SIZE   64 /* its names in the help */
#define SENTENCE_SIZE 256
#define LONG_BASE     256 /* what getopt_long says of row i: this and i */

static const struct command_option config_row = {
    .name = "config",
    .letter = 'c',
    .kind = COMMAND_TEXT,
    .value = "FILE",
    .help = "a file; later ones add or replace top-level keys",
};

static const struct command_option help_row = {
    .name = "help", .letter = 'h', .kind = COMMAND_FLAG, .help = "this text"};

static size_t
command_option_count(const struct command *command)
{
    size_t count = 0;

    while (command->options != NULL && command->options[count].name != NULL) {
        count++;
    }
    CHECK(count <= OPTIONS_MAX);
    return count;
}


/* ---- help ------------------------------------------------------------- */

/* "  -o, --output DIR", without the blanks before the help. */
static int
option_format(const struct command_option *option, char out[OPTION_SIZE])
{
    char letter[5] = "    ";

    if (option->letter != 0) {
        snprintf(letter, sizeof(letter), "-%c, ", option->letter);
    }
    return snprintf(out, OPTION_SIZE, "  %s--%s%s%s", letter, option->name,
                    option->value == NULL ? "" : " ",
                    option->value == NULL ? "" : option->value);
}

static void
option_help(const struct command_option *option, int width, FILE *out)
{
    char name[OPTION_SIZE];

    option_format(option, name);
    fprintf(out, "%-*s", width, name);
    for (const char *at = option->help; *at != '\0'; at++) {
        fputc(*at, out);
        if (*at == '\n') {
            fprintf(out, "%*s", width, "");
        }
    }
    if (option->kind == COMMAND_NUMBER && option->fallback != 0) {
        fprintf(out, " (%lld)", (long long)option->fallback);
    }
    fputc('\n', out);
}

static void
command_help(const struct command *command, FILE *out)
{
    size_t count = command_option_count(command);
    char name[OPTION_SIZE];
    int width = option_format(&config_row, name);

    for (size_t i = 0; i < count; i++) {
        int size = option_format(&command->options[i], name);

        width = size > width ? size : width;
    }
    width += 2;
    fprintf(out, "%s\n%s%s", command->synopsis, command->about,
            command->about[0] == '\0' ? "" : "\n");
    option_help(&config_row, width, out);
    for (size_t i = 0; i < count; i++) {
        option_help(&command->options[i], width, out);
    }
    option_help(&help_row, width, out);
    if (command->notes != NULL) {
        fprintf(out, "\n%s", command->notes);
    }
}


/* ---- errors ----------------------------------------------------------- */

/* The argument in quotes, where there is one; then where to read on. */
static void
usage_error_put(const char *command, const char *what, const char *argument,
                const char *synopsis)
{
    if (argument == NULL) {
        fprintf(stderr, "meterd %s: %s\n", command, what);
    } else {
        fprintf(stderr, "meterd %s: %s \"%s\"\n", command, what, argument);
    }
    fprintf(stderr, "%stry: meterd %s --help\n", synopsis, command);
}

int
command_usage_error(const char *command, const char *what, const char *argument)
{
    usage_error_put(command, what, argument, "");
    return PROCESS_USAGE;
}

/* The same while the command line is read. */
static bool
line_wrong(const struct command_line *line, const char *what,
           const char *argument)
{
    usage_error_put(line->command->name, what, argument,
                    line->command->synopsis);
    return false;
}

/* Puts verbs into words after what is in the text: "list, show or replay". */
static void
verbs_format(const struct command *command, unsigned wanted, const char *last,
             char text[SENTENCE_SIZE])
{
    int left = __builtin_popcount(wanted);
    size_t at = strlen(text);

    for (size_t i = 0; wanted >> i != 0; i++) {
        if (wanted >> i & 1) {
            left--;
            at += (size_t)snprintf(text + at, SENTENCE_SIZE - at, "%s%s",
                                   command->verbs[i].name,
                                   left > 1   ? ", "
                                   : left > 0 ? last
                                              : "");
            CHECK(at < SENTENCE_SIZE);
        }
    }
}

static bool
verb_missing(const struct command_line *line)
{
    char text[SENTENCE_SIZE] = "say ";
    unsigned all = 0;

    for (size_t i = 0; line->command->verbs[i].run != NULL; i++) {
        all |= 1u << i;
    }
    verbs_format(line->command, all, " or ", text);
    return line_wrong(line, text, NULL);
}

static bool
option_misplaced(const struct command_line *line,
                 const struct command_option *option)
{
    char text[SENTENCE_SIZE];

    snprintf(text, sizeof(text), "--%s belongs to ", option->name);
    verbs_format(line->command, option->verbs, " and ", text);
    return line_wrong(line, text, NULL);
}


/* ---- values ----------------------------------------------------------- */

static bool
number_read(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *at = text;

    *out = 0;
    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *at - '0', out)) {
            return false;
        }
    }
    return at > text && *at == '\0' && *out >= min && *out <= max;
}

/* A value at its place in the command's struct. False: said. */
static bool
option_take(struct command_line *line, const struct command_option *option,
            const char *text)
{
    void *out = (char *)line + option->offset;
    struct command_list *list = out;
    char wrong[SENTENCE_SIZE];

    switch (option->kind) {
    case COMMAND_FLAG: *(bool *)out = true; return true;
    case COMMAND_TEXT: *(const char **)out = text; return true;
    case COMMAND_NUMBER:
        snprintf(wrong, sizeof(wrong), "--%s takes a number from %lld to %lld",
                 option->name, (long long)option->min, (long long)option->max);
        return number_read(text, option->min, option->max, out) ||
               line_wrong(line, wrong, NULL);
    case COMMAND_TIME:
        snprintf(wrong, sizeof(wrong),
                 "--%s takes a time like 2026-09-01T12:00:00Z", option->name);
        return meter_time_parse((struct meter_str){text, strlen(text)}, out) ||
               line_wrong(line, wrong, NULL);
    case COMMAND_LIST:
        snprintf(wrong, sizeof(wrong), "too many --%s", option->name);
        if (list->count == COMMAND_LIST_MAX) {
            return line_wrong(line, wrong, NULL);
        }
        list->items[list->count++] = text;
        return true;
    }
    return false;
}

static void
line_fallbacks(struct command_line *line)
{
    const struct command_option *option = line->command->options;

    for (; option != NULL && option->name != NULL; option++) {
        if (option->kind == COMMAND_NUMBER || option->kind == COMMAND_TIME) {
            *(int64_t *)((char *)line + option->offset) = option->fallback;
        }
    }
}


/* ---- the command line ------------------------------------------------- */

/* What getopt_long wants to know. */
struct getopt_tables {
    struct option rows[OPTIONS_MAX + 3];
    char letters[2 * (OPTIONS_MAX + 2) + 1];
};

static void
getopt_tables_fill(const struct command *command, struct getopt_tables *out)
{
    size_t count = command_option_count(command);
    char *letter;

    *out = (struct getopt_tables){
        .rows = {{"config", required_argument, NULL, 'c'},
                 {"help", no_argument, NULL, 'h'}},
        .letters = "c:h"};
    letter = out->letters + strlen(out->letters);
    for (size_t i = 0; i < count; i++) {
        const struct command_option *option = &command->options[i];
        bool is_flag = option->kind == COMMAND_FLAG;

        out->rows[2 + i] = (struct option){
            option->name, is_flag ? no_argument : required_argument, NULL,
            LONG_BASE + (int)i};
        if (option->letter != 0) {
            *letter++ = option->letter;
            if (!is_flag) {
                *letter++ = ':';
            }
        }
    }
}

/* The option that getopt_long found: by its number, or by its letter. */
static size_t
option_index(const struct command *command, int found)
{
    size_t index = 0;

    if (found >= LONG_BASE) {
        return (size_t)(found - LONG_BASE);
    }
    while (command->options[index].letter != found) {
        index++;
    }
    return index;
}

/* True: options are in the struct, optind is at the first word. False: all
   is said, *status is the exit status. */
static bool
line_options_read(struct command_line *line, int argc, char **argv, int *status)
{
    const struct command *command = line->command;
    struct getopt_tables tables;
    int found;

    getopt_tables_fill(command, &tables);
    optind = 0; /* someone may have read options before us */
    while ((found = getopt_long(argc, argv, tables.letters, tables.rows,
                                NULL)) != -1) {
        size_t index;

        if (found == 'h') {
            command_help(command, stdout);
            *status = PROCESS_OK;
            return false;
        }
        if (found == '?') { /* getopt has said why */
            fprintf(stderr, "%stry: meterd %s --help\n", command->synopsis,
                    command->name);
            return false;
        }
        if (found == 'c') {
            if (!command_files_add(&line->files, command->name, optarg)) {
                return false;
            }
            continue;
        }
        index = option_index(command, found);
        line->given |= 1u << index;
        if (!option_take(line, &command->options[index], optarg)) {
            return false;
        }
    }
    return true;
}

/* The verb, where the command has some. */
static bool
line_verb_read(struct command_line *line, int argc, char **argv)
{
    const struct command_verb *verb = line->command->verbs;

    if (verb->name != NULL) {
        if (optind == argc) {
            return verb_missing(line);
        }
        while (verb->run != NULL && strcmp(verb->name, argv[optind]) != 0) {
            verb++;
        }
        if (verb->run == NULL) {
            return line_wrong(line, "there is no command", argv[optind]);
        }
        optind++;
    }
    line->verb = verb;
    line->needs = verb->needs;
    return true;
}

static bool
line_words_read(struct command_line *line, int argc, char **argv)
{
    const struct command_verb *verb = line->verb;
    char wrong[SENTENCE_SIZE];

    CHECK(verb->words_max <= COMMAND_WORDS_MAX);
    for (; optind < argc; optind++) {
        if (line->word_count == verb->words_max) {
            return line_wrong(line, "unexpected argument", argv[optind]);
        }
        line->words[line->word_count++] = argv[optind];
    }
    if (line->word_count < verb->words_min) {
        snprintf(wrong, sizeof(wrong), "%s%s%s",
                 verb->name == NULL ? "" : verb->name,
                 verb->name == NULL ? "give " : " needs ", verb->word);
        return line_wrong(line, wrong, NULL);
    }
    return true;
}

/* Do the options belong to the verb, and to each other? */
static bool
line_check(struct command_line *line)
{
    const struct command *command = line->command;
    unsigned verb_bit = 1u << (line->verb - command->verbs);
    const char *wrong = NULL;

    for (size_t i = 0; line->given >> i != 0; i++) {
        const struct command_option *option = &command->options[i];

        if ((line->given >> i & 1) && option->verbs != 0 &&
            !(option->verbs & verb_bit)) {
            return option_misplaced(line, option);
        }
    }
    if (command->check != NULL) {
        wrong = command->check(line);
    }
    if (wrong == NULL && line->needs != COMMAND_NO_CONFIG &&
        line->files.count == 0) {
        wrong = COMMAND_NO_FILE;
    }
    return wrong == NULL || line_wrong(line, wrong, NULL);
}


/* ---- running ---------------------------------------------------------- */

bool
command_config_load(const struct command_files *files, unsigned needs,
                    struct config **out)
{
    struct config_errors errors;

    if (!config_load(files->paths, files->count, out, &errors)) {
        config_errors_print(&errors, stderr);
        return false;
    }
    if (!config_require(*out, needs, &errors)) {
        config_errors_print(&errors, stderr);
        config_unref(*out);
        *out = NULL;
        return false;
    }
    return true;
}

static int
line_run(struct command_line *line, const char *name)
{
    const struct command *command = line->command;
    int failed = command->failed == 0 ? PROCESS_FAILED : command->failed;
    int status;

    if (line->needs != COMMAND_NO_CONFIG &&
        !command_config_load(&line->files, line->needs, &line->config)) {
        return failed;
    }
    if (line->log != COMMAND_LOG_DAEMON) {
        log_for_person(name);
    }
    if (line->log == COMMAND_LOG_QUIET) {
        log_level_set(LOG_WARN);
    }
    status = line->verb->run(line);
    config_unref(line->config);
    if (fflush(stdout) != 0) {
        fprintf(stderr, "%s: stdout cannot be written\n", name);
        return failed;
    }
    return status;
}

int
command_run(const struct command *command, int argc, char **argv)
{
    static char name[NAME_SIZE]; /* log lines keep it */
    struct command_line *line;
    int status = PROCESS_USAGE;

    snprintf(name, sizeof(name), "meterd %s", command->name);
    argv[0] = name; /* getopt puts it in front of its errors */
    if (command->start != NULL) {
        return command->start(argc, argv);
    }
    line = memory_alloc(command->size);
    line->command = command;
    line->log = command->log;
    line_fallbacks(line);
    if (line_options_read(line, argc, argv, &status) &&
        line_verb_read(line, argc, argv) && line_words_read(line, argc, argv) &&
        line_check(line)) {
        status = line_run(line, name);
    }
    free(line);
    return status;
}
