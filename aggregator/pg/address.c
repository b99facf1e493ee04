/*
 * address.c - the hosts of a URL, one by one, looked up without blocking.
 *
 *   pg_conn -> [pg_address] -> uv_getaddrinfo, one name after the other
 *
 * A name that cannot be looked up adds no place; when nothing at all was
 * found the attempt fails and pg_conn backs off.
 */

#include "pg/address.h"

#include <libpq-fe.h>

#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MAX    64
#define NAME_SIZE_MAX 255

struct pg_address {
    uv_getaddrinfo_t request;
    pg_address_cb cb; /* NULL: cancelled */
    void *asker;
    char *hosts; /* comma lists as in the URL, or NULL */
    char *hostaddrs;
    char *ports;
    const char *hosts_left; /* NULL: all done */
    const char *hostaddrs_left;
    const char *ports_left;
    struct meter_str host; /* the one being looked up */
    struct meter_str port;
    struct pg_places *places;
    bool started; /* the first place was taken */
    bool failed;  /* no memory, or too many */
};

static bool parse(struct pg_address *address, const char *url);
static bool
value_of(const PQconninfoOption *parsed, const char *keyword, char **out);
static bool is_name(struct meter_str host);
static bool next(struct pg_address *address);
static bool take(struct pg_address *address, struct meter_str *hostaddr);
static void
resolved(uv_getaddrinfo_t *request, int status, struct addrinfo *found);
static void add(struct pg_address *address, struct meter_str hostaddr);
static char *copy(struct meter_str text);
static void finish(struct pg_address *address);
static void discard(struct pg_address *address);
static struct meter_str item(const char **left);


struct pg_address *
pg_address_resolve(uv_loop_t *loop, const char *url, pg_address_cb cb,
                   void *asker)
{
    struct pg_address *address = calloc(1, sizeof(*address));

    if (address != NULL) {
        address->places = calloc(1, sizeof(struct pg_places) +
                                        PLACES_MAX * sizeof(struct pg_place));
    }
    if (address == NULL || address->places == NULL || !parse(address, url)) {
        discard(address);
        cb(asker, NULL, "the database URL cannot be read");
        return NULL;
    }
    address->request.loop = loop;
    address->cb = cb;
    address->asker = asker;
    address->hosts_left = address->hosts;
    address->hostaddrs_left = address->hostaddrs;
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


void
pg_places_free(struct pg_places *places)
{
    for (size_t i = 0; places != NULL && i < places->count; i++) {
        free(places->of[i].host);
        free(places->of[i].hostaddr);
        free(places->of[i].port);
    }
    free(places);
}


/* False: a bad URL, or no memory. */
static bool
parse(struct pg_address *address, const char *url)
{
    PQconninfoOption *parsed = PQconninfoParse(url, NULL);

    bool ok = parsed != NULL && value_of(parsed, "host", &address->hosts) &&
              value_of(parsed, "hostaddr", &address->hostaddrs) &&
              value_of(parsed, "port", &address->ports);

    PQconninfoFree(parsed);
    return ok;
}


/* False: no memory. *out stays NULL when the URL does not say. */
static bool
value_of(const PQconninfoOption *parsed, const char *keyword, char **out)
{
    for (; parsed->keyword != NULL; parsed++) {
        if (strcmp(parsed->keyword, keyword) == 0 && parsed->val != NULL &&
            parsed->val[0] != '\0') {
            *out = strdup(parsed->val);
            return *out != NULL;
        }
    }
    return true;
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
    struct meter_str hostaddr;

    while (take(address, &hostaddr)) {
        char name[NAME_SIZE_MAX + 1];

        if (hostaddr.size > 0 || !is_name(address->host)) {
            add(address, hostaddr);
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


/*
 * The next items of the lists; false: none is left. One port is for all, and
 * a URL without a host is one place too.
 */
static bool
take(struct pg_address *address, struct meter_str *hostaddr)
{
    bool has_many = address->ports != NULL && strchr(address->ports, ',');

    if (address->started && address->hosts_left == NULL &&
        address->hostaddrs_left == NULL) {
        return false;
    }
    address->started = true;
    address->host = item(&address->hosts_left);
    *hostaddr = item(&address->hostaddrs_left);
    if (has_many) {
        address->port = item(&address->ports_left);
    } else {
        address->port = (struct meter_str){
            address->ports == NULL ? "" : address->ports,
            address->ports == NULL ? 0 : strlen(address->ports)};
    }
    return true;
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
            add(address, (struct meter_str){text, strlen(text)});
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
add(struct pg_address *address, struct meter_str hostaddr)
{
    struct pg_places *places = address->places;

    if (places->count == PLACES_MAX) {
        address->failed = true;
        return;
    }

    struct pg_place *place = &places->of[places->count++];

    place->host = copy(address->host);
    place->hostaddr = copy(hostaddr);
    place->port = copy(address->port);
    address->failed = address->failed ||
                      (address->host.size > 0 && place->host == NULL) ||
                      (hostaddr.size > 0 && place->hostaddr == NULL) ||
                      (address->port.size > 0 && place->port == NULL);
}


/* NULL: empty, or no memory. */
static char *
copy(struct meter_str text)
{
    return text.size == 0 ? NULL : strndup(text.data, text.size);
}


static void
finish(struct pg_address *address)
{
    struct pg_places *places = address->places;
    pg_address_cb cb = address->cb;
    void *asker = address->asker;
    const char *error = NULL;

    if (address->failed) {
        error = "too many host addresses, or no memory for them";
    } else if (places->count == 0) {
        error = "the host name cannot be looked up";
    } else {
        address->places = NULL;
    }
    discard(address);
    cb(asker, error == NULL ? places : NULL, error);
}


static void
discard(struct pg_address *address)
{
    if (address == NULL) {
        return;
    }
    free(address->hosts);
    free(address->hostaddrs);
    free(address->ports);
    pg_places_free(address->places);
    free(address);
}


/* The next item of a comma list; *left becomes NULL after the last. */
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
