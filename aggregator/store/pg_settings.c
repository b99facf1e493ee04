/*
 * pg_settings.c - the parameters of a connection, from URL and options.
 *
 *   pg_conn, migrate, token_store -> [pg_settings] -> libpq
 *
 * The order of "-c" options is the order of strength: the URL's own, then
 * ours, then the caller's, then the role. synchronous_commit is not among
 * them: the self-test wants to see what the server would do.
 */

#include "store/pg_settings.h"

#include "base/log.h"

#include <libpq-fe.h>

#define OPTIONS_SIZE_MAX 8192

/*
 * Timeouts in milliseconds. An instance that is stopped in a transaction
 * frees its rows after idle_in_transaction_session_timeout; a lost client
 * is noticed during a long statement too.
 */
static const char *const options_fixed[] = {
    "search_path=pg_catalog,meter",
    "TimeZone=UTC",
    "DateStyle=ISO",
    "IntervalStyle=postgres",
    "standard_conforming_strings=on",
    "row_security=on",
    "default_transaction_isolation=read\\ committed",
    "client_min_messages=warning",
    "statement_timeout=60000",
    "lock_timeout=10000",
    "idle_in_transaction_session_timeout=15000",
    "client_connection_check_interval=5000",
};

static bool options_of_url(const char *url, struct buf *out);


bool
pg_settings_init(struct pg_settings *settings,
                 const struct pg_conn_options *options)
{
    settings->count = 0;
    buf_init(&settings->options, OPTIONS_SIZE_MAX);
    buf_init(&settings->name, PG_CONN_NAME_SIZE_MAX);

    if (!options_of_url(options->url, &settings->options)) {
        pg_settings_fini(settings);
        return false;
    }
    for (size_t i = 0; i < sizeof(options_fixed) / sizeof(options_fixed[0]);
         i++) {
        buf_printf(&settings->options, " -c %s", options_fixed[i]);
    }
    if (options->settings != NULL) {
        buf_printf(&settings->options, " %s", options->settings);
    }
    if (options->role != NULL) {
        buf_printf(&settings->options, " -c role=%s", options->role);
    }
    buf_put_byte(&settings->options, 0);
    buf_printf(&settings->name, "meterd %s", options->name);
    buf_put_byte(&settings->name, 0);
    if (settings->options.failed || settings->name.failed) {
        log_error("store", "connection options too long",
                  log_str("connection", options->name));
        pg_settings_fini(settings);
        return false;
    }

    pg_settings_add(settings, "dbname", options->url);
    pg_settings_add(settings, "options", settings->options.data);
    pg_settings_add(settings, "application_name", settings->name.data);
    pg_settings_add(settings, "client_encoding", "UTF8");
    pg_settings_add(settings, "keepalives", "1");
    pg_settings_add(settings, "keepalives_idle", "10");
    pg_settings_add(settings, "keepalives_interval", "5");
    pg_settings_add(settings, "keepalives_count", "3");
    pg_settings_add(settings, "tcp_user_timeout", "20000");
    return true;
}


void
pg_settings_fini(struct pg_settings *settings)
{
    buf_fini(&settings->options);
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


/* Ours replace the URL's as a whole, so they must be carried over. */
static bool
options_of_url(const char *url, struct buf *out)
{
    char *error = NULL;
    PQconninfoOption *parsed = PQconninfoParse(url, &error);

    if (parsed == NULL) {
        /* libpq's text may quote the URL, which may hold a password. */
        log_error("store", "the database URL cannot be read");
        PQfreemem(error);
        return false;
    }
    for (PQconninfoOption *option = parsed; option->keyword != NULL; option++) {
        if (strcmp(option->keyword, "options") == 0 && option->val != NULL) {
            buf_put_text(out, option->val);
        }
    }
    PQconninfoFree(parsed);
    return true;
}
