/*
 * bucket_batch.c - operations decided together, one by one.
 *
 *   lane -> [make] -> buckets and keys in the order of locking
 *        -> [decide] -> result of each operation, rows to write
 *
 * Buckets and keys are found by sorting: operations with the same one come to
 * stand side by side, the earliest first. Deciding is one walk in the order of
 * arrival. Nothing here talks to the database.
 */

#include "buckets/bucket_batch.h"

#include <endian.h>

#define FEW 24 /* places that are sorted by comparing */


/* ---- what a write makes of a bucket ----------------------------------- */

/*
 * added only grows, and subbed never passes it: while net is looked at first,
 * only added can leave its 64 bits, even where net is small.
 */
static int
order_int(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

/* By tenant and name, bytewise, duration and start: the order of locking. */
static int
bucket_key_compare(const struct bucket_key *a, const struct bucket_key *b)
{
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->name, b->name);
    }
    if (order == 0) {
        order = order_int(a->duration_s, b->duration_s);
    }
    return order == 0 ? order_int(a->start_us, b->start_us) : order;
}

static int64_t
later_end(int64_t a_us, int64_t b_us)
{
    if (a_us == BUCKET_NEVER || b_us == BUCKET_NEVER) {
        return a_us == BUCKET_NEVER ? b_us : a_us;
    }
    return a_us > b_us ? a_us : b_us;
}

static enum bucket_outcome
add(struct bucket *bucket, int64_t amount)
{
    return __builtin_add_overflow(bucket->added, amount, &bucket->added)
               ? BUCKET_OVERFLOW
               : BUCKET_APPLIED;
}

static enum bucket_outcome
subtract(struct bucket *bucket, int64_t amount)
{
    if (amount > bucket->added - bucket->subbed) {
        return BUCKET_NEGATIVE;
    }
    bucket->subbed += amount; /* not above added */
    return BUCKET_APPLIED;
}

static enum bucket_outcome
set(struct bucket *bucket, int64_t target)
{
    int64_t net = bucket->added - bucket->subbed;

    return target >= net ? add(bucket, target - net)
                         : subtract(bucket, net - target);
}

static enum bucket_outcome
change(struct bucket *bucket, const struct bucket_write *write)
{
    switch (write->kind) {
    case BUCKET_INCREMENT: return add(bucket, write->amount);
    case BUCKET_DECREMENT: return subtract(bucket, write->amount);
    case BUCKET_SET: break;
    }
    return set(bucket, write->amount);
}

/*
 * Increments and sets move the end to the later of the two; where only one of
 * them has an end, that is it. Sets move only added or only subbed, by the
 * difference. Decrements leave the end alone.
 */
static enum bucket_outcome
bucket_apply(struct bucket *bucket, const struct bucket_write *write,
             int64_t now_us)
{
    struct bucket next = {.exists = true, .expires_us = BUCKET_NEVER};
    enum bucket_outcome outcome;

    CHECK(write->amount > 0 ||
          (write->kind == BUCKET_SET && write->amount == 0));
    if (bucket_is_live(bucket, now_us)) {
        CHECK(bucket->subbed >= 0 && bucket->added >= bucket->subbed);
        next = *bucket;
    }
    outcome = change(&next, write);
    if (outcome != BUCKET_APPLIED) {
        return outcome;
    }
    if (write->kind != BUCKET_DECREMENT) {
        next.expires_us = later_end(next.expires_us, write->expires_us);
    }
    *bucket = next;
    return BUCKET_APPLIED;
}


/* ---- sorting by words ------------------------------------------------- */

/*
 * Keys such as the names of one tenant differ late. They are looked at in
 * words of eight bytes, compared as numbers, and never again from the front;
 * within a word, places are dealt out by byte, without a comparison. Equal
 * ones stay in the order they came in.
 */
struct word_place {
    uint64_t word; /* the one that is looked at */
    const void *item;
    uint32_t index; /* for the caller */
};

/*
 * Words of an item, in the order of its key. Items that are the same up to a
 * word both have a next one, or are equal.
 */
struct word_order {
    size_t (*count)(const void *item);
    uint64_t (*word)(const void *item, size_t number);
};

