/*
 * bucket_tally.c - see bucket_tally.h.
 */

#include "buckets/bucket_tally.h"

#include "base/metrics.h"

/* The first operation of a fresh key is applied, others repeat its answer. */
static bool
is_repeated(struct bucket_batch *batch, size_t index)
{
    uint32_t key = batch->key_of[index];

    if (key == BUCKET_BATCH_NO_KEY) {
        return false;
    }
    if (batch->keys[key].is_fresh) {
        batch->keys[key].is_fresh = false;
        return false;
    }
    return true;
}


void
bucket_tally_make(struct bucket_tally *tally, struct bucket_batch *batch)
{
    *tally = (struct bucket_tally){.operations = (int64_t)batch->count};
    for (size_t i = 0; i < batch->count; i++) {
        const struct operation_result *result = &batch->operations[i]->result;

        if (result->end == OPERATION_KEY_TAKEN) {
            tally->key_taken++;
            continue;
        }
        if (is_repeated(batch, i)) {
            tally->repeated++;
            continue;
        }
        tally->applied += result->outcome == BUCKET_APPLIED;
        tally->negative += result->outcome == BUCKET_NEGATIVE;
        tally->overflow += result->outcome == BUCKET_OVERFLOW;
    }
}


void
bucket_tally_count(const struct bucket_tally *tally)
{
    metrics.edgemeter_bucket_batches_total++;
    metrics.edgemeter_bucket_batch_operations_total += tally->operations;
    metrics.edgemeter_bucket_operations_total += tally->applied;
    metrics.edgemeter_bucket_negative_total += tally->negative;
    metrics.edgemeter_bucket_overflow_total += tally->overflow;
    metrics.edgemeter_bucket_key_taken_total += tally->key_taken;
    metrics.edgemeter_bucket_repeated_total += tally->repeated;
}
