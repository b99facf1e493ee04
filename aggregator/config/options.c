/*
 * options.c - the table of options, and what it shows to people.
 *
 *   [options_table] -> config.c (parsing, defaults), reload.c, meterd check
 *
 * Defaults are written once, as text; config.c reads them with the parser of
 * the operator's values. `meterd check --print-options` prints the table, and
 * docs/options.md is what it prints. The value of a secret is never shown.
 */

#include "config/options.h"

#include "config/scalar.h"
#include "meter_time.h"

#define AT(field) offsetof(struct config, field)

static const char *const scope_words[] = {"globalEventId", NULL};
static const char *const level_words[] = {"error", "warn", "info", "debug",
                                          NULL};

/* Ranges: durations in microseconds, retention in days. */
#define MS     INT64_C(1000)
#define SECOND METER_TIME_SECOND
#define MINUTE METER_TIME_MINUTE
#define HOUR   METER_TIME_HOUR
#define DAY    METER_TIME_DAY
#define YEARS  36525 /* days: a century */

/* clang-format off */
static const struct option_row table[] = {
    { "database", OPTION_DATABASE, AT(database), NULL, 0, 0,
      OPTION_SECRET, NULL,
      "Where meterd keeps everything: a `postgres://` URL or libpq "
      "`key=value` pairs. The environment variable `METERD_DATABASE` stands "
      "for it when no file has it." },
    { "adminDatabase", OPTION_DATABASE, AT(admin_database), NULL, 0, 0,
      OPTION_SECRET, NULL,
      "The same database as the owner of the schema, for migrations and "
      "partitions." },
    { "listen", OPTION_LISTEN, AT(listen), NULL, 0, 0,
      0, NULL,
      "The socket for nginx: `unix:` and an absolute path of at most 107 "
      "bytes." },
    { "node", OPTION_NODE, AT(node), NULL, 0, 0,
      0, NULL,
      "Name of this gateway host in logs and metrics; the host name by "
      "default." },
    { "stateDir", OPTION_PATH, AT(state_dir), NULL, 0, 0,
      0, NULL,
      "Directory that holds the identity of this writer; one meterd owns "
      "it at a time." },
    { "outbox", OPTION_PATH, AT(outbox), NULL, 0, 0,
      0, NULL,
      "Directory of the outbox rings, the one that nginx's `meter_outbox` "
      "names: rings that no worker is left to send are sent from here. "
      "Without it they wait for nginx." },

    { "idempotency.scope", OPTION_WORD, AT(idempotency.scope),
      "globalEventId", 0, 0,
      OPTION_RELOAD, scope_words,
      "One id is one event across all types, counters and nodes of a "
      "tenant." },
    { "idempotency.acrossTenants", OPTION_BOOL,
      AT(idempotency.across_tenants), "false", 0, 0,
      0, NULL,
      "Makes ids unique over all tenants, for installations with one "
      "owner." },
    { "idempotency.futureSkew", OPTION_DURATION,
      AT(idempotency.future_skew_us), "1h", 0, 366 * DAY,
      OPTION_RELOAD, NULL,
      "Events further ahead of the database's clock are rejected." },
    { "idempotency.pastSkew", OPTION_SKEW,
      AT(idempotency.past_skew_us), "none", SECOND, YEARS * DAY,
      OPTION_RELOAD, NULL,
      "Events older than this are rejected; `none` accepts any age." },

    { "defaults.lateness", OPTION_DURATION, AT(default_lateness_us),
      "48h", 0, 366 * DAY,
      OPTION_RELOAD, NULL,
      "Lateness window of meters that name none." },

    { "log.level", OPTION_WORD, AT(log_level), "info", 0, 0,
      OPTION_RELOAD, level_words,
      "The least important level that is written." },
    { "log.path", OPTION_PATH, AT(log_path), NULL, 0, 0,
      0, NULL,
      "A file for the log lines, which else go to stderr. SIGUSR1 opens it "
      "again, after it was renamed." },

    { "limits.queueEvents", OPTION_INTEGER, AT(limits.queue_events),
      "500000", 1, 10000000,
      0, NULL,
      "Events that may wait for a transaction; past it requests are "
      "answered 429." },
    { "limits.batchEvents", OPTION_INTEGER, AT(limits.batch_events),
      "5000", 1, 50000,
      0, NULL,
      "Events in one transaction." },
    { "limits.readConnections", OPTION_INTEGER, AT(limits.read_connections),
      "2", 1, 64,
      0, NULL,
      "Connections that answer reads." },
    { "limits.counterKeys", OPTION_INTEGER, AT(limits.counter_keys),
      "1000000", 1, 100000000,
      OPTION_RELOAD, NULL,
      "Keys of one counter per tenant; an event that needs one more is "
      "rejected." },
    { "limits.seriesCells", OPTION_INTEGER, AT(limits.series_cells),
      "500000", 1, 50000000,
      OPTION_RELOAD, NULL,
      "Buckets of series that are held in memory: so many are flushed early; "
      "while there are twice as many, events wait." },
    { "limits.operationQueue", OPTION_INTEGER, AT(limits.operation_queue),
      "500000", 1, 10000000,
      OPTION_RELOAD, NULL,
      "Writes of the counters API that may wait for a transaction; past it "
      "they are answered 429, as they are past 16384 requests in flight of "
      "one nginx worker." },
    { "limits.tokenCacheTtl", OPTION_DURATION, AT(limits.token_cache_ttl_us),
      "10s", 0, 30 * SECOND,
      OPTION_RELOAD, NULL,
      "How long a token is trusted without asking again, and so the delay "
      "of a revocation or an expiry." },
    { "limits.statementTimeout", OPTION_DURATION,
      AT(limits.statement_timeout_us), "10s", 100 * MS, HOUR,
      0, NULL,
      "PostgreSQL cancels a client's read that takes longer; the answer is "
      "503." },
    { "limits.databasePatience", OPTION_DURATION,
      AT(limits.database_patience_us), "10s", SECOND, 10 * MINUTE,
      0, NULL,
      "How long a host may take to be connected to, and PostgreSQL may leave "
      "a question unanswered that is asked each second; then all connections "
      "are made anew, with the next host of the URL." },
    { "limits.peers", OPTION_USERS, AT(limits.peers), NULL, 0, 0,
      OPTION_RELOAD, NULL,
      "User names that may connect to the socket beside meterd's own user "
      "and root, for example `[www-data]`." },

    { "checkpoint.every", OPTION_DURATION, AT(checkpoint.every_us),
      "24h", MINUTE, 366 * DAY,
      OPTION_RELOAD, NULL,
      "Time between two exports of the counters." },
    { "checkpoint.path", OPTION_PATH, AT(checkpoint.path), NULL, 0, 0,
      OPTION_RELOAD, NULL,
      "Directory of the exports. Checkpoints are off without a "
      "`checkpoint` section." },
    { "checkpoint.keep", OPTION_INTEGER, AT(checkpoint.keep), "7", 1, 10000,
      OPTION_RELOAD, NULL,
      "Exports that are kept; older ones are removed." },

    { "retention.event", OPTION_DAYS, AT(retention.event_days),
      "730d", 1, YEARS, OPTION_RELOAD, NULL,
      "The ledger: raw events." },
    { "retention.eventIndex", OPTION_DAYS, AT(retention.event_index_days),
      "90d", 1, YEARS, OPTION_RELOAD, NULL,
      "Index of declared attributes; never longer than `event`." },
    { "retention.duplicateAudit", OPTION_DAYS,
      AT(retention.duplicate_audit_days), "400d", 1, YEARS,
      OPTION_RELOAD, NULL,
      "Observed duplicates and conflicts." },
    { "retention.series5s", OPTION_DAYS, AT(retention.series_5s_days),
      "7d", 1, YEARS, OPTION_RELOAD, NULL,
      "Series in windows of 5 seconds." },
    { "retention.series1m", OPTION_DAYS, AT(retention.series_1m_days),
      "30d", 1, YEARS, OPTION_RELOAD, NULL,
      "Series in windows of a minute; at least as long as `series5s`." },
    { "retention.series1h", OPTION_DAYS, AT(retention.series_1h_days),
      "400d", 1, YEARS, OPTION_RELOAD, NULL,
      "Series in windows of an hour; at least as long as `series1m`." },
    { "retention.series1d", OPTION_DAYS, AT(retention.series_1d_days),
      "forever", 1, YEARS, OPTION_RELOAD, NULL,
      "Series in windows of a day; at least as long as `series1h`." },
    { "retention.series7d", OPTION_DAYS, AT(retention.series_7d_days),
      "forever", 1, YEARS, OPTION_RELOAD, NULL,
      "Series in windows of a week; at least as long as `series1d`." },
};
/* clang-format on */

