/*
 * checkpoint.c - `meterd checkpoint`: saves and restores what cannot be
 * recomputed.
 *
 *   export  checkpoint_store -> checkpoint_file -> a name in a directory
 *   show    checkpoint_file -> stdout
 *   import  checkpoint_import.c
 *
 * The daemon starts the export with --log. Exit status: 0 done, 1 not, 2
 * usage.
 */

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/progress.h"
#include "cmd/command.h"
#include "maintain/checkpoint_dir.h"
#include "maintain/checkpoint_file.h"
#include "maintain/checkpoint_import.h"
#include "maintain/checkpoint_store.h"
#include "meter_time.h"

#include <limits.h>
#include <stdio.h>

#define COMMAND      "checkpoint"
#define KEEP_MAX     10000
#define TENANT_WIDTH 32
#define OUTPUT_MAX   ((size_t)1 << 20)

struct checkpoint_line {
    struct command_line line;
    const char *directory;
    int64_t keep; /* 0: all */
    bool is_log;
    bool is_dry;
    bool is_forced;
};

/* The file that is named; NULL: none is. */
static const char *
checkpoint_file(const struct checkpoint_line *wanted)
{
    return wanted->line.word_count == 0 ? NULL : wanted->line.words[0];
}


/* ---- export ----------------------------------------------------------- */

static bool
checkpoint_export_path(const char *file, const char *directory,
                       int64_t created_us, char out[PATH_MAX])
{
    char name[CHECKPOINT_NAME_SIZE];
    int size;

    checkpoint_name_format(created_us, name);
    size = directory == NULL
               ? snprintf(out, PATH_MAX, "%s", file)
               : snprintf(out, PATH_MAX, "%s/%s", directory, name);
    if (size >= PATH_MAX) {
        log_error("checkpoint", "the name of the file is too long");
        return false;
    }
    return true;
}

static bool
checkpoint_export_rows(struct checkpoint_store *store,
                       struct checkpoint_writer *writer, bool is_silent)
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
checkpoint_export_to(const struct checkpoint_line *wanted,
                     const char *directory, struct checkpoint_store *store)
{
    const struct checkpoint_header *header = checkpoint_store_header(store);
    uint64_t started_ms = clock_mono_ms();
    struct checkpoint_writer *writer;
    char path[PATH_MAX];
    bool is_good;

    if (!checkpoint_export_path(checkpoint_file(wanted), directory,
                                header->created_us, path)) {
        return PROCESS_FAILED;
    }
    writer = checkpoint_writer_create(path, header);
    if (writer == NULL) {
        return PROCESS_FAILED;
    }
    is_good = checkpoint_export_rows(store, writer, wanted->is_log) &&
              checkpoint_writer_end(writer);
    if (is_good && !wanted->is_log) {
        printf("%s: %lld rows in %.1f s\n", path,
               (long long)checkpoint_writer_rows(writer),
               (double)(clock_mono_ms() - started_ms) / 1000);
    }
    checkpoint_writer_destroy(writer);
    if (is_good && directory != NULL && wanted->keep > 0) {
        is_good = checkpoint_dir_keep(directory, (size_t)wanted->keep);
    }
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}

static int
checkpoint_export(void *data)
{
    const struct checkpoint_line *wanted = data;
    const struct config *config = wanted->line.config;
    const char *directory =
        wanted->directory != NULL ? wanted->directory : config->checkpoint.path;
    struct checkpoint_store *store;
    int status;

    if (checkpoint_file(wanted) != NULL) {
        directory = NULL; /* which gives the file its name */
    } else if (directory == NULL) {
        return command_usage_error(
            COMMAND, "there is no checkpoint.path; give FILE or -o DIR", NULL);
    }
    log_level_set(LOG_WARN); /* with --log, too */
    store = checkpoint_store_open(config->database);
    if (store == NULL) {
        return PROCESS_FAILED;
    }
    status = checkpoint_export_to(wanted, directory, store);
    checkpoint_store_close(store);
    return status;
}


/* ---- show ------------------------------------------------------------- */

static void
checkpoint_show_header(const struct checkpoint_reader *reader)
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
checkpoint_show_tenant(struct meter_str tenant,
                       const int64_t counts[CHECKPOINT_KINDS])
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

