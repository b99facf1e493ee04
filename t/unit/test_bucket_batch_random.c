/*
 * test_bucket_batch_random.c - random batches against the same operations one
 * by one: every answer, every row, every answer that is kept.
 *
 *   plan -> model: plain rows, one operation after the other
 *        -> batch: make, findings from the store, decide -> store
 *
 * Few buckets, amounts at the limits, ends around now, keys used again within
 * a batch and across, for the same request and for others.
 */

#include "buckets/bucket_batch.c"

#include "json_fixture.h"

#include "meter_decimal.h"
#include "meter_random.h"

#define OPERATIONS  1000000
#define WORLD_SIZE  20000 /* operations until all starts from nothing */
#define ROWS        24
#define TENANTS     3
#define KEYS        8000 /* numbers of a world */
#define RECENT_KEYS 40
#define NO_KEY      -1

/* Names are in another order than their tenants. */
static const char *const tenants[TENANTS] = {"b", "\xc3\xa9t\xc3\xa9", "a"};
static const char *const names[] = {"z", "a", "hits.per-user", "hits.per-use"};

/* What is asked for. */
struct plan {
    int row;
    enum bucket_kind kind;
    int64_t amount;
    int64_t end_us; /* BUCKET_NEVER: none */
    int key;        /* NO_KEY: none */
};

struct model_row {
    bool is_there;
    meter_int128 added;
    meter_int128 subbed;
    bool has_end;
    int64_t end_us;
};

struct model_answer {
    bool is_given;
    struct plan plan;
    struct operation_result result;
};

/* What a database would hold. */
struct stored_answer {
    bool is_known;
    uint8_t digest[METER_DIGEST_SIZE];
    struct operation_result result;
};

static struct meter_random dice;
static int64_t now_us;
static int key_next;

static struct model_row model_rows[ROWS];
static struct model_answer model_answers[KEYS][TENANTS];
static struct bucket stored_rows[ROWS];
static struct stored_answer stored_answers[KEYS][TENANTS];

static struct plan plans[BUCKET_BATCH_MAX];
static struct operation *operations[BUCKET_BATCH_MAX];
static struct operation_result expected[BUCKET_BATCH_MAX];
static struct model_row rows_before[ROWS];

/* Each of them must have happened, often. */
static struct {
    size_t applied, negative, overflow, taken, repeated, restarted, unchanged;
} seen;


/* ---- plans ----------------------------------------------------------- */

static struct bucket_key
row_key(int row)
{
    int rest = row / TENANTS;

    return (struct bucket_key){
        .tenant = str_of(tenants[row % TENANTS]),
        .name = str_of(names[rest % 4]),
        .duration_s = rest / 4 == 0 ? 0 : 60,
        .start_us = rest / 4 == 0 ? 0 : -60000000,
    };
}


static int64_t
random_amount(void)
{
    int64_t near = (int64_t)random_below(&dice, 4);

    switch (random_below(&dice, 8)) {
    case 0: return INT64_MAX - near;
    case 1: return INT64_MAX / 2 + near;
    case 2: return 1 + (int64_t)(random_u64(&dice) >> 2);
    default: return 1 + near;
    }
}


static int64_t
random_end(void)
{
    if (random_below(&dice, 8) != 0) {
        return BUCKET_NEVER;
    }
    return now_us + (int64_t)random_below(&dice, 60) - 10;
}


/* A new one, one of the last, or any. */
static int
random_key(void)
{
    uint64_t choice = random_below(&dice, 8);

    if (choice >= 4) {
        return NO_KEY;
    }
    if (choice < 2 && key_next < KEYS) {
        return key_next++;
    }
    if (key_next == 0) {
        return NO_KEY;
    }
    if (choice < 3) {
        int back = (int)random_below(&dice, RECENT_KEYS);

        return back < key_next ? key_next - 1 - back : 0;
    }
    return (int)random_below(&dice, (uint64_t)key_next);
}


