/*
 * billing_rows.c - rows, unique values and closes of a transaction: found,
 * made, sorted. billing_projection.c leads them through it.
 *
 *   (tenant, metric, period, customer, group key) -> [map] -> row
 *   (row, value) ---------------------------------> [map] -> unique
 *   (tenant, metric, period) ---------------------> [map] -> close
 *
 * Memory is kept from one transaction to the next, until it is trimmed.
 */

#include "project/billing_rows.h"

#include <stdlib.h>

#define CLOSE_KEY_SIZE_MAX \
    (sizeof(int64_t) + 4 + METER_TENANT_SIZE_MAX + METER_NAME_SIZE_MAX)
#define ROW_KEY_SIZE_MAX \
    (METER_DIGEST_SIZE + CLOSE_KEY_SIZE_MAX + METER_CUSTOMER_SIZE_MAX)
#define UNIQUE_KEY_SIZE_MAX \
    (sizeof(struct billing_row *) + BILLING_UNIQUE_SIZE_MAX)

static size_t
put_size(char *out, size_t size)
{
    out[0] = (char)(size & 0xff);
    out[1] = (char)(size >> 8);
    return 2;
}

static size_t
put_bytes(char *out, const void *data, size_t size)
{
    memcpy(out, data, size);
    return size;
}

/* Injective: period, sizes and bytes of tenant and metric. */
static size_t
close_key(struct meter_str tenant, const struct billing_change *change,
          char *out)
{
    struct meter_str metric = change->meter->metric;
    size_t at = put_bytes(out, &change->period_us, sizeof(change->period_us));

    CHECK(tenant.size <= METER_TENANT_SIZE_MAX);
    CHECK(metric.size <= METER_NAME_SIZE_MAX);
    at += put_size(out + at, tenant.size);
    at += put_bytes(out + at, tenant.data, tenant.size);
    at += put_size(out + at, metric.size);
    return at + put_bytes(out + at, metric.data, metric.size);
}

/* The digest, the key of the close, the customer. */
static size_t
row_key(struct meter_str tenant, const struct billing_change *change, char *out)
{
    size_t at = put_bytes(out, change->group.key, METER_DIGEST_SIZE);

    CHECK(change->customer.size <= METER_CUSTOMER_SIZE_MAX);
    at += close_key(tenant, change, out + at);
    return at +
           put_bytes(out + at, change->customer.data, change->customer.size);
}

/* Where the row is, which tells it from all others; then the value. */
static size_t
unique_key(const struct billing_row *row, struct meter_str value, char *out)
{
    size_t at = put_bytes(out, &row, sizeof(row));

    CHECK(value.size <= BILLING_UNIQUE_SIZE_MAX);
    return at + put_bytes(out + at, value.data, value.size);
}

static bool
close_is_closed(const struct billing_rows *rows, struct meter_str tenant,
                const struct billing_change *change)
{
    char bytes[CLOSE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, 0};
    const struct billing_close *close;

    if (rows->closes.count == 0) {
        return false;
    }
    key.size = close_key(tenant, change, bytes);
    close = map_find(&rows->close_map, key);
    return close != NULL && close->is_closed;
}

static struct billing_row *
row_add(struct billing_rows *rows, struct meter_str tenant,
        const struct billing_change *change, struct meter_str key)
{
    struct billing_row *row = arena_zalloc(&rows->arena, sizeof(*row));

    if (row == NULL || !arena_copy(&rows->arena, key, &row->key)) {
        return NULL;
    }
    row->tenant = tenant;
    row->metric = change->meter->metric;
    row->period_us = change->period_us;
    row->customer = change->customer;
    memcpy(row->group_key, change->group.key, METER_DIGEST_SIZE);
    row->groups = change->group.json;
    row->tally.watermark_us = INT64_MIN;
    row->step_limit_us = INT64_MAX;
    row->is_closed = close_is_closed(rows, tenant, change);
    if (map_add(&rows->row_map, row->key, row) != row) {
        return NULL;
    }
    vec_push(&rows->rows, row);
    return row;
}

