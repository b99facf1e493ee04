/*
 * connect.c - from a URL to a session that was checked.
 *
 *   WAITING -> RESOLVING -> CONNECTING -> CHECKING -> READY
 *      ^            |            |            |         |
 *      +------------+------------+------------+---------+  any failure
 *
 * Host names are looked up first. Then each host has its own time to let
 * libpq connect step by step, to take the session's settings and to pass the
 * self-test on server and role; one that does not is followed by the next.
 * Only then the owner hears of it. After a failed round the next one waits
 * between 50 ms and 2 s, longer each time and never equally long for two
 * connections.
 */

#include "base/log.h"
#include "base/memory.h"
#include "pg/conn_private.h"
#include "pg/selftest.h"

#include <inttypes.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#define PLACES_MAX        64
#define HOST_SIZE_MAX     255
#define BACKOFF_MS_MIN    50
#define BACKOFF_MS_MAX    2000
#define BACKOFF_DOUBLINGS 6


/* ---- addresses -------------------------------------------------------- */

/*
 * libpq resolves names inside PQconnectPoll and would block there, and it
 * goes from one host to the next only when a host says no, never when one is
 * silent. So each address of each host becomes a place of its own, in the
 * order of the URL, and they are tried in turn. Names are looked up by
 * libuv's threads; host stays, for TLS and the password file. Socket
 * directories and given hostaddr need no look-up. A name that cannot be
 * looked up adds no place; when nothing at all was found the attempt fails.
 */
struct pg_address {
    uv_getaddrinfo_t request;
    struct pg_conn *conn; /* NULL: nobody waits any more */
    bool is_asking;       /* libuv holds the request */
    char *hosts;          /* comma lists as in the URL, or NULL */
    char *hostaddrs;
    char *ports;
    const char *hosts_left; /* NULL: all done */
    const char *hostaddrs_left;
    const char *ports_left;
    struct meter_str host; /* the one being looked up */
    struct meter_str port;
    bool started;  /* the first place was taken */
    bool too_many; /* places */
    size_t count;
    struct pg_place places[PLACES_MAX];
};

static void address_found(struct pg_conn *conn);


static void
address_free(struct pg_address *address)
{
    for (size_t i = 0; i < address->count; i++) {
        free(address->places[i].host);
        free(address->places[i].hostaddr);
        free(address->places[i].port);
    }
    free(address->hosts);
    free(address->hostaddrs);
    free(address->ports);
    free(address);
}


/* Ends the round of a connection; the callback of a look-up comes anyway. */
static void
address_drop(struct pg_conn *conn)
{
    struct pg_address *address = conn->address;

    conn->address = NULL;
    if (address != NULL && address->is_asking) {
        address->conn = NULL;
        uv_cancel((uv_req_t *)&address->request);
    } else if (address != NULL) {
        address_free(address);
    }
}


/* NULL: the URL does not say. */
static char *
address_option(const PQconninfoOption *parsed, const char *keyword)
{
    for (; parsed->keyword != NULL; parsed++) {
        if (strcmp(parsed->keyword, keyword) == 0 && parsed->val != NULL &&
            parsed->val[0] != '\0') {
            return memory_strdup(parsed->val);
        }
    }
    return NULL;
}


/* NULL: a bad URL. */
static struct pg_address *
address_create(const char *url)
{
    PQconninfoOption *parsed = PQconninfoParse(url, NULL);

    if (parsed == NULL) {
        return NULL;
    }

    struct pg_address *address = memory_alloc(sizeof(*address));

    address->hosts = address_option(parsed, "host");
    address->hostaddrs = address_option(parsed, "hostaddr");
    address->ports = address_option(parsed, "port");
    address->hosts_left = address->hosts;
    address->hostaddrs_left = address->hostaddrs;
    address->ports_left = address->ports;
    PQconninfoFree(parsed);
    return address;
}


/* The next item of a comma list; *left becomes NULL after the last. */
static struct meter_str
address_item(const char **left)
{
    struct meter_str found = {*left, 0};

    if (*left == NULL) {
        return found;
    }

    const char *comma = strchr(*left, ',');

    found.size = comma == NULL ? strlen(*left) : (size_t)(comma - *left);
    *left = comma == NULL ? NULL : comma + 1;
    return found;
}


/*
 * The next items of the lists; false: none is left. One port is for all, and
 * a URL without a host is one place too.
 */
static bool
address_take(struct pg_address *address, struct meter_str *hostaddr)
{
    const char *ports = address->ports == NULL ? "" : address->ports;

    if (address->started && address->hosts_left == NULL &&
        address->hostaddrs_left == NULL) {
        return false;
    }
    address->started = true;
    address->host = address_item(&address->hosts_left);
    *hostaddr = address_item(&address->hostaddrs_left);
    address->port = strchr(ports, ',') != NULL
                        ? address_item(&address->ports_left)
                        : (struct meter_str){ports, strlen(ports)};
    return true;
}