#define TABLE_COUNT (sizeof(table) / sizeof(table[0]))

static const char *const type_names[] = {
    [OPTION_DATABASE] = "connection string", [OPTION_PATH] = "absolute path",
    [OPTION_LISTEN] = "unix:PATH",           [OPTION_NODE] = "name",
    [OPTION_BOOL] = "true or false",         [OPTION_INTEGER] = "integer",
    [OPTION_DURATION] = "duration",          [OPTION_SKEW] = "duration or none",
    [OPTION_DAYS] = "days or forever",       [OPTION_WORD] = "word",
    [OPTION_USERS] = "list of names",
};


const struct option_row *
options_table(size_t *count)
{
    *count = TABLE_COUNT;
    return table;
}


/* ---- values as text -------------------------------------------------- */

static void
options_format_users(const struct config_users *users, struct buf *out)
{
    buf_put_byte(out, '[');
    for (size_t i = 0; i < users->count; i++) {
        buf_put_text(out, i == 0 ? "" : ", ");
        buf_put_text(out, users->names[i]);
    }
    buf_put_byte(out, ']');
}

static void
options_format_text(const struct option_row *row, const char *text,
                    struct buf *out)
{
    if (text != NULL && (row->flags & OPTION_SECRET)) {
        buf_put_text(out, "(set)");
    } else if (text != NULL) {
        buf_put_text(out, row->type == OPTION_LISTEN ? "unix:" : "");
        buf_put_text(out, text);
    }
}