/* The rows of one tenant; the reader then stands after them. */
static bool
checkpoint_show_next(struct checkpoint_reader *reader)
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
    is_good = is_good && !tenant.failed &&
              checkpoint_show_tenant(buf_str(&tenant), counts);
    buf_fini(&tenant);
    return is_good;
}

static int
checkpoint_show(void *data)
{
    struct checkpoint_reader *reader =
        checkpoint_reader_open(checkpoint_file(data));
    bool is_good = true;

    if (reader == NULL) {
        return PROCESS_FAILED;
    }
    checkpoint_show_header(reader);
    printf("%-*s %12s %12s %6s\n", TENANT_WIDTH, "tenant", "counters",
           "entities", "usage");
    while (is_good && checkpoint_reader_row(reader) != NULL) {
        is_good = checkpoint_show_next(reader);
    }
    checkpoint_reader_close(reader);
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}


/* ---- import ----------------------------------------------------------- */

static int
checkpoint_import_file(void *data)
{
    const struct checkpoint_line *wanted = data;
    const struct checkpoint_import_wish wish = {
        .config = wanted->line.config,
        .path = checkpoint_file(wanted),
        .is_dry = wanted->is_dry,
        .is_forced = wanted->is_forced,
    };

    return checkpoint_import(&wish);
}


/* ---- the command ------------------------------------------------------ */

static const char *
checkpoint_check(void *data)
{
    struct checkpoint_line *wanted = data;

    if (wanted->is_log) {
        wanted->line.log = COMMAND_LOG_DAEMON;
    }
    return checkpoint_file(wanted) != NULL &&
                   (wanted->directory != NULL || wanted->keep > 0)
               ? "a file, or a directory with --output and --keep"
               : NULL;
}

enum { EXPORT = 1 << 0, SHOW = 1 << 1, IMPORT = 1 << 2 };

static const struct command_verb checkpoint_verbs[] = {
    {"export", checkpoint_export, CONFIG_NEEDS_DATABASE, "a file", 0, 1},
    {"show", checkpoint_show, COMMAND_NO_CONFIG, "the file of a checkpoint", 1,
     1},
    {"import", checkpoint_import_file, CONFIG_NEEDS_DATABASE,
     "the file of a checkpoint", 1, 1},
    {NULL},
};

static const struct command_option checkpoint_options[] = {
    {"output", 'o', COMMAND_TEXT, offsetof(struct checkpoint_line, directory),
     "DIR",
     "instead of checkpoint.path, the default: the file\n"
     "is DIR/checkpoint-20260901T120000Z.ndjson",
     EXPORT},
    {"keep", 0, COMMAND_NUMBER, offsetof(struct checkpoint_line, keep), "N",
     "then remove all but the newest N files of DIR", EXPORT, 1, KEEP_MAX},
    {"log", 0, COMMAND_FLAG, offsetof(struct checkpoint_line, is_log), NULL,
     "log lines as the daemon's, for programs", EXPORT},
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct checkpoint_line, is_dry), NULL,
     "only tells what import would change", IMPORT},
    {"force", 0, COMMAND_FLAG, offsetof(struct checkpoint_line, is_forced),
     NULL, "also a file of what seems another database", IMPORT},
    {NULL},
};

const struct command checkpoint_command = {
    .name = COMMAND,
    .summary = "export and import what cannot be recomputed",
    .synopsis = "usage: meterd checkpoint export [FILE | -o DIR] [--keep N] -c "
                "FILE...\n"
                "       meterd checkpoint show FILE\n"
                "       meterd checkpoint import FILE [--dry-run] [--force] -c "
                "FILE...\n",
    .about =
        "Counters, entity states and usage rows stand for events that "
        "retention\n"
        "has removed long ago: they cannot be recomputed. export writes them "
        "to a\n"
        "file, as of one moment; show checks a file and tells what is in it.\n"
        "import puts them back to what they were, and adds the events that "
        "the\n"
        "ledger has recorded since. A running meterd is not disturbed by "
        "export,\n"
        "and waits for import.\n",
    .notes = "Connects to database.\n",
    .verbs = checkpoint_verbs,
    .options = checkpoint_options,
    .size = sizeof(struct checkpoint_line),
    .log = COMMAND_LOG_QUIET,
    .check = checkpoint_check,
};
