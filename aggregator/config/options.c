/*
 * options.c - the table of options and what follows from a row.
 *
 *   yaml_tree -> [options] -> struct config
 *
 * Defaults are written once, as text, and read by the same parser as the
 * operator's values. No message repeats the value of a secret.
 */

#include "config/options.h"

#include "config/scalar.h"
#include "meter_time.h"

#define LISTEN_PATH_SIZE_MAX 107 /* sun_path without its NUL */
#define TEXT_SIZE_MAX        1024
#define USER_SIZE_MAX        32

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

struct option_place {
    const struct option_row *row;
    const struct yaml_node *node;
    struct config *config;
    struct config_errors *errors;
};

typedef bool (*option_parse_fn)(const struct option_place *place, void *field);


const struct option_row *
options_table(size_t *count)
{
    *count = TABLE_COUNT;
    return table;
}

/* Splits "limits.queueEvents"; the section is empty without a dot. */
static void
row_split(const struct option_row *row, struct meter_str *section,
          struct meter_str *key)
{
    const char *dot = strchr(row->name, '.');

    *section = (struct meter_str){"", 0};
    *key = (struct meter_str){row->name, strlen(row->name)};
    if (dot != NULL) {
        *section = (struct meter_str){row->name, (size_t)(dot - row->name)};
        *key = (struct meter_str){dot + 1, strlen(dot + 1)};
    }
}

const struct option_row *
options_find(struct meter_str section, struct meter_str key)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        struct meter_str row_section;
        struct meter_str row_key;

        row_split(&table[i], &row_section, &row_key);
        if (meter_str_equal(section, row_section) &&
            meter_str_equal(key, row_key)) {
            return &table[i];
        }
    }
    return NULL;
}

bool
options_is_section(struct meter_str section)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        struct meter_str row_section;
        struct meter_str row_key;

        row_split(&table[i], &row_section, &row_key);
        if (section.size > 0 && meter_str_equal(section, row_section)) {
            return true;
        }
    }
    return false;
}


static bool
keep_text(const struct option_place *place, struct meter_str text,
          const char **field)
{
    struct meter_str copy;

    if (!arena_copy(&place->config->arena, text, &copy)) {
        yaml_node_error(place->errors, place->node, "out of memory");
        return false;
    }
    *field = copy.data;
    return true;
}

static bool
refuse(const struct option_place *place, const char *expected)
{
    yaml_node_error(place->errors, place->node, "\"%s\" must be %s",
                    place->row->name, expected);
    return false;
}

static bool
has_prefix(struct meter_str text, const char *prefix)
{
    size_t size = strlen(prefix);

    return text.size >= size && memcmp(text.data, prefix, size) == 0;
}

static bool
parse_text(const struct option_place *place, void *field)
{
    if (place->node->text.size > TEXT_SIZE_MAX) {
        return refuse(place, "at most 1024 bytes");
    }
    return keep_text(place, place->node->text, field);
}

static bool
parse_database(const struct option_place *place, void *field)
{
    struct meter_str text = place->node->text;

    if (!has_prefix(text, "postgres://") &&
        !has_prefix(text, "postgresql://") &&
        memchr(text.data, '=', text.size) == NULL) {
        return refuse(place, "a postgres:// URL or key=value pairs");
    }
    return parse_text(place, field);
}

static bool
parse_path(const struct option_place *place, void *field)
{
    if (place->node->text.data[0] != '/') {
        return refuse(place, "an absolute path");
    }
    return parse_text(place, field);
}

static bool
parse_listen(const struct option_place *place, void *field)
{
    struct meter_str path = place->node->text;

    if (!has_prefix(path, "unix:/")) {
        return refuse(place, "unix: and an absolute path");
    }
    path.data += strlen("unix:");
    path.size -= strlen("unix:");
    if (path.size > LISTEN_PATH_SIZE_MAX) {
        return refuse(place, "a path of at most 107 bytes");
    }
    return keep_text(place, path, field);
}

static bool
parse_node(const struct option_place *place, void *field)
{
    if (!scalar_is_node(place->node->text)) {
        return refuse(place, "1 to 64 letters, digits, '_', '.' or '-', "
                             "starting with a letter or digit");
    }
    return parse_text(place, field);
}

static bool
parse_bool(const struct option_place *place, void *field)
{
    if (place->node->quoted || !scalar_bool(place->node->text, field)) {
        return refuse(place, "true or false, without quotes");
    }
    return true;
}

static bool
parse_integer(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    int64_t value;

    if (place->node->quoted || !scalar_integer(place->node->text, &value)) {
        return refuse(place, "an integer in decimal digits, without quotes");
    }
    if (value < row->min || value > row->max) {
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %lld to %lld", row->name,
                        (long long)row->min, (long long)row->max);
        return false;
    }
    *(int64_t *)field = value;
    return true;
}

