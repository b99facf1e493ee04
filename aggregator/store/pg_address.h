/*
 * pg_address.h - looks up a URL's host names without blocking the loop.
 *
 * libpq resolves names inside PQconnectPoll and would block there. Names
 * are looked up here by libuv's threads and handed over as hostaddr; host
 * stays, for TLS and the password file. Every address of every name is
 * tried, in order. Socket directories and given hostaddr need no look-up.
 */

#ifndef STORE_PG_ADDRESS_H
#define STORE_PG_ADDRESS_H

#include "base/buf.h"

#include <uv.h>

struct pg_address;

/*
 * host, hostaddr, port: comma lists for PQconnectStartParams, all NULL when
 * the URL says enough. error: not NULL when nothing could be looked up.
 * Valid during the call; the request frees itself behind it.
 */
typedef void (*pg_address_cb)(void *asker, const char *host,
                              const char *hostaddr, const char *port,
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
