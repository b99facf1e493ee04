/*
 * bucket_batch.c - see bucket_batch.h.
 *
 * Buckets and keys are found by sorting: operations with the same one come to
 * stand side by side, the earliest first. Deciding is one walk in arrival
 * order.
 */

#include "buckets/bucket_batch.h"

#include "buckets/word_sort.h"

/* ---- orders ---------------------------------------------------------- */

/* tenant, name, duration, start */
static size_t
bucket_word_count(const void *item)
{
    const struct operation *operation = item;
    const struct bucket_key *key = &operation->request.key;

    return word_text_count(key->tenant) + word_text_count(key->name) + 2;
}


static uint64_t
bucket_word(const void *item, size_t number)
{
    const struct operation *operation = item;
    const struct bucket_key *key = &operation->request.key;
    size_t tenant = word_text_count(key->tenant);
    size_t name = word_text_count(key->name);

    if (number < tenant) {
        return word_of_text(key->tenant, number);
    }
    number -= tenant;
    if (number < name) {
        return word_of_text(key->name, number);
    }
    return word_of_int(number == name ? key->duration_s : key->start_us);
}


/* tenant, idempotency key */
static size_t
key_word_count(const void *item)
{
    const struct operation *operation = item;

    return word_text_count(operation->request.key.tenant) +
           word_text_count(operation->request.idempotency_key);
}


static uint64_t
key_word(const void *item, size_t number)
{
    const struct operation *operation = item;
    const struct operation_request *request = &operation->request;
    size_t tenant = word_text_count(request->key.tenant);

    return number < tenant
               ? word_of_text(request->key.tenant, number)
               : word_of_text(request->idempotency_key, number - tenant);
}


/* What the words say, in one go. */
static int
bucket_compare(const struct operation *a, const struct operation *b)
{
    return bucket_key_compare(&a->request.key, &b->request.key);
}


static int
key_compare(const struct operation *a, const struct operation *b)
{
    int order = meter_str_compare(a->request.key.tenant, b->request.key.tenant);

    return order != 0 ? order
                      : meter_str_compare(a->request.idempotency_key,
                                          b->request.idempotency_key);
}


struct order {
    struct word_order words;
    int (*compare)(const struct operation *, const struct operation *);
};

static const struct order by_bucket = {
    {bucket_word_count, bucket_word},
    bucket_compare,
};
static const struct order by_key = {
    {key_word_count, key_word},
    key_compare,
};

/* Operations to be sorted, by their index in the batch. */
struct places {
    struct word_place *list;
    struct word_place *spare;
    size_t count;
};


static void
places_add(struct places *places, const struct bucket_batch *batch,
           size_t index)
{
    places->list[places->count++] = (struct word_place){
        .item = batch->operations[index],
        .index = (uint32_t)index,
    };
}


/*
 * Sorts, and numbers runs of equal ones, into number_of by index. Returns how
 * many runs there are.
 */
static size_t
places_number(struct places *places, const struct order *order,
              uint32_t *number_of)
{
    const struct word_place *list = places->list;
    uint32_t runs = 0;

    word_sort(places->list, places->spare, places->count, &order->words);
    for (size_t i = 0; i < places->count; i++) {
        int step = i == 0 ? -1 : order->compare(list[i - 1].item, list[i].item);

        CHECK(step <= 0);
        runs += step < 0;
        number_of[list[i].index] = runs - 1;
    }
    return runs;
}


/* ---- making ---------------------------------------------------------- */

static bool
buckets_make(struct bucket_batch *batch, struct places *places,
             struct arena *arena)
{
    places->count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        places_add(places, batch, i);
    }
    batch->bucket_count = places_number(places, &by_bucket, batch->bucket_of);
    batch->buckets =
        arena_zalloc(arena, batch->bucket_count * sizeof(*batch->buckets));
    if (batch->buckets == NULL) {
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct batch_bucket *bucket = &batch->buckets[batch->bucket_of[i]];

        if (bucket->key == NULL) {
            bucket->key = &batch->operations[i]->request.key;
        }
    }
    return true;
}