static bool
parse_duration(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    char least[SCALAR_DURATION_TEXT_SIZE + 1];
    char most[SCALAR_DURATION_TEXT_SIZE + 1];
    int64_t value;

    if (!scalar_duration(place->node->text, &value)) {
        return refuse(place, "a duration such as 500ms, 5s, 30m, 48h or "
                             "730d");
    }
    if (value < row->min || value > row->max) {
        scalar_duration_format(row->min, least);
        scalar_duration_format(row->max, most);
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %s to %s", row->name, least, most);
        return false;
    }
    *(int64_t *)field = value;
    return true;
}

static bool
parse_skew(const struct option_place *place, void *field)
{
    if (meter_str_equal(place->node->text, METER_STR("none"))) {
        *(int64_t *)field = CONFIG_NONE;
        return true;
    }
    return parse_duration(place, field);
}

static bool
parse_days(const struct option_place *place, void *field)
{
    const struct option_row *row = place->row;
    int64_t value;

    if (meter_str_equal(place->node->text, METER_STR("forever"))) {
        *(int64_t *)field = CONFIG_NONE;
        return true;
    }
    if (!scalar_duration(place->node->text, &value) || value % DAY != 0) {
        return refuse(place, "whole days such as 730d, or forever");
    }
    if (value / DAY < row->min || value / DAY > row->max) {
        yaml_node_error(place->errors, place->node,
                        "\"%s\" must be from %lldd to %lldd, or forever",
                        row->name, (long long)row->min, (long long)row->max);
        return false;
    }
    *(int64_t *)field = value / DAY;
    return true;
}

static bool
parse_word(const struct option_place *place, void *field)
{
    const char *const *words = place->row->words;
    int position = scalar_word(place->node->text, words);
    char list[128] = "";

    if (position >= 0) {
        *(int64_t *)field = position;
        return true;
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s",
                 i == 0                 ? ""
                 : words[i + 1] == NULL ? " or "
                                        : ", ",
                 words[i]);
    }
    return refuse(place, list);
}

static bool
user_is_valid(const struct yaml_node *node)
{
    return node->kind == YAML_TEXT && node->text.size <= USER_SIZE_MAX &&
           scalar_is_node(node->text);
}

static bool
parse_users(const struct option_place *place, void *field)
{
    const struct yaml_node *list = place->node;
    const char **names;
    size_t count = 0;

    if (list->count > CONFIG_PEERS_MAX) {
        return refuse(place, "a list of at most 16 user names");
    }
    names =
        arena_zalloc(&place->config->arena, (list->count + 1) * sizeof(*names));
    if (names == NULL) {
        return refuse(place, "smaller: out of memory");
    }
    for (const struct yaml_node *item = list->first; item != NULL;
         item = item->next) {
        if (!user_is_valid(item)) {
            yaml_node_error(place->errors, item, "\"%s\" must hold user names",
                            place->row->name);
            return false;
        }
        if (!keep_text(place, item->text, &names[count++])) {
            return false;
        }
    }
    *(struct config_users *)field = (struct config_users){names, count};
    return true;
}

static const option_parse_fn parsers[] = {
    [OPTION_DATABASE] = parse_database, [OPTION_PATH] = parse_path,
    [OPTION_LISTEN] = parse_listen,     [OPTION_NODE] = parse_node,
    [OPTION_BOOL] = parse_bool,         [OPTION_INTEGER] = parse_integer,
    [OPTION_DURATION] = parse_duration, [OPTION_SKEW] = parse_skew,
    [OPTION_DAYS] = parse_days,         [OPTION_WORD] = parse_word,
    [OPTION_USERS] = parse_users,
};

bool
options_set(const struct option_row *row, const struct yaml_node *node,
            struct config *config, struct config_errors *errors)
{
    struct option_place place = {row, node, config, errors};
    enum yaml_kind wanted = row->type == OPTION_USERS ? YAML_LIST : YAML_TEXT;

    if (node->kind != wanted || yaml_node_is_null(node) ||
        (wanted == YAML_TEXT && node->text.size == 0)) {
        yaml_node_error(errors, node, "\"%s\" must be %s, not %s", row->name,
                        wanted == YAML_LIST ? "a list" : "a single value",
                        node->quoted && node->text.size == 0
                            ? "empty text"
                            : yaml_node_kind_name(node));
        return false;
    }
    return parsers[row->type](&place, (char *)config + row->offset);
}

bool
options_default(struct config *config)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        struct config_errors errors = {.count = 0};
        const char *text = table[i].fallback;
        struct yaml_node node = {.kind = YAML_TEXT, .file = "default"};

        if (text == NULL) {
            continue;
        }
        node.text = (struct meter_str){text, strlen(text)};
        if (!options_set(&table[i], &node, config, &errors)) {
            return false;
        }
    }
    return true;
}
