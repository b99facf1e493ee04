/*
 * checkpoint_cmd.c - see checkpoint_cmd.h.
 *
 *   export  checkpoint_store -> checkpoint_file -> a name in a directory
 *   show    checkpoint_file -> stdout
 *   import  checkpoint_import.c
 */

#include "cmd/checkpoint_cmd.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/progress.h"
#include "cmd/command_line.h"
#include "maintain/checkpoint_dir.h"
#include "maintain/checkpoint_file.h"
#include "maintain/checkpoint_import.h"
#include "meter_time.h"
#include "maintain/checkpoint_store.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>

#define COMMAND      "checkpoint"
#define KEEP_MAX     10000
#define TENANT_WIDTH 32
#define OUTPUT_MAX   ((size_t)1 << 20)

static const char usage_text[] =
    "usage: meterd checkpoint export [FILE | -o DIR] [--keep N] -c FILE...\n"
    "       meterd checkpoint show FILE\n"
    "       meterd checkpoint import FILE [--dry-run] [--force] -c FILE...\n"
    "\n"
    "Counters, entity states and usage rows stand for events that retention\n"
    "has removed long ago: they cannot be recomputed. export writes them to a\n"
    "file, as of one moment; show checks a file and tells what is in it.\n"
    "import puts them back to what they were, and adds the events that the\n"
    "ledger has recorded since. A running meterd is not disturbed by export,\n"
    "and waits for import.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "  -o, --output DIR   instead of checkpoint.path, the default: the file\n"
    "                     is DIR/checkpoint-20260901T120000Z.ndjson\n"
    "      --keep N       then remove all but the newest N files of DIR\n"
    "      --log          log lines as the daemon's, for programs\n"
    "      --dry-run      only tells what import would change\n"
    "      --force        also a file of what seems another database\n"
    "  -h, --help         this text\n"
    "\n"
    "Connects to database.\n";

struct checkpoint_arguments {
    const char *verb;
    const char *file;
    const char *directory;
    const char *keep_text;
    bool is_log;
    bool is_dry;
    bool is_forced;
    struct command_files files;

    size_t keep; /* 0: all */
};

static int checkpoint_export(const struct checkpoint_arguments *arguments,
                             const struct config *config);
static int checkpoint_show(const struct checkpoint_arguments *arguments,
                           const struct config *config);
static int checkpoint_import_file(const struct checkpoint_arguments *arguments,
                                  const struct config *config);

/* What each verb takes, needs and does. */
static const struct checkpoint_verb {
    const char *name;
    bool needs_file;
    bool needs_config;
    bool takes_output; /* output, keep, log */
    bool takes_import; /* dry-run, force */
    int (*run)(const struct checkpoint_arguments *arguments,
               const struct config *config);
} verbs[] = {
    {"export", false, true, true, false, checkpoint_export},
    {"show", true, false, false, false, checkpoint_show},
    {"import", true, true, false, true, checkpoint_import_file},
};


/* ---- the command line ------------------------------------------------- */

enum checkpoint_read { READ_OK, READ_HELP, READ_BAD };

static enum checkpoint_read
options_read(int argc, char **argv, struct checkpoint_arguments *out)
{
    enum { KEEP = 256, LOG, DRY, FORCE };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"output", required_argument, NULL, 'o'},
        {"keep", required_argument, NULL, KEEP},
        {"log", no_argument, NULL, LOG},
        {"dry-run", no_argument, NULL, DRY},
        {"force", no_argument, NULL, FORCE},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:o:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&out->files, COMMAND, optarg)) {
                return READ_BAD;
            }
            break;
        case 'o': out->directory = optarg; break;
        case KEEP: out->keep_text = optarg; break;
        case LOG: out->is_log = true; break;
        case DRY: out->is_dry = true; break;
        case FORCE: out->is_forced = true; break;
        case 'h': return READ_HELP;
        default: fputs(usage_text, stderr); return READ_BAD;
        }
    }
    out->verb = optind < argc ? argv[optind++] : NULL;
    out->file = optind < argc ? argv[optind++] : NULL;
    if (optind < argc) {
        command_usage_error(COMMAND, "unexpected argument", argv[optind]);
        return READ_BAD;
    }
    return READ_OK;
}

static bool
keep_read(const char *text, size_t *keep)
{
    *keep = 0;
    for (; *text >= '0' && *text <= '9' && *keep <= KEEP_MAX; text++) {
        *keep = *keep * 10 + (size_t)(*text - '0');
    }
    return *text == '\0' && *keep >= 1 && *keep <= KEEP_MAX;
}