static void
plan_make(struct plan *plan, size_t row_span, const struct plan *earlier)
{
    const struct model_answer *answer;

    *plan = (struct plan){
        .row = (int)random_below(&dice, row_span),
        .kind = (enum bucket_kind)random_below(&dice, 3),
        .amount = random_amount(),
        .end_us = random_end(),
        .key = random_key(),
    };
    if (plan->kind == BUCKET_SET && random_below(&dice, 4) == 0) {
        plan->amount = 0;
    }
    if (plan->key == NO_KEY || random_below(&dice, 3) == 0) {
        return;
    }
    /* The very same request again, of this batch or of one before. */
    answer = &model_answers[plan->key][plan->row % TENANTS];
    if (answer->is_given) {
        *plan = answer->plan;
    } else if (earlier != NULL && earlier->key != NO_KEY) {
        *plan = *earlier;
    }
}


static struct operation *
plan_operation(const struct plan *plan)
{
    struct operation_request request = {
        .key = row_key(plan->row),
        .write = {plan->kind, plan->amount, plan->end_us},
    };
    struct operation *operation;
    char key[16];

    if (plan->key != NO_KEY) {
        int size = snprintf(key, sizeof(key), "%d", plan->key);

        request.idempotency_key = (struct meter_str){key, (size_t)size};
    }
    memcpy(request.digest, &plan->row, sizeof(plan->row));
    memcpy(request.digest + 4, &plan->kind, sizeof(plan->kind));
    memcpy(request.digest + 8, &plan->amount, sizeof(plan->amount));
    memcpy(request.digest + 16, &plan->end_us, sizeof(plan->end_us));
    operation = operation_create(&request, NULL, NULL);
    assert_non_null(operation);
    return operation;
}


/* ---- the model ------------------------------------------------------- */

static enum bucket_outcome
model_write(const struct plan *plan)
{
    struct model_row row = model_rows[plan->row];
    meter_int128 amount = plan->amount;

    if (row.is_there && row.has_end && row.end_us <= now_us) {
        row = (struct model_row){.is_there = false};
        seen.restarted++;
    }
    if (plan->kind == BUCKET_SET) {
        amount -= row.added - row.subbed;
    }
    if (plan->kind == BUCKET_DECREMENT) {
        row.subbed += amount;
    } else if (amount > 0) {
        row.added += amount;
    } else {
        row.subbed -= amount;
    }
    if (row.subbed > row.added) {
        return BUCKET_NEGATIVE;
    }
    if (row.added > INT64_MAX) {
        return BUCKET_OVERFLOW;
    }
    if (plan->kind != BUCKET_DECREMENT && plan->end_us != BUCKET_NEVER &&
        (!row.has_end || plan->end_us > row.end_us)) {
        row.has_end = true;
        row.end_us = plan->end_us;
    }
    row.is_there = true;
    model_rows[plan->row] = row;
    return BUCKET_APPLIED;
}


static bool
plan_equal(const struct plan *a, const struct plan *b)
{
    return a->row == b->row && a->kind == b->kind && a->amount == b->amount &&
           a->end_us == b->end_us;
}


static struct operation_result
model_run(const struct plan *plan)
{
    struct model_answer *answer =
        plan->key == NO_KEY ? NULL
                            : &model_answers[plan->key][plan->row % TENANTS];
    struct operation_result result = {.end = OPERATION_DECIDED};

    if (answer != NULL && answer->is_given) {
        if (!plan_equal(&answer->plan, plan)) {
            seen.taken++;
            return (struct operation_result){.end = OPERATION_KEY_TAKEN};
        }
        seen.repeated++;
        return answer->result;
    }
    result.outcome = model_write(plan);
    if (result.outcome == BUCKET_APPLIED) {
        result.added = (int64_t)model_rows[plan->row].added;
        result.subbed = (int64_t)model_rows[plan->row].subbed;
    }
    seen.applied += result.outcome == BUCKET_APPLIED;
    seen.negative += result.outcome == BUCKET_NEGATIVE;
    seen.overflow += result.outcome == BUCKET_OVERFLOW;
    if (answer != NULL) {
        *answer = (struct model_answer){true, *plan, result};
    }
    return result;
}


