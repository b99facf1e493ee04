/*
 * meter_cell.c - open deltas: requests of one key, summed for 5 seconds.
 *
 *   request -> [add] -> cell -> [seal] -> DELTA record -> ring
 *                         |
 *                         +-> adopter, after a crash
 *
 * A cell counts when its state is 1, with the half that flip names. So an
 * add is one store: the flip; opening one is the state, freeing one too.
 */

#include "meter_cell.h"

#include "meter_hash.h"
#include "meter_live.h"

#define CHAIN_MAX 32
/* What a DELTA adds to the body of its cell: quantity, count, flags. */
#define SUMS_SIZE (6 + METER_DECIMAL_TEXT_SIZE + 6 + 8 + 6 + 4)


const struct meter_cell_half *
meter_cell_current(const struct meter_cell *cell)
{
    return &cell->half[cell->flip & 1];
}


struct meter_decimal
meter_cell_quantity(const struct meter_cell_half *half)
{
    unsigned __int128 units = half->quantity[1];

    units = units << 64 | half->quantity[0];
    return (struct meter_decimal){(meter_int128)units};
}


bool
meter_cell_is_any_open(const struct meter_outbox *outbox)
{
    return outbox->cells.oldest != 0;
}


uint64_t
meter_outbox_operation(struct meter_outbox *outbox)
{
    meter_add(&outbox->live->operation, 1);
    return outbox->live->operation;
}


static struct meter_str
body_of(const struct meter_cell *cell)
{
    size_t size = cell->body_size;

    return (struct meter_str){(const char *)cell->body,
                              size <= METER_CELL_BODY_SIZE ? size : 0};
}


static uint32_t *
bucket_of(const struct meter_cells *cells, struct meter_str key)
{
    uint64_t hash = meter_hash(key.data, key.size, 0);

    return &cells->buckets[hash & cells->bucket_mask];
}


/* To the end of the list. */
static void
list_append(struct meter_cells *cells, uint32_t index)
{
    cells->older[index] = cells->newest;
    cells->newer[index] = 0;
    if (cells->newest != 0) {
        cells->newer[cells->newest - 1] = index + 1;
    } else {
        cells->oldest = index + 1;
    }
    cells->newest = index + 1;
}


static void
list_remove(struct meter_cells *cells, uint32_t index)
{
    uint32_t older = cells->older[index];
    uint32_t newer = cells->newer[index];

    if (older != 0) {
        cells->newer[older - 1] = newer;
    } else {
        cells->oldest = newer;
    }
    if (newer != 0) {
        cells->older[newer - 1] = older;
    } else {
        cells->newest = older;
    }
}


static void
chain_remove(struct meter_cells *cells, uint32_t index)
{
    uint32_t *link = bucket_of(cells, body_of(&cells->items[index]));

    while (*link != 0 && *link != index + 1) {
        link = &cells->chain[*link - 1];
    }
    if (*link != 0) {
        *link = cells->chain[index];
    }
}


uint32_t
meter_cells_load(struct meter_cells *cells)
{
    uint32_t open = 0;

    memset(cells->buckets, 0,
           (cells->bucket_mask + (size_t)1) * sizeof(cells->buckets[0]));
    cells->free_count = 0;
    cells->oldest = 0;
    cells->newest = 0;
    for (uint32_t i = 0; i < cells->count; i++) {
        if (cells->items[i].state != 0) {
            cells->chain[i] = METER_CELL_RECOVERED;
            list_append(cells, i);
            open++;
        }
    }
    for (uint32_t i = cells->count; i > 0; i--) {
        if (cells->items[i - 1].state == 0) {
            cells->free[cells->free_count++] = i - 1;
        }
    }
    return open;
}


/* The mark goes last: an open cell without one would be emitted. */
void
meter_cell_free(struct meter_cells *cells, uint32_t index)
{
    struct meter_cell *cell = &cells->items[index];

    METER_CRASH_POINT("cell_before_free");
    if (cells->chain[index] != METER_CELL_RECOVERED) {
        chain_remove(cells, index);
    }
    list_remove(cells, index);
    meter_store_u32(&cell->state, 0);
    meter_store(&cell->seq, 0);
    cells->free[cells->free_count++] = index;
}


static void
write_half(struct meter_cell_half *half, uint64_t count, uint64_t operation,
           struct meter_decimal quantity)
{
    meter_store(&half->count, count);
    meter_store(&half->operation, operation);
    meter_store(&half->quantity[0], (uint64_t)quantity.units);
    meter_store(&half->quantity[1], (uint64_t)(quantity.units >> 64));
}


static bool
add_to(struct meter_cell *cell, struct meter_decimal quantity,
       uint64_t operation)
{
    const struct meter_cell_half *current = meter_cell_current(cell);
    uint32_t flip = (cell->flip & 1) ^ 1;
    struct meter_decimal sum;

    if (!meter_decimal_add(meter_cell_quantity(current), quantity, &sum)) {
        return false;
    }
    write_half(&cell->half[flip], current->count + 1, operation, sum);
    METER_CRASH_POINT("cell_before_flip");
    meter_store_u32(&cell->flip, flip);
    METER_CRASH_POINT("cell_after_flip");
    return true;
}


