/*
 * notify.c - see notify.h.
 */

#include "ops/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct {
    struct sockaddr_un address;
    socklen_t size; /* of the address; 0: nobody listens */
    uint64_t watchdog_ms;
} notify;

/* A path, or with '@' before it a name of the abstract namespace. */
static void
notify_address_set(const char *name)
{
    size_t size = strlen(name);
    struct sockaddr_un *address = &notify.address;

    if ((name[0] != '/' && name[0] != '@') || size < 2 ||
        size >= sizeof(address->sun_path)) {
        return;
    }
    address->sun_family = AF_UNIX;
    memcpy(address->sun_path, name, size);
    if (name[0] == '@') {
        address->sun_path[0] = '\0';
    }
    notify.size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
}

/* Half the time, so that one that comes late does no harm. */
static void
notify_watchdog_set(const char *usec, const char *pid)
{
    if (usec == NULL || (pid != NULL && atol(pid) != (long)getpid())) {
        return;
    }
    notify.watchdog_ms = strtoull(usec, NULL, 10) / 2000;
}

void
notify_open(void)
{
    const char *name = getenv("NOTIFY_SOCKET");

    if (name != NULL) {
        notify_address_set(name);
        notify_watchdog_set(getenv("WATCHDOG_USEC"), getenv("WATCHDOG_PID"));
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void
notify_send(const char *lines)
{
    int fd;

    if (notify.size == 0) {
        return;
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return;
    }
    (void)sendto(fd, lines, strlen(lines), MSG_NOSIGNAL,
                 (const struct sockaddr *)&notify.address, notify.size);
    close(fd);
}

uint64_t
notify_watchdog_ms(void)
{
    return notify.watchdog_ms;
}
