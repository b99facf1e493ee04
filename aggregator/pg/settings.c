/*
 * settings.c - the parameters of a connection, from URL and options.
 *
 *   pg_conn, migrate, token_store -> [pg_settings] -> libpq, session_set
 *
 * synchronous_commit is not among the settings: the self-test wants to see
 * what the server would do.
 */

#include "pg/settings.h"

#include "pg/param.h"

#include <libpq-fe.h>
#include <stdlib.h>

#define SESSION_MAX 48

/*
 * Timeouts in milliseconds. An instance that is stopped in a transaction
 * frees its rows after idle_in_transaction_session_timeout; a lost client
 * is noticed during a long statement too.
 */
static const struct {
    const char *name;
    const char *value;
} fixed[] = {
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

struct session {
    struct meter_str names[SESSION_MAX];
    struct meter_str values[SESSION_MAX];
    size_t count;
};

static const char *attrs_check(const struct pg_settings *settings);
static const char *
value_of(const struct pg_settings *settings, const char *keyword);
static void session_add(struct session *session, struct meter_str name,
                        struct meter_str value);
static void session_add_words(struct session *session, const char *words);
static void put_texts(struct pg_params *params, const struct meter_str *texts,
                      size_t count);
static struct meter_str str(const char *text);


bool
pg_settings_init(struct pg_settings *settings,
                 const struct pg_conn_options *options,
                 const struct pg_place *place, const char **why)
{
    settings->count = 0;
    buf_init(&settings->name, PG_CONN_NAME_SIZE_MAX);
    /* libpq's text may quote the URL, which may hold a password. */
    settings->parsed = PQconninfoParse(options->url, NULL);
    if (settings->parsed == NULL) {
        *why = "the database URL cannot be read";
        return false;
    }
    buf_printf(&settings->name, "meterd %s", options->name);
    buf_put_byte(&settings->name, 0);
    if (settings->name.failed) {
        pg_settings_fini(settings);
        *why = "out of memory";
        return false;
    }

    for (PQconninfoOption *option = settings->parsed; option->keyword != NULL;
         option++) {
        bool is_place = strcmp(option->keyword, "host") == 0 ||
                        strcmp(option->keyword, "hostaddr") == 0 ||
                        strcmp(option->keyword, "port") == 0;

        if (option->val != NULL && (place == NULL || !is_place)) {
            pg_settings_add(settings, option->keyword, option->val);
        }
    }
    if (place != NULL) {
        pg_settings_add(settings, "host", place->host);
        pg_settings_add(settings, "hostaddr", place->hostaddr);
        pg_settings_add(settings, "port", place->port);
    }
    pg_settings_add(settings, "application_name", settings->name.data);
    pg_settings_add(settings, "client_encoding", "UTF8");
    pg_settings_add(settings, "keepalives", "1");
    pg_settings_add(settings, "keepalives_idle", "10");
    pg_settings_add(settings, "keepalives_interval", "5");
    pg_settings_add(settings, "keepalives_count", "3");
    pg_settings_add(settings, "tcp_user_timeout", "20000");

    *why = attrs_check(settings);
    if (*why != NULL) {
        pg_settings_fini(settings);
        return false;
    }
    return true;
}


/* NULL: a server that can be written to is asked for, or any. */
static const char *
attrs_check(const struct pg_settings *settings)
{
    static const char *const good[] = {"any", "read-write", "primary"};
    const char *attrs = value_of(settings, "target_session_attrs");

    for (size_t i = 0; attrs != NULL && i < sizeof(good) / sizeof(good[0]);
         i++) {
        attrs = strcmp(attrs, good[i]) == 0 ? NULL : attrs;
    }
    return attrs == NULL ? NULL
                         : "target_session_attrs must be any, read-write or "
                           "primary: meterd reads and writes on the primary";
}


void
pg_settings_fini(struct pg_settings *settings)
{
    PQconninfoFree(settings->parsed);
    settings->parsed = NULL;
    buf_fini(&settings->name);
}


void
pg_settings_add(struct pg_settings *settings, const char *keyword,
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
value_of(const struct pg_settings *settings, const char *keyword)
{
    for (size_t i = 0; i < settings->count; i++) {
        if (strcmp(settings->keywords[i], keyword) == 0) {
            return settings->values[i];
        }
    }
    return NULL;
}


uint64_t
pg_settings_connect_ms(const struct pg_settings *settings)
{
    const char *text = value_of(settings, "connect_timeout");
    long seconds = text == NULL ? 0 : strtol(text, NULL, 10);

    if (seconds <= 0) {
        return 0;
    }
    return (uint64_t)(seconds == 1 ? 2 : seconds) * 1000;
}


void
pg_settings_session(const struct pg_conn_options *options, const char *mark,
                    struct pg_params *params)
{
    struct session session = {.count = 0};

    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++) {
        session_add(&session, str(fixed[i].name), str(fixed[i].value));
    }
    if (options->settings != NULL) {
        session_add_words(&session, options->settings);
    }
    session_add(&session, str("meter.session"), str(mark));
    if (options->role != NULL) {
        session_add(&session, str("role"), str(options->role));
    }
    put_texts(params, session.names, session.count);
    put_texts(params, session.values, session.count);
}


static void
session_add(struct session *session, struct meter_str name,
            struct meter_str value)
{
    CHECK(session->count < SESSION_MAX);
    session->names[session->count] = name;
    session->values[session->count] = value;
    session->count++;
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


static void
put_texts(struct pg_params *params, const struct meter_str *texts, size_t count)
{
    pg_param_array_begin(params, PG_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        pg_put_text(&params->bytes, texts[i]);
    }
    pg_param_array_end(params);
}


static struct meter_str
str(const char *text)
{
    return (struct meter_str){text, strlen(text)};
}