/* NULL: empty. */
static char *
address_copy(struct meter_str text)
{
    char *copy = NULL;

    if (text.size > 0) {
        copy = memory_alloc(text.size + 1);
        memcpy(copy, text.data, text.size);
    }
    return copy;
}


static void
address_add(struct pg_address *address, struct meter_str hostaddr)
{
    if (address->count == PLACES_MAX) {
        address->too_many = true;
        return;
    }
    address->places[address->count++] = (struct pg_place){
        .host = address_copy(address->host),
        .hostaddr = address_copy(hostaddr),
        .port = address_copy(address->port),
    };
}


static void
address_cb(uv_getaddrinfo_t *request, int status, struct addrinfo *found);

/* Starts the next look-up; false: all hosts are done. */
static bool
address_next(struct pg_address *address)
{
    static const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
    };
    struct meter_str hostaddr;

    while (address_take(address, &hostaddr)) {
        struct meter_str host = address->host;
        char name[HOST_SIZE_MAX + 1];

        /* A socket directory, an abstract socket or the default. */
        if (hostaddr.size > 0 || host.size == 0 || host.data[0] == '/' ||
            host.data[0] == '@') {
            address_add(address, hostaddr);
            continue;
        }
        if (host.size > HOST_SIZE_MAX) {
            continue;
        }
        memcpy(name, host.data, host.size);
        name[host.size] = '\0';
        address->is_asking =
            uv_getaddrinfo(address->conn->loop, &address->request, address_cb,
                           name, NULL, &hints) == 0;
        if (address->is_asking) {
            return true;
        }
    }
    return false;
}


static void
address_cb(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct pg_address *address = (struct pg_address *)request;
    struct addrinfo *each = status == 0 ? found : NULL;

    for (; each != NULL; each = each->ai_next) {
        char text[INET6_ADDRSTRLEN + 16];

        if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof(text),
                        NULL, 0, NI_NUMERICHOST) == 0) {
            address_add(address, (struct meter_str){text, strlen(text)});
        }
    }
    uv_freeaddrinfo(found);
    address->is_asking = false;
    if (address->conn == NULL) {
        address_free(address);
    } else if (!address_next(address)) {
        address_found(address->conn);
    }
}


/* ---- the socket ------------------------------------------------------- */

static void
poll_closed_cb(uv_handle_t *handle)
{
    free(handle);
}


/* Before libpq closes the socket. */
static void
poll_close(struct pg_conn *conn)
{
    if (conn->poll != NULL) {
        uv_close((uv_handle_t *)conn->poll, poll_closed_cb);
        conn->poll = NULL;
    }
}


static void
poll_open(struct pg_conn *conn, int events, uv_poll_cb cb)
{
    uv_poll_t *poll = memory_alloc(sizeof(*poll));

    CHECK(conn->poll == NULL);
    if (uv_poll_init(conn->loop, poll, PQsocket(conn->pg)) != 0) {
        free(poll);
        pg_conn_fail(conn, "the socket cannot be watched");
        return;
    }
    poll->data = conn;
    conn->poll = poll;
    conn->watched = 0;
    if (uv_poll_start(poll, events, cb) != 0) {
        pg_conn_fail(conn, "the socket cannot be watched");
    }
}


/* Everything about the server that was is forgotten; work stays. */
static void
connect_drop_server(struct pg_conn *conn)
{
    poll_close(conn);
    PQclear(conn->copy_result);
    PQclear(conn->prepare_error);
    PQfinish(conn->pg);
    conn->pg = NULL;
    conn->copy_result = NULL;
    conn->prepare_error = NULL;
    conn->copy_phase = PG_COPY_NONE;
    conn->null_seen = false;
    conn->stale = false;
    conn->write_blocked = false;
    memset(conn->prepared, 0, sizeof(conn->prepared));
}


void
pg_connect_drop(struct pg_conn *conn)
{
    address_drop(conn);
    connect_drop_server(conn);
}


/* ---- checking --------------------------------------------------------- */

static void
connect_ready(struct pg_conn *conn)
{
    conn->state = PG_STATE_READY;
    conn->refused[0] = '\0';
    pg_silence_watch(conn);
    pg_outage_ended(conn);
    log_info("store", "database connection ready",
             log_str("connection", conn->options.name));
    if (conn->events.on_ready != NULL) {
        conn->events.on_ready(conn->owner);
    }
}


/* Tells the owner, and tries again later in case it was put right. */
static void
connect_refuse(struct pg_conn *conn, const char *why)
{
    if (strcmp(conn->refused, why) != 0) {
        snprintf(conn->refused, sizeof(conn->refused), "%s", why);
        log_error("store", "database refused",
                  log_str("connection", conn->options.name),
                  log_str("reason", why));
    }
    pg_conn_fail(conn, "refused: %s", why);
    if (conn->events.on_refused != NULL) {
        conn->events.on_refused(conn->owner, conn->refused);
    }
}


