/*
 * ingest_state.h - the inside of ingest, for its own files.
 *
 *   ingest.c         life, submitting bodies, answers, time
 *   ingest_rings.c   submitting records and hellos of rings
 *   ingest_gather.c  the next batch
 */

#ifndef INGEST_INGEST_STATE_H
#define INGEST_INGEST_STATE_H

#include "ingest/audit_log.h"
#include "ingest/ingest.h"
#include "ingest/request.h"
#include "ingest/request_queue.h"
#include "ingest/poison.h"
#include "ingest/transaction.h"

struct ingest {
    struct config *config;
    struct lane *lane;
    struct transaction *transaction;
    struct poison *poison;        /* NULL: crashes are not looked into */
    struct series_engine *series; /* NULL: nothing is folded */
    uint64_t answer_timeout_ms;
    bool was_ready; /* the salts are known */

    struct request_queue queue;
    bool was_full; /* a request was refused; see ingest_is_full */

    struct gathered {
        struct batch_item **items;
        size_t room;
    } gathered[2]; /* the batch under way, and the one being answered */
    unsigned gathered_now;
    struct audit_log audit_log;
    bool was_idle; /* since the last tick */

    uv_check_t check; /* gathers, after a turn's input */
    uv_idle_t idle;   /* keeps the loop from sleeping before that */
    uv_timer_t deadline;
    uv_timer_t tick;
    int handles_open;
};

/* ingest.c */
/* An answer that needs no request: BUSY, UNAVAILABLE. */
void ingest_answer_at_once(enum ingest_outcome outcome, ingest_answer_cb cb,
                           void *asker);
/* Answers a request that was never kept, and frees it. */
void ingest_refuse(struct ingest_request *request, enum ingest_outcome outcome);
/* Kept and queued; the next batch is gathered soon. */
void ingest_keep(struct ingest *ingest, struct ingest_request *request);
/* No answer any more; frees it unless a transaction has its items. */
void ingest_release(struct ingest_request *request);

/* ingest_gather.c */
/* A batch will be gathered when this turn's input is read. */
void ingest_schedule(struct ingest *ingest);
/* At once, if there is anything and the transaction is idle. */
void ingest_start(struct ingest *ingest);
void ingest_gathered_free(struct ingest *ingest);

#endif
