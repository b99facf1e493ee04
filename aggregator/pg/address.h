/*
 * address.h - the hosts of a URL, one by one, looked up without blocking.
 *
 * libpq resolves names inside PQconnectPoll and would block there, and it
 * goes from one host to the next only when a host says no, never when one is
 * silent. So each address of each host becomes a place of its own, in the
 * order of the URL, and pg_connect tries them in turn. Names are looked up
 * by libuv's threads; host stays, for TLS and the password file. Socket
 * directories and given hostaddr need no look-up.
 */

#ifndef PG_ADDRESS_H
#define PG_ADDRESS_H

#include "base/buf.h"

#include <uv.h>

struct pg_address;

/* Where a server may be. NULL: as libpq would have it. */
struct pg_place {
    char *host;
    char *hostaddr;
    char *port;
};

struct pg_places {
    size_t count; /* one at least */
    struct pg_place of[];
};

/* NULL is allowed. */
void pg_places_free(struct pg_places *places);

/* places: the asker's from now on; NULL: error says why there are none. */
typedef void (*pg_address_cb)(void *asker, struct pg_places *places,
                              const char *error);

/*
 * The callback comes later, or during this call when nothing is to be
 * looked up. Returns the request while it is outstanding, else NULL.
 */
struct pg_address *pg_address_resolve(uv_loop_t *loop, const char *url,
                                      pg_address_cb cb, void *asker);
/* No callback any more. */
void pg_address_cancel(struct pg_address *address);

#endif