/* NULL: fine; else what does not belong to the verb. */
static const char *
options_check(const struct checkpoint_verb *verb,
              struct checkpoint_arguments *arguments)
{
    if (verb->needs_file && arguments->file == NULL) {
        return "name the file of a checkpoint";
    }
    if (!verb->takes_output &&
        (arguments->directory != NULL || arguments->keep_text != NULL ||
         arguments->is_log)) {
        return "--output, --keep and --log belong to export";
    }
    if (!verb->takes_import && (arguments->is_dry || arguments->is_forced)) {
        return "--dry-run and --force belong to import";
    }
    if (arguments->file != NULL &&
        (arguments->directory != NULL || arguments->keep_text != NULL)) {
        return "a file, or a directory with --output and --keep";
    }
    if (arguments->keep_text != NULL &&
        !keep_read(arguments->keep_text, &arguments->keep)) {
        return "--keep takes a number from 1 to 10000";
    }
    if (verb->needs_config && arguments->files.count == 0) {
        return COMMAND_NO_FILE;
    }
    return NULL;
}

static int
verb_run(const struct checkpoint_verb *verb,
         const struct checkpoint_arguments *arguments)
{
    struct config *config = NULL;
    int status;

    if (verb->needs_config &&
        !command_config_load(&arguments->files, CONFIG_NEEDS_DATABASE,
                             &config)) {
        return PROCESS_FAILED;
    }
    if (!arguments->is_log) {
        log_for_person("meterd " COMMAND);
    }
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
checkpoint_cmd_run(int argc, char **argv)
{
    struct checkpoint_arguments arguments = {.verb = NULL};
    const struct checkpoint_verb *verb = NULL;
    const char *wrong;

    switch (options_read(argc, argv, &arguments)) {
    case READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case READ_BAD: return PROCESS_USAGE;
    default: break;
    }
    if (arguments.verb == NULL) {
        return command_usage_error(COMMAND, "give export, import or show",
                                   NULL);
    }
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, arguments.verb) == 0) {
            verb = &verbs[i];
        }
    }
    if (verb == NULL) {
        return command_usage_error(COMMAND, "there is no command",
                                   arguments.verb);
    }
    wrong = options_check(verb, &arguments);
    if (wrong != NULL) {
        return command_usage_error(COMMAND, wrong, NULL);
    }
    return verb_run(verb, &arguments);
}


/* ---- export ----------------------------------------------------------- */

/* The directory, where the file gets its own name; NULL: a file is named. */
static const char *
export_directory(const struct checkpoint_arguments *arguments,
                 const struct config *config)
{
    if (arguments->file != NULL) {
        return NULL;
    }
    return arguments->directory != NULL ? arguments->directory
                                        : config->checkpoint.path;
}

static bool
export_path(const struct checkpoint_arguments *arguments, const char *directory,
            int64_t created_us, char out[PATH_MAX])
{
    char name[CHECKPOINT_NAME_SIZE];
    int size;

    checkpoint_name_format(created_us, name);
    size = directory == NULL
               ? snprintf(out, PATH_MAX, "%s", arguments->file)
               : snprintf(out, PATH_MAX, "%s/%s", directory, name);
    if (size >= PATH_MAX) {
        log_error("checkpoint", "the name of the file is too long");
        return false;
    }
    return true;
}

static bool
export_rows(struct checkpoint_store *store, struct checkpoint_writer *writer,
            bool is_silent)
{
    struct progress progress;
    struct checkpoint_row row;
    enum checkpoint_next next;
    bool is_good = true;

    progress_start(&progress, "export", "rows",
                   checkpoint_store_estimate(store));
    progress.is_silent = is_silent;
    while (is_good &&
           (next = checkpoint_store_next(store, &row)) != CHECKPOINT_NEXT_END) {
        is_good =
            next == CHECKPOINT_NEXT_ROW && checkpoint_writer_put(writer, &row);
        progress_add(&progress, 1);
    }
    progress_end(&progress);
    return is_good;
}

static int
export_to(const struct checkpoint_arguments *arguments, const char *directory,
          struct checkpoint_store *store)
{
    const struct checkpoint_header *header = checkpoint_store_header(store);
    uint64_t started_ms = clock_mono_ms();
    struct checkpoint_writer *writer;
    char path[PATH_MAX];
    bool is_good;