struct billing_row *
billing_row_take(struct billing_rows *rows, struct meter_str tenant,
                 const struct billing_change *change)
{
    char bytes[ROW_KEY_SIZE_MAX];
    struct meter_str key = {bytes, row_key(tenant, change, bytes)};
    struct billing_row *row = map_find(&rows->row_map, key);

    return row != NULL ? row : row_add(rows, tenant, change, key);
}

struct billing_row *
billing_row_find(const struct billing_rows *rows, struct meter_str tenant,
                 const struct billing_change *change)
{
    char bytes[ROW_KEY_SIZE_MAX];
    struct meter_str key = {bytes, row_key(tenant, change, bytes)};

    return map_find(&rows->row_map, key);
}

static struct billing_unique *
unique_add(struct billing_rows *rows, struct billing_row *row,
           struct meter_str value, struct meter_str key)
{
    struct billing_unique *unique = arena_zalloc(&rows->arena, sizeof(*unique));

    if (unique == NULL || !arena_copy(&rows->arena, key, &unique->key)) {
        return NULL;
    }
    unique->row = row;
    unique->value = value;
    if (map_add(&rows->unique_map, unique->key, unique) != unique) {
        return NULL;
    }
    vec_push(&rows->uniques, unique);
    return unique;
}

struct billing_unique *
billing_unique_take(struct billing_rows *rows, struct billing_row *row,
                    struct meter_str value)
{
    char bytes[UNIQUE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, unique_key(row, value, bytes)};
    struct billing_unique *unique = map_find(&rows->unique_map, key);

    return unique != NULL ? unique : unique_add(rows, row, value, key);
}

struct billing_unique *
billing_unique_find(const struct billing_rows *rows,
                    const struct billing_row *row, struct meter_str value)
{
    char bytes[UNIQUE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, unique_key(row, value, bytes)};

    return map_find(&rows->unique_map, key);
}

bool
billing_close_take(struct billing_rows *rows, struct meter_str tenant,
                   const struct billing_change *change)
{
    char bytes[CLOSE_KEY_SIZE_MAX];
    struct meter_str key = {bytes, close_key(tenant, change, bytes)};
    struct billing_close *close;

    CHECK(rows->rows.count == 0);
    if (map_find(&rows->close_map, key) != NULL) {
        return true;
    }
    close = arena_zalloc(&rows->arena, sizeof(*close));
    if (close == NULL || !arena_copy(&rows->arena, key, &close->key)) {
        return false;
    }
    close->tenant = tenant;
    close->metric = change->meter->metric;
    close->period_us = change->period_us;
    if (map_add(&rows->close_map, close->key, close) != close) {
        return false;
    }
    vec_push(&rows->closes, close);
    return true;
}

static int
rows_compare(const void *left, const void *right)
{
    const struct billing_row *a = *(void *const *)left;
    const struct billing_row *b = *(void *const *)right;
    int order = meter_str_compare(a->tenant, b->tenant);

    if (order == 0) {
        order = meter_str_compare(a->metric, b->metric);
    }
    if (order == 0) {
        order = (a->period_us > b->period_us) - (a->period_us < b->period_us);
    }
    if (order == 0) {
        order = meter_str_compare(a->customer, b->customer);
    }
    if (order == 0) {
        order = memcmp(a->group_key, b->group_key, METER_DIGEST_SIZE);
    }
    return order;
}

/* Behind rows_compare: rows have their numbers. */
static int
uniques_compare(const void *left, const void *right)
{
    const struct billing_unique *a = *(void *const *)left;
    const struct billing_unique *b = *(void *const *)right;
    int order =
        (a->row->number > b->row->number) - (a->row->number < b->row->number);

    return order != 0 ? order : meter_str_compare(a->value, b->value);
}

static void
list_sort(void *items, size_t count, int (*compare)(const void *, const void *))
{
    if (!projection_is_unsorted && count > 1) {
        qsort(items, count, sizeof(void *), compare);
    }
}

void
billing_rows_sort(struct billing_rows *rows)
{
    list_sort(rows->rows.items, rows->rows.count, rows_compare);
    for (size_t i = 0; i < rows->rows.count; i++) {
        billing_row_at(rows, i)->number = i;
    }
    list_sort(rows->uniques.items, rows->uniques.count, uniques_compare);
}
