/*
 * conn_private.h - what the files of pg/ know of a connection. No one else
 * includes it.
 *
 *   settings.c  what libpq needs to connect, and what a session is told
 *   connect.c   from a URL to a session that was checked
 *   conn.c      work in, answers out, and the loss of the connection
 *   pulse.c     whether the server is there
 *
 * The way of a piece of work: unflushed -> queue -> inflight -> callback. One
 * flush or one COPY is in flight at a time: a statement counts as prepared
 * once it was sent, and that guess is settled before the next flush is sent.
 */

#ifndef PG_CONN_PRIVATE_H
#define PG_CONN_PRIVATE_H

#include "pg/conn.h"

#include <libpq-fe.h>

#include <sys/queue.h>

#define PG_CONN_WHY_SIZE  256
#define PG_CONN_MARK_SIZE 24
#define PG_SETTINGS_MAX   64

/* ---- settings: what libpq needs to connect, what the session is told --- */

/* Where a server may be. NULL: as libpq would have it. */
struct pg_place {
    char *host;
    char *hostaddr;
    char *port;
};

struct pg_settings {
    const char *keywords[PG_SETTINGS_MAX + 1]; /* NULL at the end */
    const char *values[PG_SETTINGS_MAX + 1];
    size_t count;
    uint64_t connect_ms; /* the URL's time for one host; 0: not given */
    PQconninfoOption *parsed;
    struct buf name;
};

/*
 * place stands for the hosts of the URL; NULL: all of them, each within the
 * URL's connect_timeout or 10 s. False: why says what is wrong, never quoting
 * the URL.
 */
MUST_CHECK bool
pg_settings_init(struct pg_settings *settings,
                 const struct pg_conn_options *options,
                 const struct pg_place *place, const char **why);
void pg_settings_fini(struct pg_settings *settings);
/*
 * Parameters of session_set: ours, the caller's, the role, and the mark by
 * which the session is known again. They win over the URL's own options.
 */
void pg_settings_session(const struct pg_conn_options *options,
                         const char *mark, struct pg_params *params);

/* ---- a connection ------------------------------------------------------ */

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

struct pg_work;
STAILQ_HEAD(pg_work_queue, pg_work);
struct pg_work_list {
    struct pg_work_queue works;
    size_t count;
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
    int handles;      /* timers that libuv still holds */

    struct pg_address *address;   /* of this round; NULL: none is on */
    size_t place_at;              /* the one at hand, or that served last */
    size_t places_left;           /* to be tried, the one at hand included */
    uint64_t limit_ms;            /* for the one at hand */
    char mark[PG_CONN_MARK_SIZE]; /* of the session, see session_look */
    size_t check_step;

    unsigned attempts;     /* since the last connection that lasted */
    uint64_t ready_at_ms;  /* monotonic */
    uint64_t heard_at_ms;  /* a byte came */
    uint64_t asked_at_ms;  /* the first piece of what is in flight was sent */
    uint64_t looked_at_ms; /* for silence */
    bool is_out;           /* is counted among those that are out */
    bool failing;          /* loss is deferred to the loop */
    bool torn;             /* a piece of the flush being made is dead */
    bool write_blocked;    /* the kernel takes no more */
    int watched;           /* events that the traffic waits for; 0: none yet */
    char why[PG_CONN_WHY_SIZE];
    char round[PG_CONN_WHY_SIZE];   /* why, of each host in turn */
    char refused[PG_CONN_WHY_SIZE]; /* last reason, logged once */

    struct pg_work_list unflushed;
    struct pg_work_list queue;
    struct pg_work_list inflight;
    struct pg_work_list dead; /* get LOST from the loop */

    enum pg_copy_phase copy_phase;
    PGresult *copy_result;
    PGresult *prepare_error; /* for the query after the prepare */
    bool null_seen;          /* an end mark nobody waited for */
    bool stale;              /* a plan or statement is gone: reconnect */
    bool prepared[STATEMENT_COUNT];
};

/* connect.c. Begins a round of the hosts, at once or after the back-off. */
void pg_connect_begin(struct pg_conn *conn, bool at_once);
/* A host has failed: false when it was the last one, else tries the next. */
bool pg_connect_next(struct pg_conn *conn);
/* Drops the server and the round. */
void pg_connect_drop(struct pg_conn *conn);

/* conn.c. Notes a failure; the loss is carried out from the loop. */
__attribute__((format(printf, 2, 3))) void
pg_conn_fail(struct pg_conn *conn, const char *format, ...);
/* The connection's own question, while nobody else may ask. */
void pg_conn_ask(struct pg_conn *conn, enum statement statement,
                 const struct pg_params *params, pg_answer_cb cb);
/* What was asked goes out. */
void pg_conn_ask_end(struct pg_conn *conn);
/* For uv_poll_start; data is the connection. */
void pg_conn_traffic_cb(uv_poll_t *poll, int status, int events);

/* pulse.c. It is ready: from now on it is heard, or given up. */
void pg_silence_watch(struct pg_conn *conn);
/* It was lost (was_ready), or could not be made: conn->why. */
void pg_outage_failed(struct pg_conn *conn, bool was_ready);
/* It is up, or nobody wants it any more. */
void pg_outage_ended(struct pg_conn *conn);

#endif
