/*
 * call.h - one request inside api/: what handlers see of it.
 */

#ifndef API_CALL_H
#define API_CALL_H

#include "api/api.h"
#include "api/token.h"
#include "api/url.h"
#include "base/json_reader.h"
#include "base/json_writer.h"
#include "base/reason.h"
#include "meter_decimal.h"
#include "meter_limits.h"

#include <sys/queue.h>

/* 401: one text for every reason, so that none can be told from another. */
#define CALL_ERROR_UNAUTHORIZED "a valid bearer token is needed"
/* 422: sums of exact figures that are longer than what is kept. */
#define CALL_ERROR_RANGE "the figure has more than 38 digits"
#define CALL_ERROR_AMOUNTS \
    "the amounts would pass 10^28, or the total 38 digits"

#define RETRY_AFTER_S 1

#define ROUTER_PARAMETERS_MAX 2

struct route {
    enum meter_method method; /* GET answers HEAD too */
    const char *pattern;      /* "/v1/events/{event_id}"; two {} at most */
    enum token_scope scope;   /* NONE: no token needed */
    void (*handler)(struct api_call *call);
};

/*
 * A resource: its routes, and what it needs beside them. Its file exports
 * this and nothing else to the router; NULL: it needs none.
 */
struct resource {
    const struct route *routes;
    size_t route_count;
    void (*open)(struct api *api, uv_loop_t *loop);
    void (*close)(struct api *api);
    void (*full)(struct api_call *call); /* too many are under way; else 503 */
};

#define RESOURCE_ROUTES(table) \
    .routes = (table), .route_count = sizeof(table) / sizeof((table)[0])

extern const struct resource adjustments_resource;
extern const struct resource buckets_resource;
extern const struct resource closes_resource;
extern const struct resource counters_resource;
extern const struct resource event_resource;
extern const struct resource events_resource;
extern const struct resource health_resource;
extern const struct resource query_resource;
extern const struct resource series_resource;
extern const struct resource tenants_resource;
extern const struct resource usage_resource;

struct router_match {
    const struct resource *resource;
    const struct route *route;
    struct meter_str parameter; /* decoded text of {}; empty without one */
    struct meter_str second;    /* likewise, of the second {} */
    const char *error;
    const char *allow;
};

struct auth;
struct auth_lookup;

enum auth_result {
    AUTH_OK,          /* tenant and scopes of the ticket are set */
    AUTH_DENIED,      /* 401 */
    AUTH_UNAVAILABLE, /* not cached and the database is away: 503 */
    AUTH_PENDING      /* the callback follows */
};

typedef void (*auth_cb)(void *asker, enum auth_result result);

/* One question; lives in the asker until the answer or auth_cancel. */
struct auth_ticket {
    char tenant[METER_TENANT_SIZE_MAX];
    size_t tenant_size;
    unsigned scopes; /* enum token_scope */
    char token_id[TOKEN_ID_SIZE_MAX];
    size_t token_id_size;
    uint8_t digest[METER_DIGEST_SIZE]; /* of the secret presented */

    auth_cb cb;
    void *asker;
    struct auth_lookup *lookup; /* NULL: not waiting */
    LIST_ENTRY(auth_ticket) waiting;
};

/* What every handler works with. */
struct api {
    struct config *config; /* one reference */
    struct ingest *ingest;
    struct reader *reader;
    struct reader *writes; /* clients' own writes */
    struct bucket_engine *buckets;
    struct lane *lane;
    struct auth *auth;
    struct unpack *unpack; /* of events.c */
    bool healthy;
};

struct api_call {
    struct api *api;
    struct config *config; /* one reference: the rules this call began with */
    const struct meter_request *request;
    struct buf *body;
    struct router_match match;
    struct auth_ticket ticket;
    struct arena arena;
    struct buf out; /* body of the answer */
    struct json_writer json;
    uint64_t started_us;

    api_answer_cb cb; /* NULL: the asker is gone */
    void *asker;
    bool *answered; /* set while api_submit runs */

    /* What the call waits for besides its ticket; at most one. */
    void (*cancel)(struct api_call *call); /* lets go of work; NULL: none */
    void *work;
    pg_answer_cb read_cb;    /* of a write too */
    struct pg_params params; /* of the next one */

    void *state; /* the handler's, in the arena */
};

