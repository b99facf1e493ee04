/*
 * bucket_rows.c - see bucket_rows.h. Arrays go column by column.
 */

#include "buckets/bucket_rows.h"


/* ---- what is asked ----------------------------------------------------- */

typedef bool (*is_meant_fn)(const struct batch_bucket *bucket, int64_t now_us);

static bool
is_any(const struct batch_bucket *bucket, int64_t now_us)
{
    (void)bucket;
    (void)now_us;
    return true;
}


static bool
is_changed(const struct batch_bucket *bucket, int64_t now_us)
{
    (void)now_us;
    return bucket->is_changed;
}


static bool
is_gone(const struct batch_bucket *bucket, int64_t now_us)
{
    return !bucket->is_changed && !bucket_is_live(&bucket->found, now_us);
}


enum column {
    COLUMN_TENANT,
    COLUMN_NAME,
    COLUMN_DURATION,
    COLUMN_START,
    COLUMN_ADDED,
    COLUMN_SUBBED,
    COLUMN_EXPIRES,
    COLUMNS
};

static const enum pg_type column_types[COLUMNS] = {
    [COLUMN_TENANT] = PG_TEXT,         [COLUMN_NAME] = PG_TEXT,
    [COLUMN_DURATION] = PG_INT8,       [COLUMN_START] = PG_TIMESTAMPTZ,
    [COLUMN_ADDED] = PG_INT8,          [COLUMN_SUBBED] = PG_INT8,
    [COLUMN_EXPIRES] = PG_TIMESTAMPTZ,
};

static void
field_put(const struct batch_bucket *bucket, enum column column,
          struct buf *out)
{
    switch (column) {
    case COLUMN_TENANT: pg_put_text(out, bucket->key->tenant); return;
    case COLUMN_NAME: pg_put_text(out, bucket->key->name); return;
    case COLUMN_DURATION: pg_put_int8(out, bucket->key->duration_s); return;
    case COLUMN_START: pg_put_time(out, bucket->key->start_us); return;
    case COLUMN_ADDED: pg_put_int8(out, bucket->now.added); return;
    case COLUMN_SUBBED: pg_put_int8(out, bucket->now.subbed); return;
    case COLUMN_EXPIRES:
        if (bucket->now.expires_us == BUCKET_NEVER) {
            pg_put_null(out);
        } else {
            pg_put_time(out, bucket->now.expires_us);
        }
        return;
    case COLUMNS: break;
    }
    CHECK(false);
}


/* Columns up to `last`, of the buckets that are meant. False: of none. */
static bool
columns_put(const struct bucket_batch *batch, is_meant_fn is_meant,
            int64_t now_us, enum column last, struct pg_params *params)
{
    size_t count = 0;

    for (size_t i = 0; i < batch->bucket_count; i++) {
        count += is_meant(&batch->buckets[i], now_us);
    }
    if (count == 0) {
        return false;
    }
    pg_params_reset(params);
    for (enum column column = 0; column <= last; column++) {
        pg_param_array_begin(params, column_types[column], count);
        for (size_t i = 0; i < batch->bucket_count; i++) {
            if (is_meant(&batch->buckets[i], now_us)) {
                field_put(&batch->buckets[i], column, &params->bytes);
            }
        }
        pg_param_array_end(params);
    }
    return true;
}


void
bucket_rows_lock_put(const struct bucket_batch *batch, struct pg_params *params)
{
    CHECK(columns_put(batch, is_any, 0, COLUMN_START, params));
}


void
bucket_rows_add_put(const struct bucket_batch *batch, struct pg_params *params)
{
    bucket_rows_lock_put(batch, params);
    pg_param_array_begin(params, PG_INT8, batch->bucket_count);
    for (size_t i = 0; i < batch->bucket_count; i++) {
        pg_put_int8(&params->bytes, batch->buckets[i].amount);
    }
    pg_param_array_end(params);
}


void
bucket_rows_known_put(const struct bucket_batch *batch,
                      struct pg_params *params)
{
    pg_params_reset(params);
    pg_param_array_begin(params, PG_TEXT, batch->key_count);
    for (size_t i = 0; i < batch->key_count; i++) {
        pg_put_text(&params->bytes, batch->keys[i].tenant);
    }
    pg_param_array_end(params);
    pg_param_array_begin(params, PG_TEXT, batch->key_count);
    for (size_t i = 0; i < batch->key_count; i++) {
        pg_put_text(&params->bytes, batch->keys[i].key);
    }
    pg_param_array_end(params);
}


/* ---- what was found ---------------------------------------------------- */

/* Of the row among those asked for; false: of none. */
static bool
place_take(const void *result, int row, size_t count, size_t *out)
{
    int32_t place = pg_get_int4(result, row, 0);

    if (place < 1 || (size_t)place > count) {
        return false;
    }
    *out = (size_t)place - 1;
    return true;
}