static bool
open_with(struct meter_cells *cells, uint32_t *bucket, struct meter_str key,
          int64_t bucket_us, struct meter_decimal quantity, uint64_t operation)
{
    struct meter_cell *cell;
    uint32_t index;

    if (cells->free_count == 0) {
        return false;
    }
    index = cells->free[--cells->free_count];
    cell = &cells->items[index];
    METER_STORE_POINT();
    memcpy(cell->body, key.data, key.size);
    meter_store_u32(&cell->body_size, (uint32_t)key.size);
    meter_store_i64(&cell->bucket_us, bucket_us);
    write_half(&cell->half[0], 1, operation, quantity);
    METER_CRASH_POINT("cell_mid_open");
    meter_store_u32(&cell->flip, 0);
    meter_store_u32(&cell->state, 1);
    METER_CRASH_POINT("cell_opened");
    cells->chain[index] = *bucket;
    *bucket = index + 1;
    list_append(cells, index);
    return true;
}


/* Puts the request where its key is. */
static bool
place(struct meter_cells *cells, struct meter_str key, int64_t bucket_us,
      struct meter_decimal quantity, uint64_t operation)
{
    uint32_t *bucket = bucket_of(cells, key);
    uint32_t next = *bucket;
    uint32_t steps = 0;

    while (next != 0) {
        struct meter_cell *cell = &cells->items[next - 1];

        if (meter_str_equal(body_of(cell), key)) {
            return add_to(cell, quantity, operation);
        }
        if (++steps == CHAIN_MAX) {
            return false;
        }
        next = cells->chain[next - 1];
    }
    return open_with(cells, bucket, key, bucket_us, quantity, operation);
}


bool
meter_cell_add(struct meter_outbox *outbox, struct meter_str key,
               int64_t bucket_us, struct meter_decimal quantity,
               uint64_t operation)
{
    struct meter_outbox_counts *counts = &outbox->live->counts;

    if (key.size == 0 || key.size > METER_CELL_BODY_SIZE) {
        return false;
    }
    if (!place(&outbox->cells, key, bucket_us, quantity, operation)) {
        return false;
    }
    meter_live_begin(outbox->live);
    meter_add(&counts->seen, 1);
    meter_add(&counts->open, 1);
    meter_live_end(outbox->live);
    return true;
}


/* Only damage makes one of these: what it stood for is a loss. */
static void
lose(struct meter_outbox *outbox, uint32_t index)
{
    struct meter_outbox_live after = *outbox->live;
    const struct meter_cell *cell = &outbox->cells.items[index];
    uint64_t count = meter_cell_current(cell)->count;

    meter_live_lose(&after, count, METER_LOSS_TORN, cell->bucket_us);
    after.counts.open -= count;
    after.counts.lost += count;
    meter_live_change(outbox->live, &after);
}


bool
meter_cell_seal_oldest(struct meter_outbox *outbox)
{
    uint32_t index = outbox->cells.oldest - 1;
    struct meter_cell *cell = &outbox->cells.items[index];
    const struct meter_cell_half *half = meter_cell_current(cell);
    bool is_recovered = outbox->cells.chain[index] == METER_CELL_RECOVERED;
    struct meter_writer out;
    uint8_t *body;

    body = meter_outbox_reserve(outbox, METER_CELL_BODY_SIZE + SUMS_SIZE);
    if (body == NULL) {
        return false;
    }
    meter_writer_init(&out, body, METER_CELL_BODY_SIZE + SUMS_SIZE);
    meter_record_delta_encode(body_of(cell), (int64_t)half->count,
                              meter_cell_quantity(half),
                              is_recovered ? METER_EVENT_RECOVERED : 0, &out);
    if (out.failed) {
        lose(outbox, index);
    } else {
        meter_outbox_commit(outbox, METER_RECORD_DELTA, out.at, half->count,
                            false, &cell->seq);
    }
    if (is_recovered) {
        outbox->emit_cells--;
    }
    meter_cell_free(&outbox->cells, index);
    return true;
}


static bool
has_ended(const struct meter_cells *cells, uint32_t index, int64_t now_us)
{
    int64_t start_us = cells->items[index].bucket_us;

    if (cells->chain[index] == METER_CELL_RECOVERED ||
        now_us > INT64_MAX - METER_CELL_BUCKET_US) {
        return true;
    }
    return start_us <= now_us - METER_CELL_BUCKET_US ||
           start_us > now_us + METER_CELL_BUCKET_US;
}


bool
meter_cell_seal(struct meter_outbox *outbox, int64_t now_us)
{
    while (outbox->cells.oldest != 0 &&
           has_ended(&outbox->cells, outbox->cells.oldest - 1, now_us)) {
        if (!meter_cell_seal_oldest(outbox)) {
            return false;
        }
    }
    return true;
}