/* step NULL: what set the session. True: go on. */
static bool
check_judge(struct pg_conn *conn, const struct selftest_step *step,
            const struct pg_answer *answer)
{
    char why[PG_CONN_WHY_SIZE] = "";
    enum selftest_verdict verdict =
        selftest_judge(step, conn->mark, answer, why, sizeof(why));

    if (verdict == SELFTEST_REFUSED) {
        connect_refuse(conn, why);
    } else if (verdict == SELFTEST_AWAY) {
        pg_conn_fail(conn, "%s", why);
    }
    return verdict == SELFTEST_OK;
}


/* Every step has a role that it is for, or is for all. */
static bool
check_applies(const struct pg_conn *conn, const struct selftest_step *step)
{
    const char *role = conn->options.role;

    return step->role == NULL ||
           (role != NULL && strcmp(role, step->role) == 0);
}


static void
check_cb(void *asker, const struct pg_answer *answer)
{
    struct pg_conn *conn = asker;
    const struct selftest_step *step;

    if (conn->failing || answer->outcome == PG_OUTCOME_LOST) {
        return;
    }
    do {
        CHECK(conn->check_step < selftest_steps_count);
        step = &selftest_steps[conn->check_step++];
    } while (!check_applies(conn, step));

    if (check_judge(conn, step, answer) &&
        conn->check_step == selftest_steps_count) {
        connect_ready(conn);
    }
}


/*
 * All steps in one flush, apart from what set the session: a pooler that
 * gives each transaction another session shows. The time limit of the
 * connect holds for them too.
 */
static void
session_cb(void *asker, const struct pg_answer *answer)
{
    struct pg_conn *conn = asker;

    if (conn->failing || answer->outcome == PG_OUTCOME_LOST ||
        !check_judge(conn, NULL, answer)) {
        return;
    }
    if (!conn->options.selftest) {
        connect_ready(conn);
        return;
    }
    conn->check_step = 0;
    for (size_t i = 0; i < selftest_steps_count; i++) {
        if (check_applies(conn, &selftest_steps[i])) {
            pg_conn_ask(conn, selftest_steps[i].statement, NULL, check_cb);
        }
    }
    pg_conn_ask_end(conn);
}


static uint64_t
connect_lot(void)
{
    uint64_t lot;

    if (getrandom(&lot, sizeof(lot), GRND_NONBLOCK) != sizeof(lot)) {
        lot = uv_hrtime();
    }
    return lot;
}


/* The mark is another one for each connection that is made. */
static void
session_start(struct pg_conn *conn)
{
    struct pg_params params;

    conn->state = PG_STATE_CHECKING;
    snprintf(conn->mark, sizeof(conn->mark), "%" PRIx64, connect_lot());
    pg_params_init(&params);
    pg_settings_session(&conn->options, conn->mark, &params);
    pg_conn_ask(conn, STATEMENT_SESSION_SET, &params, session_cb);
    pg_conn_ask_end(conn);
    pg_params_fini(&params);
}


/* ---- connecting ------------------------------------------------------- */

/*
 * A cancelled wait for a synchronous standby gives success with a WARNING:
 * SQLSTATE 01000 or 57P01, in the server's language. The function that
 * reports it is never translated; the English detail serves where a
 * distribution leaves the source position out.
 */
static bool
notice_says_not_replicated(const PGresult *notice)
{
    const char *function = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
    const char *detail = PQresultErrorField(notice, PG_DIAG_MESSAGE_DETAIL);

    return (function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0) ||
           (detail != NULL &&
            strstr(detail, "might not have been replicated") != NULL);
}


static void
notice_cb(void *asker, const PGresult *notice)
{
    struct pg_conn *conn = asker;

    if (notice_says_not_replicated(notice)) {
        log_error("store", "a commit is not replicated",
                  log_str("connection", conn->options.name));
        if (conn->events.on_not_replicated != NULL) {
            conn->events.on_not_replicated(conn->owner);
        }
        return;
    }
    log_debug(
        "store", "server notice", log_str("connection", conn->options.name),
        log_str("notice", PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY)));
}


static const struct pg_place *
connect_place(const struct pg_conn *conn)
{
    return &conn->address->places[conn->place_at % conn->address->count];
}


static void
connect_timeout_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;

    if (conn->state == PG_STATE_RESOLVING) {
        pg_conn_fail(conn, "the host name cannot be looked up in time");
        return;
    }

    const struct pg_place *place = connect_place(conn);
    const char *host = place->host != NULL ? place->host : place->hostaddr;

    pg_conn_fail(conn,
                 "connection to server at \"%s\" failed: no answer within %d s",
                 host != NULL ? host : "", (int)(conn->limit_ms / 1000));
}