/* ---- the store ------------------------------------------------------- */

static int
row_of(const struct bucket_key *key)
{
    for (int row = 0; row < ROWS; row++) {
        struct bucket_key other = row_key(row);

        if (meter_str_equal(other.tenant, key->tenant) &&
            meter_str_equal(other.name, key->name) &&
            other.duration_s == key->duration_s &&
            other.start_us == key->start_us) {
            return row;
        }
    }
    fail_msg("no such row");
    return -1;
}


static struct stored_answer *
stored_answer(const struct batch_key *key)
{
    int number = 0;
    int tenant = 0;

    for (size_t i = 0; i < key->key.size; i++) {
        number = number * 10 + (key->key.data[i] - '0');
    }
    while (!meter_str_equal(str_of(tenants[tenant]), key->tenant)) {
        tenant++;
    }
    return &stored_answers[number][tenant];
}


static void
findings_tell(struct bucket_batch *batch)
{
    bucket_batch_forget(batch);
    for (size_t i = 0; i < batch->bucket_count; i++) {
        const struct bucket *row = &stored_rows[row_of(&batch->buckets[i].key)];

        if (row->exists) {
            batch->buckets[i].found = *row;
        }
    }
    for (size_t i = 0; i < batch->key_count; i++) {
        const struct stored_answer *answer = stored_answer(&batch->keys[i]);

        if (answer->is_known) {
            batch->keys[i].is_known = true;
            memcpy(batch->keys[i].digest, answer->digest, METER_DIGEST_SIZE);
            batch->keys[i].result = answer->result;
        }
    }
}


/* A first try that comes to nothing must not show. */
static void
findings_invent(struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        batch->buckets[i].found = (struct bucket){true, 9, 1, now_us + 1};
    }
    for (size_t i = 0; i < batch->key_count; i++) {
        batch->keys[i].is_known = random_below(&dice, 2) == 0;
    }
}


static void
batch_store(const struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        const struct batch_bucket *bucket = &batch->buckets[i];

        if (bucket->is_changed) {
            stored_rows[row_of(&bucket->key)] = bucket->now;
        } else {
            seen.unchanged++;
        }
    }
    for (size_t i = 0; i < batch->key_count; i++) {
        const struct batch_key *key = &batch->keys[i];
        struct stored_answer *answer = stored_answer(key);

        assert_true(key->is_known != key->is_fresh);
        if (key->is_fresh) {
            assert_false(answer->is_known);
            answer->is_known = true;
            memcpy(answer->digest, key->digest, METER_DIGEST_SIZE);
            answer->result = key->result;
        }
    }
}


/* ---- both ------------------------------------------------------------ */

static bool
result_equal(const struct operation_result *a, const struct operation_result *b)
{
    return a->end == b->end && a->outcome == b->outcome &&
           a->added == b->added && a->subbed == b->subbed;
}


static bool
row_equal(const struct model_row *a, const struct model_row *b)
{
    return a->is_there == b->is_there && a->added == b->added &&
           a->subbed == b->subbed && a->has_end == b->has_end &&
           (!a->has_end || a->end_us == b->end_us);
}


/* In order, once each, and written exactly where the model has changed. */
static void
assert_buckets(const struct bucket_batch *batch)
{
    for (size_t i = 0; i < batch->bucket_count; i++) {
        const struct batch_bucket *bucket = &batch->buckets[i];
        int row = row_of(&bucket->key);

        assert_int_equal(bucket->is_changed,
                         !row_equal(&rows_before[row], &model_rows[row]));
        if (i > 0) {
            assert_true(
                bucket_key_compare(&batch->buckets[i - 1].key, &bucket->key) < 0);
        }
    }
}


