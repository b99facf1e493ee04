/*
 * settings.h - the parameters of a connection, from URL and options.
 *
 * What libpq needs to connect, and what the session is told once it stands.
 */

#ifndef PG_SETTINGS_H
#define PG_SETTINGS_H

#include "base/buf.h"
#include "pg/address.h"
#include "pg/conn.h"

#define PG_SETTINGS_MAX       64
#define PG_CONN_NAME_SIZE_MAX 64

struct pg_settings {
    const char *keywords[PG_SETTINGS_MAX + 1]; /* NULL at the end */
    const char *values[PG_SETTINGS_MAX + 1];
    size_t count;
    void *parsed; /* the URL, as libpq reads it */
    struct buf name;
};

/*
 * For PQconnectStartParams. place stands for the hosts of the URL; NULL: all
 * of them. False: why says what is wrong, never quoting the URL.
 */
MUST_CHECK bool
pg_settings_init(struct pg_settings *settings,
                 const struct pg_conn_options *options,
                 const struct pg_place *place, const char **why);
void pg_settings_fini(struct pg_settings *settings);
void pg_settings_add(struct pg_settings *settings, const char *keyword,
                     const char *value);

/*
 * The URL's connect_timeout, the time for one host: seconds as libpq counts
 * them (1 is 2), in milliseconds; 0: not given.
 */
uint64_t pg_settings_connect_ms(const struct pg_settings *settings);

/*
 * Parameters of session_set: ours, the caller's, the role, and the mark by
 * which the session is known again. They win over the URL's own options.
 */
void pg_settings_session(const struct pg_conn_options *options,
                         const char *mark, struct pg_params *params);

#endif
