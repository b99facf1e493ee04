/*
 * ingest_check.c - see ingest_check.h.
 *
 *   request_read -> items -> batch -> registry -> batch_decide -> answer
 */

#include "ingest/ingest_check.h"

#include "base/memory.h"
#include "ingest/batch_rows.h"
#include "ingest/request.h"

#include <stdlib.h>

static bool
known_row(void *asker, const void *result, int row)
{
    struct batch *batch = asker;
    int32_t number = pg_get_int4(result, row, 0);

    CHECK(number >= 0 && (size_t)number < batch->key_count);
    return batch_known_row(batch, batch->by_key[number], result, row);
}

/* False: no memory, or no database. */
static bool
batch_look_up(struct batch *batch, struct registry_store *registry)
{
    struct pg_params params;
    bool is_good;

    pg_params_init(&params);
    is_good = batch_known_params(batch, &params) == 0 ||
              registry_store_known(registry, &params, known_row, batch);
    pg_params_fini(&params);
    return is_good;
}

/* The items that are valid, as a transaction would decide them. */
static bool
items_decide(struct ingest_request *request, struct registry_store *registry)
{
    struct batch_item **items =
        memory_array(request->item_count, sizeof(*items));
    struct batch batch;
    bool is_good;

    batch_init(&batch);
    for (size_t i = 0; i < request->item_count; i++) {
        items[i] = &request->items[i];
    }
    is_good = batch_load(&batch, items, request->item_count) &&
              batch_look_up(&batch, registry);
    if (is_good) {
        batch_decide(&batch, 0, registry_store_now_us(registry));
        request->flying_count = request->item_count;
        for (size_t i = 0; i < request->item_count; i++) {
            request_decide(request, items[i]);
        }
    }
    batch_fini(&batch);
    free(items);
    return is_good;
}

void
ingest_check(struct registry_store *registry, struct config *config,
             const struct ingest_input *input, struct buf *body,
             ingest_answer_cb cb, void *asker)
{
    struct ingest_answer none = {.outcome = INGEST_UNAVAILABLE};
    struct ingest_request *request =
        request_create(NULL, config, body, request_arena_max(body->size));

    if (request == NULL) {
        cb(asker, &none);
        return;
    }
    request->answer.outcome =
        request_read(request, input, registry_store_salt(registry),
                     registry_store_now_us(registry));
    if (request->answer.outcome == INGEST_DONE && request->item_count > 0 &&
        !items_decide(request, registry)) {
        request->answer.outcome = INGEST_UNAVAILABLE;
    }
    cb(asker, &request->answer);
    request_free(request);
}