static void
assert_rows(void)
{
    for (int row = 0; row < ROWS; row++) {
        const struct model_row *model = &model_rows[row];
        struct bucket is = {
            model->is_there,
            (int64_t)model->added,
            (int64_t)model->subbed,
            model->has_end ? model->end_us : BUCKET_NEVER,
        };

        if (is.exists != stored_rows[row].exists ||
            (is.exists && (is.added != stored_rows[row].added ||
                           is.subbed != stored_rows[row].subbed ||
                           is.expires_us != stored_rows[row].expires_us))) {
            fail_msg("row %d: %lld - %lld, not %lld - %lld", row,
                     (long long)stored_rows[row].added,
                     (long long)stored_rows[row].subbed, (long long)is.added,
                     (long long)is.subbed);
        }
    }
}


static void
run_batch(size_t count)
{
    size_t row_span = random_below(&dice, 2) == 0 ? 3 : ROWS;
    struct bucket_batch batch;

    now_us += (int64_t)random_below(&dice, 5);
    memcpy(rows_before, model_rows, sizeof(rows_before));
    for (size_t i = 0; i < count; i++) {
        plan_make(&plans[i], row_span,
                  i == 0 ? NULL : &plans[random_below(&dice, i)]);
        operations[i] = plan_operation(&plans[i]);
        expected[i] = model_run(&plans[i]);
    }
    assert_true(bucket_batch_make(&batch, operations, count, &arena));
    if (random_below(&dice, 8) == 0) {
        findings_invent(&batch);
        bucket_batch_decide(&batch, now_us + 7);
    }
    findings_tell(&batch);
    bucket_batch_decide(&batch, now_us);
    assert_buckets(&batch);
    for (size_t i = 0; i < count; i++) {
        if (!result_equal(&operations[i]->result, &expected[i])) {
            fail_msg("operation %zu of %zu: kind %d, end %d, outcome %d", i,
                     count, plans[i].kind, operations[i]->result.end,
                     operations[i]->result.outcome);
        }
    }
    batch_store(&batch);
    assert_rows();
    for (size_t i = 0; i < count; i++) {
        operation_free(operations[i]);
    }
    arena_reset(&arena);
}


static void
batches__random__as_one_by_one(void **state)
{
    size_t left = 0;

    (void)state;
    dice.state = 20240315;
    for (size_t done = 0; done < OPERATIONS;) {
        size_t count = random_below(&dice, 200) == 0
                           ? BUCKET_BATCH_MAX
                           : 1 + random_below(&dice, 64);

        if (left < count) {
            memset(model_rows, 0, sizeof(model_rows));
            memset(model_answers, 0, sizeof(model_answers));
            memset(stored_rows, 0, sizeof(stored_rows));
            memset(stored_answers, 0, sizeof(stored_answers));
            key_next = 0;
            now_us = (int64_t)random_below(&dice, 1000) - 500;
            left = WORLD_SIZE;
        }
        run_batch(count);
        left -= count;
        done += count;
    }
    print_message("# applied %zu, negative %zu, overflow %zu, taken %zu, "
                  "repeated %zu, restarted %zu, unchanged %zu\n",
                  seen.applied, seen.negative, seen.overflow, seen.taken,
                  seen.repeated, seen.restarted, seen.unchanged);
    assert_true(seen.applied > OPERATIONS / 10);
    assert_true(seen.negative > OPERATIONS / 100);
    assert_true(seen.overflow > OPERATIONS / 100);
    assert_true(seen.taken > OPERATIONS / 100);
    assert_true(seen.repeated > OPERATIONS / 100);
    assert_true(seen.restarted > OPERATIONS / 100);
    assert_true(seen.unchanged > OPERATIONS / 100);
}


static const struct CMUnitTest tests[] = {
    TEST(batches__random__as_one_by_one),
};

RUN_TAP(tests)
