/*
 * pg_address.c - looks up a URL's host names without blocking the loop.
 *
 *   pg_conn -> [pg_address] -> uv_getaddrinfo, one name after the other
 *
 * Three lists grow side by side, one item for each address: host, hostaddr
 * and port. A name that cannot be looked up adds nothing; when nothing at
 * all was found the attempt fails and pg_conn backs off.
 */

#include "store/pg_address.h"

#include <libpq-fe.h>

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define LIST_SIZE_MAX 8192
#define NAME_SIZE_MAX 255
#define DEFAULT_PORT  "5432"

struct pg_address {
    uv_getaddrinfo_t request;
    pg_address_cb cb; /* NULL: cancelled */
    void *asker;
    char *hosts; /* as in the URL */
    char *ports;
    const char *hosts_left; /* NULL: all done */
    const char *ports_left;
    struct meter_str host; /* the one being looked up */
    struct meter_str port;
    struct buf host_list;
    struct buf hostaddr_list;
    struct buf port_list;
};

static bool parse(struct pg_address *address, const char *url);
static bool has_name(const char *hosts);
static bool is_name(struct meter_str host);
static bool next(struct pg_address *address);
static void
resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found);
static void add(struct pg_address *address, const char *hostaddr);
static void finish(struct pg_address *address);
static void discard(struct pg_address *address);
static struct meter_str item(const char **left);
static void separate(struct buf *list, bool first);


struct pg_address *
pg_address_resolve(uv_loop_t *loop, const char *url, pg_address_cb cb,
                   void *asker)
{
    struct pg_address *address = calloc(1, sizeof(*address));

    if (address == NULL || !parse(address, url)) {
        discard(address);
        cb(asker, NULL, NULL, NULL, "out of memory");
        return NULL;
    }
    if (address->hosts == NULL || !has_name(address->hosts)) {
        discard(address);
        cb(asker, NULL, NULL, NULL, NULL);
        return NULL;
    }

    address->request.loop = loop;
    address->cb = cb;
    address->asker = asker;
    address->hosts_left = address->hosts;
    address->ports_left = address->ports;
    if (!next(address)) {
        finish(address);
        return NULL;
    }
    return address;
}


void
pg_address_cancel(struct pg_address *address)
{
    address->cb = NULL;
    uv_cancel((uv_req_t *)&address->request); /* the callback comes anyway */
}


/* False: out of memory. No hosts: a bad URL or one with hostaddr. */
static bool
parse(struct pg_address *address, const char *url)
{
    buf_init(&address->host_list, LIST_SIZE_MAX);
    buf_init(&address->hostaddr_list, LIST_SIZE_MAX);
    buf_init(&address->port_list, LIST_SIZE_MAX);

    PQconninfoOption *parsed = PQconninfoParse(url, NULL);
    const char *host = NULL;
    const char *port = "";
    bool given = false;

    for (PQconninfoOption *option = parsed;
         option != NULL && option->keyword != NULL; option++) {
        if (option->val == NULL || option->val[0] == '\0') {
            continue;
        }
        if (strcmp(option->keyword, "host") == 0) {
            host = option->val;
        } else if (strcmp(option->keyword, "port") == 0) {
            port = option->val;
        } else if (strcmp(option->keyword, "hostaddr") == 0) {
            given = true;
        }
    }

    bool ok = true;

    if (host != NULL && !given) {
        address->hosts = strdup(host);
        address->ports = strdup(port);
        ok = address->hosts != NULL && address->ports != NULL;
    }
    PQconninfoFree(parsed);
    return ok;
}


static bool
has_name(const char *hosts)
{
    while (hosts != NULL) {
        if (is_name(item(&hosts))) {
            return true;
        }
    }
    return false;
}


/* Not a socket directory, an abstract socket or the default. */
static bool
is_name(struct meter_str host)
{
    return host.size > 0 && host.data[0] != '/' && host.data[0] != '@';
}


/* Starts the next look-up; false: all hosts are done. */
static bool
next(struct pg_address *address)
{
    static const struct addrinfo hints = {
        .ai_family = AF_UNSPEC,
        .ai_socktype = SOCK_STREAM,
    };
    bool single_port = strchr(address->ports, ',') == NULL;

    while (address->hosts_left != NULL) {
        char name[NAME_SIZE_MAX + 1];

        address->host = item(&address->hosts_left);
        if (single_port) {
            address->port =
                (struct meter_str){address->ports, strlen(address->ports)};
        } else {
            address->port = item(&address->ports_left);
        }
        if (!is_name(address->host)) {
            add(address, "");
            continue;
        }
        if (address->host.size > NAME_SIZE_MAX) {
            continue;
        }
        memcpy(name, address->host.data, address->host.size);
        name[address->host.size] = '\0';
        if (uv_getaddrinfo(address->request.loop, &address->request, resolved,
                           name, NULL, &hints) == 0) {
            return true;
        }
    }
    return false;
}


static void
resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found)
{
    struct pg_address *address = (struct pg_address *)request;
    struct addrinfo *each;

    for (each = status == 0 ? found : NULL; each != NULL;
         each = each->ai_next) {
        char text[INET6_ADDRSTRLEN + 16];

        if (getnameinfo(each->ai_addr, each->ai_addrlen, text, sizeof(text),
                        NULL, 0, NI_NUMERICHOST) == 0) {
            add(address, text);
        }
    }
    uv_freeaddrinfo(found);
    if (address->cb == NULL) {
        discard(address);
    } else if (!next(address)) {
        finish(address);
    }
}


static void
add(struct pg_address *address, const char *hostaddr)
{
    bool first = address->host_list.size == 0 &&
                 address->hostaddr_list.size == 0 &&
                 address->port_list.size == 0;

    separate(&address->host_list, first);
    separate(&address->hostaddr_list, first);
    separate(&address->port_list, first);
    buf_put_str(&address->host_list, address->host);
    buf_put_text(&address->hostaddr_list, hostaddr);
    if (address->port.size > 0) {
        buf_put_str(&address->port_list, address->port);
    } else {
        buf_put_text(&address->port_list, DEFAULT_PORT);
    }
}


static void
finish(struct pg_address *address)
{
    bool none = address->port_list.size == 0;

    buf_put_byte(&address->host_list, 0);
    buf_put_byte(&address->hostaddr_list, 0);
    buf_put_byte(&address->port_list, 0);
    if (none) {
        address->cb(address->asker, NULL, NULL, NULL,
                    "the host name cannot be looked up");
    } else if (address->host_list.failed || address->hostaddr_list.failed ||
               address->port_list.failed) {
        address->cb(address->asker, NULL, NULL, NULL,
                    "too many host addresses");
    } else {
        address->cb(address->asker, address->host_list.data,
                    address->hostaddr_list.data, address->port_list.data, NULL);
    }
    discard(address);
}


static void
discard(struct pg_address *address)
{
    if (address == NULL) {
        return;
    }
    free(address->hosts);
    free(address->ports);
    buf_fini(&address->host_list);
    buf_fini(&address->hostaddr_list);
    buf_fini(&address->port_list);
    free(address);
}


/* The next item of a comma list; *left becomes NULL behind the last. */
static struct meter_str
item(const char **left)
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


static void
separate(struct buf *list, bool first)
{
    if (!first) {
        buf_put_byte(list, ',');
    }
}
