/*
 * meter_cell.h - open deltas: requests of one key, summed for 5 seconds.
 *
 *   add: look up by the key's bytes, write the other half, flip
 *   seal: the sums become a DELTA record, the cell is free
 *
 * Fixed entries in the ring file, found through a hash table in private
 * memory whose chains are short: a key that would make one long gets no cell.
 * The key is an event body without count and quantity whose ts is the start of
 * its bucket, so that a new bucket is a new cell.
 */

#ifndef METER_CELL_H
#define METER_CELL_H

#include "meter_decimal.h"
#include "meter_types.h"

#define METER_CELL_SIZE      512
#define METER_CELL_BODY_SIZE (METER_CELL_SIZE - 96)
#define METER_CELL_BUCKET_US INT64_C(5000000)

struct meter_cell_half {
    uint64_t count;
    uint64_t operation;   /* that made it; 0: one without a slot */
    uint64_t quantity[2]; /* meter_decimal units, low word first */
};

struct meter_cell {
    uint64_t seq;   /* record being published from it; 0: none */
    uint32_t state; /* 0 free, 1 open */
    uint32_t body_size;
    int64_t bucket_us; /* start */
    uint32_t flip;     /* which half is read */
    uint32_t zero;
    struct meter_cell_half half[2];
    uint8_t body[METER_CELL_BODY_SIZE];
};

_Static_assert(sizeof(struct meter_cell) == METER_CELL_SIZE, "packed");

struct meter_cells {
    struct meter_cell *items; /* in the map */
    uint32_t count;
    /* scratch */
    uint32_t *free;
    uint32_t free_count;
    uint32_t *buckets; /* heads of chains, index + 1; a power of two */
    uint32_t bucket_mask;
    uint32_t *chain; /* next in the chain, index + 1; METER_CELL_RECOVERED */
    uint32_t *older; /* neighbours in order of opening, index + 1 */
    uint32_t *newer;
    uint32_t oldest;
    uint32_t newest;
};

/* In `chain`: found by a claimer, in no chain, only to be sealed. */
#define METER_CELL_RECOVERED UINT32_MAX

struct meter_outbox;

/*
 * Adds one request. False: no cell is free, the key is too long or the sum
 * would overflow; nothing has changed then, make a record instead.
 * operation: from meter_outbox_operation when a slot stands behind it, or 0.
 * Counts the request as seen and open.
 */
METER_MUST_CHECK bool
meter_cell_add(struct meter_outbox *outbox, struct meter_str key,
               int64_t bucket_us, struct meter_decimal quantity,
               uint64_t operation);

/* The next operation number, stored in the file first. */
uint64_t meter_outbox_operation(struct meter_outbox *outbox);

/*
 * Seals cells whose bucket has ended by now_us (all of them: INT64_MAX), the
 * oldest first; one more than a bucket ahead has ended too: the clock was
 * set back. False: no room in the ring; the rest stays open.
 */
bool meter_cell_seal(struct meter_outbox *outbox, int64_t now_us);
bool meter_cell_is_any_open(const struct meter_outbox *outbox);

/*
 * For adopters: stacks the free cells, lists the open ones as recovered and
 * returns how many they are.
 */
uint32_t meter_cells_load(struct meter_cells *cells);
/* Frees a cell on the list; its record is published, or it is a loss. */
void meter_cell_free(struct meter_cells *cells, uint32_t index);
/* Seals the oldest. False: no room. */
bool meter_cell_seal_oldest(struct meter_outbox *outbox);

/* The half that counts. */
const struct meter_cell_half *meter_cell_current(const struct meter_cell *cell);
struct meter_decimal meter_cell_quantity(const struct meter_cell_half *half);

#endif
