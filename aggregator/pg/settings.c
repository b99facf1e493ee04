/*
 * settings.c - what libpq needs to connect, and what a session is told.
 *
 *   connect.c, blocking.c -> [settings] -> libpq, session_set
 *
 * The URL says where and as whom; what meterd relies on is set in every
 * session, after the connection is made, and wins over the URL's own options.
 */

#include "pg/column.h"
#include "pg/conn_private.h"

#include <stdlib.h>

#define NAME_SIZE_MAX    64 /* of application_name */
#define SESSION_MAX      48
#define BLOCKING_SECONDS "10"

/*
 * Timeouts in milliseconds. An instance that is stopped in a transaction
 * frees its rows after idle_in_transaction_session_timeout; a lost client
 * is noticed during a long statement too. synchronous_commit is not among
 * them: the self-test wants to see what the server would do.
 */
static const struct {
    const char *name;
    const char *value;
} session_fixed[] = {
    {"search_path", "pg_catalog,meter"},
    {"TimeZone", "UTC"},
    {"DateStyle", "ISO"},
    {"IntervalStyle", "postgres"},
    {"standard_conforming_strings", "on"},
    {"row_security", "on"},
    {"default_transaction_isolation", "read committed"},
    {"client_min_messages", "warning"},
    {"statement_timeout", "60000"},
    {"lock_timeout", "10000"},
    {"idle_in_transaction_session_timeout", "15000"},
    {"client_connection_check_interval", "5000"},
};

struct session_item {
    struct meter_str name;
    struct meter_str value;
};

struct session {
    struct session_item items[SESSION_MAX];
    size_t count;
};


static void
settings_add(struct pg_settings *settings, const char *keyword,
             const char *value)
{
    CHECK(settings->count < PG_SETTINGS_MAX);

    settings->keywords[settings->count] = keyword;
    settings->values[settings->count] = value;
    settings->count++;
    settings->keywords[settings->count] = NULL;
    settings->values[settings->count] = NULL;
}


static const char *
settings_value(const struct pg_settings *settings, const char *keyword)
{
    for (size_t i = 0; i < settings->count; i++) {
        if (strcmp(settings->keywords[i], keyword) == 0) {
            return settings->values[i];
        }
    }
    return NULL;
}


/* Seconds as libpq counts them: 1 is 2. */
static uint64_t
settings_connect_ms(const struct pg_settings *settings)
{
    const char *text = settings_value(settings, "connect_timeout");
    long seconds = text == NULL ? 0 : strtol(text, NULL, 10);

    if (seconds <= 0) {
        return 0;
    }
    return (uint64_t)(seconds == 1 ? 2 : seconds) * 1000;
}


/* NULL: a server that can be written to is asked for, or any. */
static const char *
settings_check(const struct pg_settings *settings)
{
    static const char *const good[] = {"any", "read-write", "primary"};
    const char *attrs = settings_value(settings, "target_session_attrs");

    for (size_t i = 0; attrs != NULL && i < sizeof(good) / sizeof(good[0]);
         i++) {
        attrs = strcmp(attrs, good[i]) == 0 ? NULL : attrs;
    }
    return attrs == NULL ? NULL
                         : "target_session_attrs must be any, read-write or "
                           "primary: meterd reads and writes on the primary";
}


static void
settings_add_url(struct pg_settings *settings, const struct pg_place *place)
{
    const PQconninfoOption *option;

    for (option = settings->parsed; option->keyword != NULL; option++) {
        bool is_place = strcmp(option->keyword, "host") == 0 ||
                        strcmp(option->keyword, "hostaddr") == 0 ||
                        strcmp(option->keyword, "port") == 0;

        if (option->val != NULL && (place == NULL || !is_place)) {
            settings_add(settings, option->keyword, option->val);
        }
    }
    if (place != NULL) {
        settings_add(settings, "host", place->host);
        settings_add(settings, "hostaddr", place->hostaddr);
        settings_add(settings, "port", place->port);
    }
}


bool
pg_settings_init(struct pg_settings *settings,
                 const struct pg_conn_options *options,
                 const struct pg_place *place, const char **why)
{
    settings->count = 0;
    buf_init(&settings->name, NAME_SIZE_MAX);
    /* libpq's text may quote the URL, which may hold a password. */
    settings->parsed = PQconninfoParse(options->url, NULL);
    if (settings->parsed == NULL) {
        *why = "the database URL cannot be read";
        return false;
    }
    buf_printf(&settings->name, "meterd %s", options->name);
    buf_put_byte(&settings->name, 0);
    CHECK(!settings->name.failed); /* names are ours, and short */

    settings_add_url(settings, place);
    settings_add(settings, "application_name", settings->name.data);
    settings_add(settings, "client_encoding", "UTF8");
    settings_add(settings, "keepalives", "1");
    settings_add(settings, "keepalives_idle", "10");
    settings_add(settings, "keepalives_interval", "5");
    settings_add(settings, "keepalives_count", "3");
    settings_add(settings, "tcp_user_timeout", "20000");
    settings->connect_ms = settings_connect_ms(settings);
    if (place == NULL && settings->connect_ms == 0) {
        settings_add(settings, "connect_timeout", BLOCKING_SECONDS);
    }

    *why = settings_check(settings);
    if (*why != NULL) {
        pg_settings_fini(settings);
        return false;
    }
    return true;
}


void
pg_settings_fini(struct pg_settings *settings)
{
    PQconninfoFree(settings->parsed);
    settings->parsed = NULL;
    buf_fini(&settings->name);
}


static void
session_add(struct session *session, struct meter_str name,
            struct meter_str value)
{
    CHECK(session->count < SESSION_MAX);
    session->items[session->count++] = (struct session_item){name, value};
}


static struct meter_str
session_str(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}


/* "name=value name=value": ours, without blanks in a value. */
static void
session_add_words(struct session *session, const char *words)
{
    while (*words != '\0') {
        size_t size = strcspn(words, " ");
        size_t name = strcspn(words, "=");

        CHECK(name > 0 && name < size);
        session_add(session, (struct meter_str){words, name},
                    (struct meter_str){words + name + 1, size - name - 1});
        words += size;
        words += strspn(words, " ");
    }
}


void
pg_settings_session(const struct pg_conn_options *options, const char *mark,
                    struct pg_params *params)
{
    static const struct pg_column columns[] = {
        PG_COLUMN(TEXT, struct session_item, name),
        PG_COLUMN(TEXT, struct session_item, value),
    };
    struct session session = {.count = 0};

    for (size_t i = 0; i < sizeof(session_fixed) / sizeof(session_fixed[0]);
         i++) {
        session_add(&session, session_str(session_fixed[i].name),
                    session_str(session_fixed[i].value));
    }
    if (options->settings != NULL) {
        session_add_words(&session, options->settings);
    }
    session_add(&session, session_str("meter.session"), session_str(mark));
    if (options->role != NULL) {
        session_add(&session, session_str("role"), session_str(options->role));
    }
    pg_param_rows(params, columns, PG_COLUMN_COUNT(columns), session.items,
                  session.count, sizeof(session.items[0]));
}