static bool
keys_make(struct bucket_batch *batch, struct places *places,
          struct arena *arena)
{
    places->count = 0;
    for (size_t i = 0; i < batch->count; i++) {
        batch->key_of[i] = BUCKET_BATCH_NO_KEY;
        if (batch->operations[i]->request.idempotency_key.data != NULL) {
            places_add(places, batch, i);
        }
    }
    batch->key_count = places_number(places, &by_key, batch->key_of);
    batch->keys = arena_zalloc(arena, batch->key_count * sizeof(*batch->keys));
    if (batch->keys == NULL) {
        return false;
    }
    for (size_t i = 0; i < places->count; i++) {
        const struct operation *operation = places->list[i].item;
        struct batch_key *key =
            &batch->keys[batch->key_of[places->list[i].index]];

        key->tenant = operation->request.key.tenant;
        key->key = operation->request.idempotency_key;
    }
    return true;
}


bool
bucket_batch_make(struct bucket_batch *batch, struct operation *const *list,
                  size_t count, struct arena *arena)
{
    struct places places = {
        .list = arena_alloc(arena, count * sizeof(*places.list)),
        .spare = arena_alloc(arena, count * sizeof(*places.spare)),
    };

    CHECK(count <= BUCKET_BATCH_MAX);
    *batch = (struct bucket_batch){
        .operations = arena_alloc(arena, count * sizeof(*batch->operations)),
        .count = count,
        .bucket_of = arena_alloc(arena, count * sizeof(*batch->bucket_of)),
        .key_of = arena_alloc(arena, count * sizeof(*batch->key_of)),
    };
    if (places.list == NULL || places.spare == NULL ||
        batch->operations == NULL || batch->bucket_of == NULL ||
        batch->key_of == NULL) {
        return false;
    }
    if (count > 0) {
        memcpy(batch->operations, list, count * sizeof(*list));
    }
    if (!buckets_make(batch, &places, arena) ||
        !keys_make(batch, &places, arena)) {
        return false;
    }
    bucket_batch_forget(batch);
    return true;
}


/* ---- deciding -------------------------------------------------------- */

void
bucket_batch_forget(struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        batch->buckets[i].found = (struct bucket){.expires_us = BUCKET_NEVER};
    }
    for (size_t i = 0; i < batch->key_count; i++) {
        batch->keys[i].is_known = false;
    }
}


static bool
bucket_equal(const struct bucket *a, const struct bucket *b)
{
    return a->exists == b->exists && a->added == b->added &&
           a->subbed == b->subbed && a->expires_us == b->expires_us;
}


static struct operation_result
result_of(struct bucket *bucket, const struct bucket_write *write,
          int64_t now_us)
{
    struct operation_result result = {.end = OPERATION_DECIDED};

    result.outcome = bucket_apply(bucket, write, now_us);
    if (result.outcome == BUCKET_APPLIED) {
        result.added = bucket->added;
        result.subbed = bucket->subbed;
    }
    return result;
}


/* What the first operation with the key was answered, now or long ago. */
static struct operation_result
result_again(const struct batch_key *key, const struct operation *operation)
{
    bool is_same = memcmp(key->digest, operation->request.digest,
                          sizeof(key->digest)) == 0;

    return is_same ? key->result
                   : (struct operation_result){.end = OPERATION_KEY_TAKEN};
}


static void
decide_one(struct bucket_batch *batch, size_t index, int64_t now_us)
{
    struct operation *operation = batch->operations[index];
    struct bucket *bucket = &batch->buckets[batch->bucket_of[index]].now;
    struct batch_key *key = batch->key_of[index] == BUCKET_BATCH_NO_KEY
                                ? NULL
                                : &batch->keys[batch->key_of[index]];

    if (key != NULL && (key->is_known || key->is_fresh)) {
        operation->result = result_again(key, operation);
        return;
    }
    operation->result = result_of(bucket, &operation->request.write, now_us);
    if (key != NULL) {
        memcpy(key->digest, operation->request.digest, sizeof(key->digest));
        key->result = operation->result;
        key->is_fresh = true;
    }
}


void
bucket_batch_decide(struct bucket_batch *batch, int64_t now_us)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        batch->buckets[i].now = batch->buckets[i].found;
    }
    for (size_t i = 0; i < batch->key_count; i++) {
        batch->keys[i].is_fresh = false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        decide_one(batch, i, now_us);
    }
    for (size_t i = 0; i < batch->bucket_count; i++) {
        struct batch_bucket *bucket = &batch->buckets[i];

        bucket->is_changed = !bucket_equal(&bucket->now, &bucket->found);
    }
}
