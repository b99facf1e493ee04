/*
 * checkpoint_store.h - what a checkpoint holds, read from the database.
 *
 *   open -> header -> row, row, ... -> end
 *
 * Blocking; one connection as meter_writer (database), one snapshot, the
 * memory of a few pages of rows. Only reads, and holds up no one.
 */

#ifndef MAINTAIN_CHECKPOINT_STORE_H
#define MAINTAIN_CHECKPOINT_STORE_H

#include "maintain/checkpoint_row.h"

struct checkpoint_store;

/* The snapshot is taken. NULL: logged, as every failure here. */
MUST_CHECK struct checkpoint_store *checkpoint_store_open(const char *url);
void checkpoint_store_close(struct checkpoint_store *store);

/* Lives as long as the store. */
const struct checkpoint_header *
checkpoint_store_header(const struct checkpoint_store *store);
/* Roughly how many rows there are; 0: not known. */
int64_t checkpoint_store_estimate(const struct checkpoint_store *store);

enum checkpoint_next {
    CHECKPOINT_NEXT_ROW,
    CHECKPOINT_NEXT_END,
    CHECKPOINT_NEXT_FAILED
};

/*
 * Rows in the order of a checkpoint: tenant, kind, key. What *row points to
 * is valid until the next call.
 */
MUST_CHECK enum checkpoint_next
checkpoint_store_next(struct checkpoint_store *store,
                      struct checkpoint_row *row);

#endif
