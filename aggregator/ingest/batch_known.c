/*
 * batch_known.c - what the registry answered, taken in; see batch_rows.h.
 */

#include "ingest/batch_rows.h"

bool
batch_known_row(struct batch *batch, struct batch_item *item,
                const void *result, int row)
{
    struct batch_known known = {
        .fingerprint.head = (uint64_t)pg_get_int8(result, row, 2),
        .fingerprint.has_body = !pg_is_null(result, row, 3),
        .first_seen_us = pg_get_time(result, row, 4),
    };

    known.tenant = pg_is_null(result, row, 1) ? batch_item_scope(item)
                                              : pg_get_bytes(result, row, 1);
    if (known.fingerprint.has_body) {
        known.fingerprint.body = (uint64_t)pg_get_int8(result, row, 3);
    }
    return batch_item_known(batch, item, &known);
}
