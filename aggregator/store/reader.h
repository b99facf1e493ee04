/*
 * reader.h - a few connections that serve clients, apart from ingest.
 *
 *   READER_READS   as meter_reader, read-only: set_tenant and the statement,
 *                  one transaction. Row-level security shows the tenant's
 *                  rows only.
 *   READER_WRITES  as meter_writer, for the rare writes of clients: BEGIN;
 *                  statement; COMMIT. The statement names the tenant.
 *
 * All of it goes out in one round trip, so nothing of a request is ever left
 * on a connection. A read is answered with its rows, a write only after its
 * COMMIT; where that is not known to have succeeded, it is LOST. The queue
 * is bounded; when it is full or no connection is up, the callback gets
 * PG_OUTCOME_LOST at once and the caller answers 503.
 */

#ifndef STORE_READER_H
#define STORE_READER_H

#include "pg/conn.h"

struct reader;

enum reader_access { READER_READS, READER_WRITES };

struct reader_options {
    enum reader_access access;
    const char *url;
    int connections;
    size_t queue_max;
    int64_t statement_timeout_us; /* 0: none */
};

struct reader_events {
    void (*on_ready)(void *owner); /* the first connection is up */
    void (*on_refused)(void *owner, const char *why);
};

/* url is copied. */
MUST_CHECK struct reader *
reader_create(uv_loop_t *loop, const struct reader_options *options,
              const struct reader_events *events, void *owner);
void reader_destroy(struct reader *reader);
/*
 * A query was sent less than this long ago and has no answer yet, or the next
 * one is about to come: the last two followed closely on their answers.
 */
bool reader_is_expecting(const struct reader *reader, uint64_t within_us);

/* tenant of size 0: no tenant is set (token look-up, writes). */
void reader_query(struct reader *reader, struct meter_str tenant,
                  enum statement statement, const struct pg_params *params,
                  pg_answer_cb cb, void *asker);

#endif
