/*
 * bucket.h - buckets of the counters API: which one, and what a write makes
 * of it. Pure.
 *
 *   timestamp, duration -> [bucket_start_us] -> key
 *   bucket, write, now -> [bucket_apply] -> bucket, or nothing has changed
 *
 * A bucket holds what was ever added and subtracted; net is the difference
 * and never negative. One that has expired is as if it were not there: the
 * next increment starts from 0.
 */

#ifndef BUCKETS_BUCKET_H
#define BUCKETS_BUCKET_H

#include "base/check.h"
#include "meter_types.h"

#define BUCKET_NAME_SIZE_MAX 255
/* A thousand years: a start lies in what a timestamptz can be. */
#define BUCKET_DURATION_MAX INT64_C(31622400000)
/* Of instants that are not set. */
#define BUCKET_NEVER INT64_MAX

struct bucket_key {
    struct meter_str tenant;
    struct meter_str name;
    int64_t duration_s; /* 0: one bucket for all time */
    int64_t start_us;
};

struct bucket {
    bool exists; /* a row; it may have expired */
    int64_t added;
    int64_t subbed;
    int64_t expires_us; /* BUCKET_NEVER: does not */
};

enum bucket_kind { BUCKET_INCREMENT, BUCKET_DECREMENT, BUCKET_SET };

struct bucket_write {
    enum bucket_kind kind;
    int64_t amount;     /* > 0; of SET the target, >= 0 */
    int64_t expires_us; /* BUCKET_NEVER: not given. DECREMENT: not looked at */
};

/* As kept with an idempotency key: numbers are never given anew. */
enum bucket_outcome {
    BUCKET_APPLIED = 0,
    BUCKET_NEGATIVE = 1, /* net would be; nothing has changed */
    BUCKET_OVERFLOW = 2, /* added or subbed would leave 64 bits; likewise */
};

/* [A-Za-z0-9._~-]{1,255}, but neither "." nor "..". */
bool bucket_is_name(struct meter_str name);

/* Start of the bucket that holds the instant; duration_s within its limits. */
int64_t bucket_start_us(int64_t ts_us, int64_t duration_s);

/* By tenant and name, bytewise, duration and start: the order of locking. */
int bucket_key_compare(const struct bucket_key *a, const struct bucket_key *b);

/* Expired at now: from the very instant on. */
bool bucket_is_live(const struct bucket *bucket, int64_t now_us);

/*
 * Increments and sets move the end to the later of the two; where only one of
 * them has an end, that is it. Sets move only added or only subbed, by the
 * difference. Decrements leave the end alone.
 */
enum bucket_outcome
bucket_apply(struct bucket *bucket, const struct bucket_write *write,
             int64_t now_us);

#endif
