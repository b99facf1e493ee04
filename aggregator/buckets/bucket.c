/*
 * bucket.c - which bucket an instant belongs to, and what a write makes of it.
 *
 * added only grows, and subbed never passes it: while net is looked at first,
 * only added can leave its 64 bits, even where net is small.
 */

#include "buckets/bucket.h"

#include "meter_time.h"

static bool
is_name_byte(char byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') ||
           (byte >= '0' && byte <= '9') || byte == '.' || byte == '_' ||
           byte == '~' || byte == '-';
}

bool
bucket_is_name(struct meter_str name)
{
    if (name.size == 0 || name.size > BUCKET_NAME_SIZE_MAX ||
        meter_str_equal(name, METER_STR(".")) ||
        meter_str_equal(name, METER_STR(".."))) {
        return false;
    }
    for (size_t i = 0; i < name.size; i++) {
        if (!is_name_byte(name.data[i])) {
            return false;
        }
    }
    return true;
}

int64_t
bucket_start_us(int64_t ts_us, int64_t duration_s)
{
    CHECK(duration_s >= 0 && duration_s <= BUCKET_DURATION_MAX);
    if (duration_s == 0) {
        return 0;
    }
    return meter_time_bucket(ts_us, duration_s * METER_TIME_SECOND);
}

static int
order_int(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

int
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

bool
bucket_is_live(const struct bucket *bucket, int64_t now_us)
{
    return bucket->exists && now_us < bucket->expires_us;
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

enum bucket_outcome
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
