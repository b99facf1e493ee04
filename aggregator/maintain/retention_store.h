/*
 * retention_store.h - what retention reads and changes in the database.
 *
 *   raise a floor -> [pass all writers -> is all flushed?] -> drop partitions
 *
 * Blocking; one connection as meter_owner (adminDatabase). Waits for locks
 * are short ones, since others wait behind: BUSY, ask again.
 */

#ifndef MAINTAIN_RETENTION_STORE_H
#define MAINTAIN_RETENTION_STORE_H

#include "store/partition.h"

/* The floor of a table that never had one; also the one of year 1. */
#define RETENTION_NO_FLOOR (-719162)

/* Of a table that no retention has looked at. */
#define RETENTION_NO_DAYS (-2)

struct retention_store;

enum retention_step {
    RETENTION_DONE,
    RETENTION_BUSY, /* someone else holds it; nothing has changed */
    RETENTION_FAILED
};

struct retention_clock {
    int64_t now_us;
    int64_t heartbeat_us; /* newest of all writers; INT64_MIN: no writer */
};

/* What a writer had committed when its lock was passed. */
struct retention_writer {
    uint8_t writer[16];
    int64_t last;
};

/* NULL: logged, as every failure here. */
MUST_CHECK struct retention_store *retention_store_open(const char *url);
void retention_store_close(struct retention_store *store);

/* One retention at a time: BUSY when another one is at work. */
MUST_CHECK enum retention_step
retention_store_take(struct retention_store *store);
MUST_CHECK bool retention_store_clock(struct retention_store *store,
                                      struct retention_clock *out);

/*
 * The stored floor, RETENTION_NO_FLOOR when there is none, and the days that
 * are in force, RETENTION_NO_DAYS likewise.
 */
MUST_CHECK bool
retention_store_floor(struct retention_store *store,
                      enum partition_parent parent, int32_t *floor, int *days);
/* From now on these days are in force; -1: for ever. */
MUST_CHECK bool retention_store_keep(struct retention_store *store,
                                     enum partition_parent parent, int days);
/*
 * First days of the partitions that lie wholly below the floor, ascending;
 * for free(). Their number is in *count.
 */
MUST_CHECK bool
retention_store_below(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int32_t **days, size_t *count);
MUST_CHECK bool
retention_store_size(struct retention_store *store,
                     enum partition_parent parent, int32_t day, int64_t *size);

/* Series: buckets still to be computed from what lies below the floor. */
MUST_CHECK bool retention_store_marks(struct retention_store *store,
                                      enum partition_parent parent,
                                      int32_t floor, int64_t *marks);
/*
 * From its end on nothing is written below the floor; of the ledger that is
 * so when all writers were passed. Series: not while *marks > 0.
 */
MUST_CHECK enum retention_step
retention_store_raise(struct retention_store *store,
                      enum partition_parent parent, int32_t floor,
                      int64_t *marks);

/* Waits for what every writer has under way; for free(). */
MUST_CHECK enum retention_step
retention_store_pass(struct retention_store *store,
                     struct retention_writer **writers, size_t *count);
/* Writers of which events up to then are not in the series. */
MUST_CHECK bool
retention_store_unflushed(struct retention_store *store,
                          const struct retention_writer *writers, size_t count,
                          size_t *unflushed);

MUST_CHECK enum retention_step
retention_store_drop(struct retention_store *store,
                     enum partition_parent parent, int32_t day);

#endif