    if (!export_path(arguments, directory, header->created_us, path)) {
        return PROCESS_FAILED;
    }
    writer = checkpoint_writer_create(path, header);
    if (writer == NULL) {
        return PROCESS_FAILED;
    }
    is_good = export_rows(store, writer, arguments->is_log) &&
              checkpoint_writer_end(writer);
    if (is_good && !arguments->is_log) {
        printf("%s: %lld rows in %.1f s\n", path,
               (long long)checkpoint_writer_rows(writer),
               (double)(clock_mono_ms() - started_ms) / 1000);
    }
    checkpoint_writer_destroy(writer);
    if (is_good && directory != NULL && arguments->keep > 0) {
        is_good = checkpoint_dir_keep(directory, arguments->keep);
    }
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}

static int
checkpoint_export(const struct checkpoint_arguments *arguments,
                  const struct config *config)
{
    const char *directory = export_directory(arguments, config);
    struct checkpoint_store *store;
    int status;

    if (arguments->file == NULL && directory == NULL) {
        return command_usage_error(
            COMMAND, "there is no checkpoint.path; give FILE or -o DIR", NULL);
    }
    store = checkpoint_store_open(config->database);
    if (store == NULL) {
        return PROCESS_FAILED;
    }
    status = export_to(arguments, directory, store);
    checkpoint_store_close(store);
    return status;
}


/* ---- show ------------------------------------------------------------- */

static void
show_header(const struct checkpoint_reader *reader)
{
    const struct checkpoint_header *header = checkpoint_reader_header(reader);
    char created[METER_TIME_TEXT_SIZE + 1];
    char digest[2 * METER_DIGEST_SIZE + 1];
    int64_t events = 0;

    for (size_t i = 0; i < header->writer_count; i++) {
        if (__builtin_add_overflow(events, header->writers[i].last, &events)) {
            events = INT64_MAX;
        }
    }
    meter_time_format(header->created_us, created);
    meter_hex(header->salt_digest, METER_DIGEST_SIZE, digest);
    printf("created    %s\n", created);
    printf("schema     %d\n", header->schema_version);
    printf("database   %.16s%s%s\n", digest,
           header->incarnation[0] == '\0' ? "" : ", incarnation ",
           header->incarnation);
    printf("writers    %zu, %lld events\n", header->writer_count,
           (long long)events);
    printf("rows       %lld, complete and unchanged\n\n",
           (long long)checkpoint_reader_rows(reader));
}

/* A line; the tenant's text cannot steer a terminal. */
static bool
show_tenant(struct meter_str tenant, const int64_t counts[CHECKPOINT_KINDS])
{
    struct buf text;
    bool is_good;

    buf_init(&text, OUTPUT_MAX);
    buf_put_printable(&text, tenant);
    is_good = !text.failed;
    if (is_good) {
        printf("%-*.*s %12lld %12lld %6lld\n", TENANT_WIDTH, (int)text.size,
               text.data, (long long)counts[CHECKPOINT_COUNTER],
               (long long)counts[CHECKPOINT_ENTITY],
               (long long)counts[CHECKPOINT_USAGE]);
    }
    buf_fini(&text);
    return is_good;
}

/* The rows of one tenant; the reader then stands behind them. */
static bool
show_next(struct checkpoint_reader *reader)
{
    const struct checkpoint_row *row = checkpoint_reader_row(reader);
    int64_t counts[CHECKPOINT_KINDS] = {0};
    struct buf tenant;
    bool is_good = true;

    buf_init(&tenant, OUTPUT_MAX);
    buf_put_str(&tenant, row->tenant);
    while (is_good && row != NULL &&
           meter_str_equal(row->tenant, buf_str(&tenant))) {
        counts[row->kind]++;
        is_good = checkpoint_reader_next(reader);
        row = checkpoint_reader_row(reader);
    }
    is_good =
        is_good && !tenant.failed && show_tenant(buf_str(&tenant), counts);
    buf_fini(&tenant);
    return is_good;
}

static int
checkpoint_show(const struct checkpoint_arguments *arguments,
                const struct config *config)
{
    struct checkpoint_reader *reader = checkpoint_reader_open(arguments->file);
    bool is_good = true;

    (void)config; /* a file needs none */
    if (reader == NULL) {
        return PROCESS_FAILED;
    }
    show_header(reader);
    printf("%-*s %12s %12s %6s\n", TENANT_WIDTH, "tenant", "counters",
           "entities", "usage");
    while (is_good && checkpoint_reader_row(reader) != NULL) {
        is_good = show_next(reader);
    }
    checkpoint_reader_close(reader);
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}


/* ---- import ----------------------------------------------------------- */

static int
checkpoint_import_file(const struct checkpoint_arguments *arguments,
                       const struct config *config)
{
    const struct checkpoint_import_wish wish = {
        .config = config,
        .path = arguments->file,
        .is_dry = arguments->is_dry,
        .is_forced = arguments->is_forced,
    };

    return checkpoint_import(&wish);
}
