/*
 * reader.h - a few connections as meter_reader: every read for a client.
 *
 * A query runs as BEGIN READ ONLY; set_tenant; statement; COMMIT in one
 * round trip, so the tenant is never left on a connection. The queue is
 * bounded; when it is full or no connection is up, the callback gets
 * PG_OUTCOME_LOST at once and the caller answers 503.
 */

#ifndef STORE_READER_H
#define STORE_READER_H

#include "store/pg_conn.h"

struct reader;

struct reader_options {
    const char *url;
    int connections;
    size_t queue_max;
    int64_t statement_timeout_us; /* 0: none */
};

struct reader_events {
    void (*on_ready)(void *owner); /* the first connection is up */
    void (*on_refused)(void *owner, const char *why);
};

MUST_CHECK struct reader *
reader_create(uv_loop_t *loop, const struct reader_options *options,
              const struct reader_events *events, void *owner);
void reader_destroy(struct reader *reader);
bool reader_is_ready(const struct reader *reader);

/* tenant of size 0: no tenant is set (token look-up only). */
void reader_query(struct reader *reader, struct meter_str tenant,
                  enum statement statement, const struct pg_params *params,
                  pg_answer_cb cb, void *asker);

#endif