static void
options_format_number(const struct option_row *row, int64_t value,
                      struct buf *out)
{
    char text[SCALAR_DURATION_TEXT_SIZE + 1];

    if (value == CONFIG_NONE && row->type != OPTION_INTEGER) {
        buf_put_text(out, row->type == OPTION_DAYS ? "forever" : "none");
    } else if (row->type == OPTION_WORD) {
        buf_put_text(out, row->words[value]);
    } else if (row->type == OPTION_DURATION || row->type == OPTION_SKEW) {
        scalar_duration_format(value, text);
        buf_put_text(out, text);
    } else {
        buf_put_int(out, value);
        buf_put_text(out, row->type == OPTION_DAYS ? "d" : "");
    }
}

void
options_format(const struct option_row *row, const struct config *config,
               struct buf *out)
{
    const void *field = (const char *)config + row->offset;

    if (option_is_text(row)) {
        options_format_text(row, *(const char *const *)field, out);
    } else if (row->type == OPTION_USERS) {
        options_format_users(field, out);
    } else if (row->type == OPTION_BOOL) {
        buf_put_text(out, *(const bool *)field ? "true" : "false");
    } else {
        options_format_number(row, *(const int64_t *)field, out);
    }
}


/* ---- the table for people -------------------------------------------- */

/* "1 to 64", "0s to 366d", "error, warn, info, debug"; else nothing. */
static void
options_print_range(const struct option_row *row, FILE *out)
{
    char least[SCALAR_DURATION_TEXT_SIZE + 1];
    char most[SCALAR_DURATION_TEXT_SIZE + 1];

    switch (row->type) {
    case OPTION_INTEGER:
        fprintf(out, "%lld to %lld", (long long)row->min, (long long)row->max);
        return;
    case OPTION_DAYS:
        fprintf(out, "%lldd to %lldd", (long long)row->min,
                (long long)row->max);
        return;
    case OPTION_DURATION:
    case OPTION_SKEW:
        scalar_duration_format(row->min, least);
        scalar_duration_format(row->max, most);
        fprintf(out, "%s to %s", least, most);
        return;
    case OPTION_WORD:
        for (size_t i = 0; row->words[i] != NULL; i++) {
            fprintf(out, "%s%s", i == 0 ? "" : ", ", row->words[i]);
        }
        return;
    default: fputs("-", out); return;
    }
}

static void
options_print_text(const struct option_row *row, FILE *out)
{
    fprintf(out, "%s\n    type: %s\n    default: %s\n    range: ", row->name,
            type_names[row->type],
            row->fallback != NULL ? row->fallback : "none");
    options_print_range(row, out);
    fprintf(out, "\n    applied: %s\n    %s\n",
            row->flags & OPTION_RELOAD ? "on reload" : "at start", row->help);
}

static void
options_print_markdown(const struct option_row *row, FILE *out)
{
    fprintf(out, "### `%s`\n\n%s\n\n", row->name, row->help);
    fprintf(out, "| type | default | range | applied |\n"
                 "| --- | --- | --- | --- |\n");
    fprintf(out, "| %s | ", type_names[row->type]);
    if (row->fallback != NULL) {
        fprintf(out, "`%s` | ", row->fallback);
    } else {
        fputs("none | ", out);
    }
    options_print_range(row, out);
    fprintf(out, " | %s |\n\n",
            row->flags & OPTION_RELOAD ? "on reload" : "at start");
}

static const char markdown_head[] =
    "# Options\n"
    "\n"
    "Every scalar option of meterd, from the table that also parses them;\n"
    "`meterd check --print-options --markdown` prints this page. The rules\n"
    "(`events`, `counters`, `usage`, `meters`, `series`) are described in\n"
    "[configuration.md](configuration.md).\n"
    "\n"
    "A name with a dot is a key inside a section: `limits.queueEvents` is\n"
    "written `limits: { queueEvents: 500000 }`. A duration is an integer\n"
    "and one of `ms`, `s`, `m`, `h`, `d`. \"on reload\" means that SIGHUP\n"
    "applies it; \"at start\" means that it takes a restart.\n"
    "\n";

void
options_print(bool markdown, FILE *out)
{
    if (markdown) {
        fputs(markdown_head, out);
    }
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (markdown) {
            options_print_markdown(&table[i], out);
        } else {
            options_print_text(&table[i], out);
        }
    }
}