/* Only for api.c: after an answer the call is freed already. */
void call_free(struct api_call *call);

/* The tenant of the credential. */
struct meter_str call_tenant(const struct api_call *call);
/* The public part of the token that was presented. */
struct meter_str call_token_id(const struct api_call *call);

/*
 * The handler's state, zeroed, in the arena. NULL: the database has never
 * been reached, or there is no memory, and the call has its answer.
 */
MUST_CHECK void *call_state(struct api_call *call, size_t size);
/* The query arguments, in the arena. NULL: the call has its answer. */
MUST_CHECK const struct url_arguments *call_arguments(struct api_call *call);
/* False: the call has its answer, "the <what> takes no query arguments". */
MUST_CHECK bool call_has_no_arguments(struct api_call *call, const char *what);

/*
 * Each ends the call: the answer goes out and call is freed. The first two
 * send what was written to out (through json); an error replaces it.
 */
void call_answer(struct api_call *call, unsigned status);
void call_answer_full(struct api_call *call, const struct meter_response *head);
/* {"error":"text"}, escaped; retry_after_s 0: no such header. */
void call_answer_error(struct api_call *call, unsigned status,
                       uint32_t retry_after_s, const char *text);
void
call_answer_error_full(struct api_call *call, const struct meter_response *head,
                       const char *text);
/* 503 with Retry-After: the database is away. */
void call_answer_unavailable(struct api_call *call);

/* The parameters of the next read or write, empty. */
struct pg_params *call_params(struct api_call *call);

/*
 * A read for the call's tenant, with what call_params was given. cb runs
 * only with rows: a failed read is answered here, and after api_cancel it
 * only frees.
 */
void
call_read(struct api_call *call, enum statement statement, pg_answer_cb cb);

/*
 * A write of its own transaction. The tenant must be among the parameters,
 * always that of call_tenant. cb runs only after the COMMIT is known to have
 * succeeded; otherwise 503 is answered here, and the client sends the same
 * again. A write that has begun goes its way after api_cancel too.
 */
void
call_write(struct api_call *call, enum statement statement, pg_answer_cb cb);


/* ---- bodies ----------------------------------------------------------- */

#define BODY_SIZE_MAX 65536

/*
 * One JSON object in UTF-8, without a Content-Encoding and without query
 * arguments beside it, with no other members than names, into values in that
 * order; absent and null are NULL. It lives as long as the call. False: the
 * call has its answer.
 */
MUST_CHECK bool body_read(struct api_call *call, const char *const *names,
                          size_t count, const struct json_value **values);

/*
 * A text of 1 to size_max bytes. False: *error is a sentence for a 400;
 * value NULL: the member is missing.
 */
MUST_CHECK bool
body_text(const struct json_value *value, const char *name, size_t size_max,
          struct arena *arena, struct meter_str *out, const char **error);


/* ---- members of answers ----------------------------------------------- */

/* data NULL: null. */
void member_string(struct json_writer *json, const char *name,
                   struct meter_str value);
void member_text(struct json_writer *json, const char *name, const char *value);
/* Bytes that are JSON already. */
void
member_raw(struct json_writer *json, const char *name, struct meter_str value);
void member_int(struct json_writer *json, const char *name, int64_t value);
/* A 64-bit number as a string. */
void
member_int_string(struct json_writer *json, const char *name, int64_t value);
void member_bool(struct json_writer *json, const char *name, bool value);
void member_time(struct json_writer *json, const char *name, int64_t ts_us);
/* A decimal as a string, or null. */
void member_decimal(struct json_writer *json, const char *name, bool has_value,
                    struct meter_decimal value);

/* What a column holds, and so how it is shown; NULL is null. */
enum member_kind {
    MEMBER_STRING,
    MEMBER_RAW,
    MEMBER_INT,
    MEMBER_INT_STRING,
    MEMBER_TIME,
    MEMBER_NUMERIC /* fits a meter_decimal */
};

struct member {
    const char *name;
    enum member_kind kind;
    int column;
};

void members_of_row(struct json_writer *json, const struct member *members,
                    size_t count, const void *rows, int row);

#define MEMBERS_OF_ROW(json, table, rows, row)                          \
    members_of_row((json), (table), sizeof(table) / sizeof((table)[0]), \
                   (rows), (row))

#endif
