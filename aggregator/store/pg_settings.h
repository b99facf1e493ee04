/*
 * pg_settings.h - the parameters of a connection, from URL and options.
 */

#ifndef STORE_PG_SETTINGS_H
#define STORE_PG_SETTINGS_H

#include "base/buf.h"
#include "store/pg_conn.h"

#define PG_SETTINGS_MAX       24
#define PG_CONN_NAME_SIZE_MAX 64

struct pg_settings {
    const char *keywords[PG_SETTINGS_MAX + 1]; /* NULL at the end */
    const char *values[PG_SETTINGS_MAX + 1];
    size_t count;
    struct buf options;
    struct buf name;
};

/*
 * For PQconnectStartParams with expand_dbname. What the URL says about
 * server options stays in force except where meterd depends on a value.
 * False: not a valid URL or no memory; logged.
 */
MUST_CHECK bool pg_settings_init(struct pg_settings *settings,
                                 const struct pg_conn_options *options);
void pg_settings_fini(struct pg_settings *settings);
void pg_settings_add(struct pg_settings *settings, const char *keyword,
                     const char *value);

#endif
