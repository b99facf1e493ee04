/*
 * operation.h - one write of the counters API on its way.
 *
 *   words of a body -> [operation_read] -> request
 *   request -> [operation_create] -> queue -> batch -> outcome -> callback
 *
 * An operation owns its texts. It stands in at most one list.
 */

#ifndef BUCKETS_OPERATION_H
#define BUCKETS_OPERATION_H

#include "base/arena.h"
#include "base/check.h"
#include "base/json_reader.h"
#include "meter_event.h"
#include "meter_types.h"

#include <sys/queue.h>

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

#define OPERATION_KEY_SIZE_MAX 255 /* of an Idempotency-Key */

enum operation_word {
    OPERATION_DURATION,
    OPERATION_TIMESTAMP,
    OPERATION_EXPIRES,
    OPERATION_AMOUNT, /* of SET: the target */
    OPERATION_WORDS
};

/* "durationSeconds", ...: for increments and decrements, and for sets. */
extern const char *const operation_amount_words[OPERATION_WORDS];
extern const char *const operation_set_words[OPERATION_WORDS];

/* What is asked for; everything borrowed. */
struct operation_request {
    struct bucket_key key;
    struct bucket_write write;
    bool is_sync;                     /* not with the others in a batch */
    struct meter_str idempotency_key; /* data NULL: none */
    /* Of all that matters: endpoint, name, members as understood. */
    uint8_t digest[METER_DIGEST_SIZE];
};

/* [A-Za-z0-9._~-]{1,255}, but neither "." nor "..". */
bool bucket_is_name(struct meter_str name);

/* Start of the bucket that holds the instant; duration_s within its limits. */
int64_t bucket_start_us(int64_t ts_us, int64_t duration_s);

/*
 * The members of a body, values NULL where not given; out has tenant, name,
 * kind, is_sync and idempotency_key already. NULL, or the sentence of a 400,
 * in the arena or a literal.
 */
MUST_CHECK const char *
operation_read(const struct json_value *const values[OPERATION_WORDS],
               struct arena *arena, struct operation_request *out);

/* The same words of a query string, for reads; data NULL: not given. */
MUST_CHECK const char *
operation_duration_read(struct meter_str text, int64_t *out_s);
/* name: of the argument, for the sentence. A '+' may have become a space. */
MUST_CHECK const char *
operation_time_read(struct meter_str text, const char *name,
                    struct arena *arena, int64_t *out_us);
/* 1 to 255 visible ASCII characters. */
MUST_CHECK const char *operation_key_check(struct meter_str key);

enum operation_end {
    OPERATION_DECIDED,     /* outcome; committed, now or, with a key, before */
    OPERATION_KEY_TAKEN,   /* by another request with the same key */
    OPERATION_UNAVAILABLE, /* nothing has happened: 503 */
    OPERATION_UNKNOWN,     /* whether it was applied: 504 */
    OPERATION_FAILED       /* nothing has happened: 500 */
};

struct operation;

struct operation_result {
    enum operation_end end;
    enum bucket_outcome outcome; /* DECIDED */
    int64_t added;               /* APPLIED: right after this operation */
    int64_t subbed;
};

/* Once; the operation is freed after it. */
typedef void (*operation_cb)(void *asker, const struct operation_result *);

struct operation {
    TAILQ_ENTRY(operation) entry;
    bool is_listed;
    struct operation_request request; /* its texts are in bytes */
    uint64_t submitted_us;            /* monotonic */
    operation_cb cb;                  /* NULL: the asker is gone */
    void *asker;
    bool is_queued;                 /* not begun yet */
    struct operation_result result; /* once decided */
    char bytes[];
};

/* In the order of arrival; counted. */
struct operation_list {
    TAILQ_HEAD(operation_queue, operation) queue;
    size_t count;
};

struct operation *operation_create(const struct operation_request *request,
                                   operation_cb cb, void *asker);
/* Calls back unless the asker is gone, and frees. In no list any more. */
void operation_finish(struct operation *operation);
void operation_free(struct operation *operation);

/* ---- lists ------------------------------------------------------------ */

static inline void
operation_list_init(struct operation_list *list)
{
    TAILQ_INIT(&list->queue);
    list->count = 0;
}

static inline void
operation_push(struct operation_list *list, struct operation *operation)
{
    CHECK(!operation->is_listed);
    TAILQ_INSERT_TAIL(&list->queue, operation, entry);
    operation->is_listed = true;
    list->count++;
}

static inline void
operation_push_front(struct operation_list *list, struct operation *operation)
{
    CHECK(!operation->is_listed);
    TAILQ_INSERT_HEAD(&list->queue, operation, entry);
    operation->is_listed = true;
    list->count++;
}

/* The oldest one; NULL: there is none. */
static inline struct operation *
operation_first(const struct operation_list *list)
{
    return TAILQ_FIRST(&list->queue);
}

static inline void
operation_remove(struct operation_list *list, struct operation *operation)
{
    CHECK(operation->is_listed && list->count > 0);
    TAILQ_REMOVE(&list->queue, operation, entry);
    operation->is_listed = false;
    list->count--;
}

static inline struct operation *
operation_pop(struct operation_list *list)
{
    struct operation *operation = operation_first(list);

    if (operation != NULL) {
        operation_remove(list, operation);
    }
    return operation;
}

/* All of from go to the end of to. */
static inline void
operation_move(struct operation_list *to, struct operation_list *from)
{
    TAILQ_CONCAT(&to->queue, &from->queue, entry);
    to->count += from->count;
    from->count = 0;
}

#endif
