/*
 * bucket_batch.h - operations decided together, one by one. Pure.
 *
 *   operations in arrival order -> [bucket_batch_make] -> keys in locking order
 *   what is known of keys, buckets as locked, now -> [bucket_batch_decide]
 *     -> result of each operation, rows to write, answers to keep
 *
 * Operations on one bucket are applied in arrival order, each on what the one
 * before left: nothing is summed up across them. One that fails leaves no
 * trace. Of operations with one idempotency key the first is applied, others
 * get its answer, or KEY_TAKEN where they ask for something else.
 */

#ifndef BUCKETS_BUCKET_BATCH_H
#define BUCKETS_BUCKET_BATCH_H

#include "buckets/operation.h"

#define BUCKET_BATCH_MAX 5000

/* One bucket of the batch. */
struct batch_bucket {
    struct bucket_key key; /* of its first operation */
    struct bucket found;   /* as locked; set before decide */
    struct bucket now;     /* as decided */
    bool is_changed;
    int64_t amount; /* of bucket_batch_add */
};

/* One idempotency key of the batch. */
struct batch_key {
    struct meter_str tenant;
    struct meter_str key;
    bool is_known; /* set before decide, with digest and result */
    uint8_t digest[METER_DIGEST_SIZE];
    struct operation_result result; /* end is DECIDED */
    bool is_fresh;                  /* after decide: to be kept */
    bool is_applied;                /* result.outcome is APPLIED */
};

struct bucket_batch {
    struct operation **operations; /* in arrival order */
    size_t count;
    uint32_t *bucket_of;          /* of each operation */
    uint32_t *key_of;             /* of each operation; BUCKET_BATCH_NO_KEY */
    struct batch_bucket *buckets; /* by bucket_key_compare */
    size_t bucket_count;
    struct batch_key *keys; /* by tenant, then by key, bytewise */
    size_t key_count;
};

#define BUCKET_BATCH_NO_KEY UINT32_MAX

/* Expired at now: from the very instant on. */
static inline bool
bucket_is_live(const struct bucket *bucket, int64_t now_us)
{
    return bucket->exists && now_us < bucket->expires_us;
}

/* Everything in the arena; operations are borrowed. False: no memory. */
MUST_CHECK bool
bucket_batch_make(struct bucket_batch *batch, struct operation *const *list,
                  size_t count, struct arena *arena);

/*
 * No bucket exists, no key is known: what is found is told afterwards, for
 * what is there. make does it too.
 */
void bucket_batch_forget(struct bucket_batch *batch);

/* May be called again, after forget, with other findings. */
void bucket_batch_decide(struct bucket_batch *batch, int64_t now_us);

/*
 * A batch of nothing but increments, without a key and without an end: they
 * cannot fail one by one where their sum does not. So the database adds the
 * sum, and what each of them has made is counted backwards from the end.
 * False: these are not such operations, or a sum leaves 64 bits.
 */
MUST_CHECK bool bucket_batch_add(struct bucket_batch *batch);
/* now of each bucket is what the database says. */
void bucket_batch_decide_added(struct bucket_batch *batch);

#endif