/*
 * libpq may close its socket and open another under the same number: the
 * watch ends before each step and begins anew after it.
 */
static void
connect_cb(uv_poll_t *poll, int status, int events)
{
    struct pg_conn *conn = poll->data;

    (void)status; /* libpq finds out by itself */
    (void)events;
    if (conn->failing) {
        return;
    }
    poll_close(conn);
    switch (PQconnectPoll(conn->pg)) {
    case PGRES_POLLING_OK:
        if (PQsetnonblocking(conn->pg, 1) != 0) {
            pg_conn_fail(conn, "the socket cannot be watched");
            break;
        }
        poll_open(conn, UV_READABLE, pg_conn_traffic_cb);
        session_start(conn);
        break;
    case PGRES_POLLING_FAILED:
        pg_conn_fail(conn, "%s", PQerrorMessage(conn->pg));
        break;
    case PGRES_POLLING_READING: poll_open(conn, UV_READABLE, connect_cb); break;
    default: poll_open(conn, UV_WRITABLE, connect_cb);
    }
}


/* One host, within its own time. */
static void
connect_try(struct pg_conn *conn)
{
    struct pg_settings settings;
    const char *why;

    conn->state = PG_STATE_CONNECTING;
    if (!pg_settings_init(&settings, &conn->options, connect_place(conn),
                          &why)) {
        connect_refuse(conn, why);
        return;
    }
    conn->limit_ms =
        settings.connect_ms != 0 ? settings.connect_ms : pg_conn_patience_ms();
    uv_timer_start(&conn->timer, connect_timeout_cb, conn->limit_ms, 0);
    conn->pg = PQconnectStartParams(settings.keywords, settings.values, 0);
    pg_settings_fini(&settings);
    if (conn->pg == NULL || PQstatus(conn->pg) == CONNECTION_BAD) {
        pg_conn_fail(conn, "%s",
                     conn->pg == NULL ? "out of memory"
                                      : PQerrorMessage(conn->pg));
        return;
    }
    PQsetNoticeReceiver(conn->pg, notice_cb, conn);
    poll_open(conn, UV_WRITABLE, connect_cb);
}


/* The addresses are there, as many as were found. */
static void
address_found(struct pg_conn *conn)
{
    if (conn->failing) {
        return;
    }
    if (conn->address->too_many) {
        pg_conn_fail(conn, "too many host addresses");
    } else if (conn->address->count == 0) {
        pg_conn_fail(conn, "the host name cannot be looked up");
    } else {
        conn->places_left = conn->address->count;
        connect_try(conn);
    }
}


static void
attempt_cb(uv_timer_t *timer)
{
    struct pg_conn *conn = timer->data;

    conn->state = PG_STATE_RESOLVING;
    conn->round[0] = '\0';
    uv_timer_start(&conn->timer, connect_timeout_cb, pg_conn_patience_ms(), 0);
    conn->address = address_create(conn->options.url);
    if (conn->address == NULL) {
        pg_conn_fail(conn, "the database URL cannot be read");
        return;
    }
    conn->address->conn = conn;
    if (!address_next(conn->address)) {
        address_found(conn);
    }
}


/* Doubles from 50 ms to 2 s; the upper half of it is drawn by lot. */
static uint64_t
connect_backoff_ms(struct pg_conn *conn)
{
    unsigned doublings =
        conn->attempts < BACKOFF_DOUBLINGS ? conn->attempts : BACKOFF_DOUBLINGS;
    uint64_t most = (uint64_t)BACKOFF_MS_MIN << doublings;

    if (most > BACKOFF_MS_MAX) {
        most = BACKOFF_MS_MAX;
    }
    conn->attempts++;
    return most / 2 + connect_lot() % (most / 2 + 1);
}


void
pg_connect_begin(struct pg_conn *conn, bool at_once)
{
    conn->state = PG_STATE_WAITING;
    uv_timer_start(&conn->timer, attempt_cb,
                   at_once ? 0 : connect_backoff_ms(conn), 0);
}


/* The reasons of all hosts make up the one of the round. */
bool
pg_connect_next(struct pg_conn *conn)
{
    size_t used = strlen(conn->round);

    if (conn->state != PG_STATE_CONNECTING &&
        conn->state != PG_STATE_CHECKING) {
        return false;
    }
    snprintf(conn->round + used, sizeof(conn->round) - used, "%s%s",
             used == 0 ? "" : "; ", conn->why);
    conn->place_at = (conn->place_at + 1) % conn->address->count;
    if (--conn->places_left == 0) {
        memcpy(conn->why, conn->round, sizeof(conn->why));
        return false;
    }
    connect_drop_server(conn);
    connect_try(conn);
    return true;
}