/*
 * Words of a text without NUL, bytewise and shorter first. A NUL ends the last
 * one: no text goes on where another has ended.
 */
static size_t
word_text_count(struct meter_str text)
{
    return text.size / sizeof(uint64_t) + 1;
}

static uint64_t
word_of_text(struct meter_str text, size_t number)
{
    size_t from = number * sizeof(uint64_t);
    size_t left = text.size - from;
    uint64_t word = 0;

    CHECK(from <= text.size);
    if (left >= sizeof(word)) {
        memcpy(&word, text.data + from, sizeof(word));
    } else if (left > 0) {
        memcpy(&word, text.data + from, left);
    }
    return be64toh(word);
}

/* Negative ones first. */
static uint64_t
word_of_int(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}

static void
word_sort_few(struct word_place *places, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct word_place place = places[i];
        size_t at = i;

        while (at > 0 && places[at - 1].word > place.word) {
            places[at] = places[at - 1];
            at--;
        }
        places[at] = place;
    }
}

/* By one byte of the word, in as many piles as it has values. */
static void
word_deal(const struct word_place *from, struct word_place *to, size_t count,
          unsigned shift)
{
    size_t starts[256] = {0};
    size_t start = 0;

    for (size_t i = 0; i < count; i++) {
        starts[from[i].word >> shift & 0xff]++;
    }
    for (size_t byte = 0; byte < 256; byte++) {
        size_t size = starts[byte];

        starts[byte] = start;
        start += size;
    }
    for (size_t i = 0; i < count; i++) {
        to[starts[from[i].word >> shift & 0xff]++] = from[i];
    }
}

/* The lowest byte first; differing has a bit wherever two words differ. */
static void
word_sort_many(struct word_place *places, struct word_place *spare,
               size_t count, uint64_t differing)
{
    struct word_place *from = places;
    struct word_place *to = spare;

    for (unsigned shift = 0; shift < 64; shift += 8) {
        struct word_place *dealt = to;

        if ((differing >> shift & 0xff) == 0) {
            continue;
        }
        word_deal(from, to, count, shift);
        to = from;
        from = dealt;
    }
    if (from != places) {
        memcpy(places, from, count * sizeof(*places));
    }
}

/* Words before this one are the same. */
static void
word_sort_from(struct word_place *places, struct word_place *spare,
               size_t count, const struct word_order *order, size_t number)
{
    uint64_t differing = 0;
    size_t from = 0;

    for (size_t i = 0; i < count; i++) {
        places[i].word = order->word(places[i].item, number);
        differing |= places[i].word ^ places[0].word;
    }
    if (differing != 0 && count <= FEW) {
        word_sort_few(places, count);
    } else if (differing != 0) {
        word_sort_many(places, spare, count, differing);
    }
    number++;
    for (size_t i = 1; i <= count; i++) {
        if (i < count && places[i].word == places[from].word) {
            continue;
        }
        if (i - from > 1 && number < order->count(places[from].item)) {
            word_sort_from(places + from, spare, i - from, order, number);
        }
        from = i;
    }
}

/* spare has as much room as places. */
static void
word_sort(struct word_place *places, struct word_place *spare, size_t count,
          const struct word_order *order)
{
    word_sort_from(places, spare, count, order, 0);
}


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

        if (bucket->key.name.data == NULL) {
            bucket->key = batch->operations[i]->request.key;
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
        key->is_applied = key->result.outcome == BUCKET_APPLIED;
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


/* ---- adding ----------------------------------------------------------- */

static bool
operation_is_plain(const struct operation_request *request)
{
    return request->write.kind == BUCKET_INCREMENT &&
           request->write.expires_us == BUCKET_NEVER &&
           request->idempotency_key.data == NULL;
}

bool
bucket_batch_add(struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        batch->buckets[i].amount = 0;
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct operation_request *request =
            &batch->operations[i]->request;
        struct batch_bucket *bucket = &batch->buckets[batch->bucket_of[i]];

        if (!operation_is_plain(request) ||
            __builtin_add_overflow(bucket->amount, request->write.amount,
                                   &bucket->amount)) {
            return false;
        }
    }
    return true;
}

void
bucket_batch_decide_added(struct bucket_batch *batch)
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