bool
bucket_rows_held_take(struct bucket_batch *batch, const void *result)
{
    int rows = pg_row_count(result);

    if ((size_t)rows != batch->bucket_count) {
        return false;
    }
    for (int row = 0; row < rows; row++) {
        size_t place;

        if (!place_take(result, row, batch->bucket_count, &place)) {
            return false;
        }
        batch->buckets[place].found = (struct bucket){
            .exists = true,
            .added = pg_get_int8(result, row, 1),
            .subbed = pg_get_int8(result, row, 2),
            .expires_us = pg_is_null(result, row, 3)
                              ? BUCKET_NEVER
                              : pg_get_time(result, row, 3),
        };
    }
    return true;
}


/* In the order of the buckets. */
bool
bucket_rows_add_take(struct bucket_batch *batch, const void *result)
{
    int rows = pg_row_count(result);

    if ((size_t)rows != batch->bucket_count) {
        return false;
    }
    for (int row = 0; row < rows; row++) {
        batch->buckets[row].now = (struct bucket){
            .exists = true,
            .added = pg_get_int8(result, row, 0),
            .subbed = pg_get_int8(result, row, 1),
        };
    }
    return true;
}


static bool
known_take(struct batch_key *key, const void *result, int row)
{
    struct meter_str digest = pg_get_bytes(result, row, 1);
    int32_t outcome = pg_get_int4(result, row, 2);

    if (digest.size != sizeof(key->digest) || outcome < BUCKET_APPLIED ||
        outcome > BUCKET_OVERFLOW) {
        return false;
    }
    key->is_known = true;
    memcpy(key->digest, digest.data, sizeof(key->digest));
    key->result = (struct operation_result){
        .end = OPERATION_DECIDED,
        .outcome = (enum bucket_outcome)outcome,
    };
    if (outcome == BUCKET_APPLIED) {
        key->result.added = pg_get_int8(result, row, 3);
        key->result.subbed = pg_get_int8(result, row, 4);
    }
    return true;
}


bool
bucket_rows_known_take(struct bucket_batch *batch, const void *result)
{
    int rows = pg_row_count(result);

    for (int row = 0; row < rows; row++) {
        size_t place;

        if (!place_take(result, row, batch->key_count, &place) ||
            !known_take(&batch->keys[place], result, row)) {
            return false;
        }
    }
    return true;
}


/* ---- what is written --------------------------------------------------- */

bool
bucket_rows_changed_put(const struct bucket_batch *batch,
                        struct pg_params *params)
{
    return columns_put(batch, is_changed, 0, COLUMN_EXPIRES, params);
}


bool
bucket_rows_gone_put(const struct bucket_batch *batch, int64_t now_us,
                     struct pg_params *params)
{
    return columns_put(batch, is_gone, now_us, COLUMN_START, params);
}


enum answer_column {
    ANSWER_TENANT,
    ANSWER_KEY,
    ANSWER_DIGEST,
    ANSWER_OUTCOME,
    ANSWER_ADDED,
    ANSWER_SUBBED,
    ANSWER_COLUMNS
};

static const enum pg_type answer_types[ANSWER_COLUMNS] = {
    [ANSWER_TENANT] = PG_TEXT,  [ANSWER_KEY] = PG_TEXT,
    [ANSWER_DIGEST] = PG_BYTEA, [ANSWER_OUTCOME] = PG_INT4,
    [ANSWER_ADDED] = PG_INT8,   [ANSWER_SUBBED] = PG_INT8,
};

/* Only with what was applied. */
static void
number_put(const struct batch_key *key, int64_t number, struct buf *out)
{
    if (key->result.outcome == BUCKET_APPLIED) {
        pg_put_int8(out, number);
    } else {
        pg_put_null(out);
    }
}


static void
answer_field_put(const struct batch_key *key, enum answer_column column,
                 struct buf *out)
{
    switch (column) {
    case ANSWER_TENANT: pg_put_text(out, key->tenant); return;
    case ANSWER_KEY: pg_put_text(out, key->key); return;
    case ANSWER_DIGEST:
        pg_put_bytes(out, (struct meter_str){(const char *)key->digest,
                                             sizeof(key->digest)});
        return;
    case ANSWER_OUTCOME: pg_put_int4(out, key->result.outcome); return;
    case ANSWER_ADDED: number_put(key, key->result.added, out); return;
    case ANSWER_SUBBED: number_put(key, key->result.subbed, out); return;
    case ANSWER_COLUMNS: break;
    }
    CHECK(false);
}


bool
bucket_rows_answers_put(const struct bucket_batch *batch, int64_t now_us,
                        struct pg_params *params)
{
    size_t count = 0;

    for (size_t i = 0; i < batch->key_count; i++) {
        count += batch->keys[i].is_fresh;
    }
    if (count == 0) {
        return false;
    }
    pg_params_reset(params);
    for (enum answer_column column = 0; column < ANSWER_COLUMNS; column++) {
        pg_param_array_begin(params, answer_types[column], count);
        for (size_t i = 0; i < batch->key_count; i++) {
            if (batch->keys[i].is_fresh) {
                answer_field_put(&batch->keys[i], column, &params->bytes);
            }
        }
        pg_param_array_end(params);
    }
    pg_param_time(params, now_us);
    return true;
}
