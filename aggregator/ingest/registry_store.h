/*
 * registry_store.h - the registry, for one who only looks.
 *
 *   meterd replay --dry-run -> [registry_store] -> meter.event_registry
 *
 * A blocking connection whose transactions are read only: nothing that is
 * asked here can change a row. Only meter_writer may see the salt, so this is
 * its role.
 */

#ifndef INGEST_REGISTRY_STORE_H
#define INGEST_REGISTRY_STORE_H

#include "meter_event.h"
#include "pg/param.h"

struct registry_store;

/* NULL: logged. */
MUST_CHECK struct registry_store *registry_store_open(const char *url);
void registry_store_close(struct registry_store *store);

const struct meter_salt *
registry_store_salt(const struct registry_store *store);
/* The database's clock, carried on by the monotonic one. */
int64_t registry_store_now_us(const struct registry_store *store);

/* False: no memory; the asking ends. */
typedef bool (*registry_row_cb)(void *asker, const void *result, int row);

/* ingest_known with these parameters. False: logged, or the asker's. */
MUST_CHECK bool registry_store_known(struct registry_store *store,
                                     const struct pg_params *params,
                                     registry_row_cb cb, void *asker);

#endif
