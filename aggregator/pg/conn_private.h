/*
 * conn_private.h - what pg_conn.c, pg_connect.c and pg_pipeline.c know
 * of each other. No one else includes it.
 *
 *   unflushed -> queue -> inflight -> callback
 *
 * One flush or one COPY is in flight at a time: a statement counts as
 * prepared once it was sent, and that guess is settled before the next
 * flush is sent.
 */

#ifndef PG_CONN_PRIVATE_H
#define PG_CONN_PRIVATE_H

#include "pg/address.h"
#include "pg/conn.h"
#include "pg/work.h"

#include <libpq-fe.h>

/* Pieces of work that wait; past it the flush is LOST. */
#define PG_CONN_WORK_MAX  8192
#define PG_CONN_WHY_SIZE  256
#define PG_CONN_MARK_SIZE 24

enum pg_state {
    PG_STATE_WAITING,    /* for the back-off timer */
    PG_STATE_RESOLVING,  /* for the addresses of host names */
    PG_STATE_CONNECTING, /* for PQconnectPoll */
    PG_STATE_CHECKING,   /* for the self-test */
    PG_STATE_READY,      /* for work */
    PG_STATE_CLOSED      /* for libuv to let go of the handles */
};

enum pg_copy_phase {
    PG_COPY_NONE,
    PG_COPY_ASKED,   /* COPY sent; waits for the server to listen */
    PG_COPY_FEEDING, /* data goes out */
    PG_COPY_ENDED    /* waits for the result and its end mark */
};

struct pg_conn {
    uv_loop_t *loop;
    struct pg_conn_options options;
    struct pg_conn_events events;
    void *owner;

    enum pg_state state;
    PGconn *pg;
    uv_poll_t *poll;  /* one for each socket; NULL while there is none */
    uv_timer_t timer; /* back-off, time limit of a connect, silence */
    uv_timer_t defer; /* losses and LOST answers, from the loop */
    int handles;      /* timers and requests that libuv still holds */
    struct pg_address *address;
    struct pg_places *places;     /* of this round; NULL: none is on */
    size_t place_at;              /* the one at hand, or that served last */
    size_t places_left;           /* to be tried, the one at hand included */
    uint64_t limit_ms;            /* for the one at hand */
    char mark[PG_CONN_MARK_SIZE]; /* of the session, see session_look */

    unsigned attempts;     /* since the last connection that lasted */
    uint64_t ready_at_ms;  /* monotonic */
    uint64_t heard_at_ms;  /* a byte came */
    uint64_t asked_at_ms;  /* the first piece of what is in flight was sent */
    uint64_t looked_at_ms; /* for silence */
    bool is_out;           /* see pg_outage.h */
    bool failing;          /* loss is deferred to the loop */
    bool torn;             /* a piece of the flush being made is dead */
    bool write_blocked;    /* the kernel takes no more */
    int watched;           /* events that traffic_cb waits for; 0: none yet */
    char why[PG_CONN_WHY_SIZE];
    char round[PG_CONN_WHY_SIZE];   /* why, of each host in turn */
    char refused[PG_CONN_WHY_SIZE]; /* last reason, logged once */

    struct pg_work_list unflushed;
    struct pg_work_list queue;
    struct pg_work_list inflight;
    struct pg_work_list dead;

    enum pg_copy_phase copy_phase;
    PGresult *copy_result;
    PGresult *prepare_error; /* for the query behind the prepare */
    bool null_seen;          /* an end mark nobody waited for */
    bool stale;              /* a plan or statement is gone: reconnect */
    bool prepared[STATEMENT_COUNT];

    size_t check_step;
};

/* Making it: tries after the delay; drops it and all it held. */
void pg_connect_after(struct pg_conn *conn, uint64_t delay_ms);
void pg_connect_drop(struct pg_conn *conn);
/* A host has failed: false when it was the last one, else tries the next. */
bool pg_connect_next(struct pg_conn *conn);

/* Notes a failure; the loss is carried out from the loop. */
__attribute__((format(printf, 2, 3))) void
pg_conn_fail(struct pg_conn *conn, const char *format, ...);
/* Watches the socket for what the traffic waits for. */
void pg_conn_watch(struct pg_conn *conn);

/* Traffic: sends what may be sent; takes what came. */
void pg_pipeline_pump(struct pg_conn *conn);
void pg_pipeline_read(struct pg_conn *conn, bool readable);
void pg_pipeline_write(struct pg_conn *conn);
/* Forgets everything about the connection that was; lists stay. */
void pg_pipeline_reset(struct pg_conn *conn);

#endif
