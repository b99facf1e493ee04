/*
 * bucket_add.c - see bucket_add.h.
 */

#include "buckets/bucket_add.h"

static bool
is_plain(const struct operation_request *request)
{
    return request->write.kind == BUCKET_INCREMENT &&
           request->write.expires_us == BUCKET_NEVER &&
           request->idempotency_key.data == NULL;
}

bool
bucket_add_make(struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        batch->buckets[i].amount = 0;
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct operation_request *request =
            &batch->operations[i]->request;
        struct batch_bucket *bucket = &batch->buckets[batch->bucket_of[i]];

        if (!is_plain(request) ||
            __builtin_add_overflow(bucket->amount, request->write.amount,
                                   &bucket->amount)) {
            return false;
        }
    }
    return true;
}

void
bucket_add_decide(struct bucket_batch *batch)
{
    for (size_t i = batch->count; i-- > 0;) {
        struct operation *operation = batch->operations[i];
        struct bucket *now = &batch->buckets[batch->bucket_of[i]].now;

        operation->result = (struct operation_result){
            .end = OPERATION_DECIDED,
            .outcome = BUCKET_APPLIED,
            .added = now->added,
            .subbed = now->subbed,
        };
        now->added -= operation->request.write.amount;
    }
}
