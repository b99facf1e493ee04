/*
 * process.c - the life of a process: what it sets up, what it tells the service
 * manager, how it ends.
 *
 *   main, commands -> process_prepare
 *   daemon -> [notify] -> datagram to $NOTIFY_SOCKET
 *   everything -> CHECK, CRASH_POINT
 *
 * notify speaks the protocol of systemd's Type=notify. A process ends by abort
 * where it finds itself wrong, and by SIGKILL at the crash point that a test
 * has armed.
 */

#include "base/process.h"

#include "base/check.h"
#include "base/notify.h"

#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* A batch, its streams and its answer are made and freed a hundred times a
   second: keep their pages instead of asking the kernel for them again. */
#define HEAP_KEPT_MAX   (16 << 20)
#define HEAP_MAPPED_MIN (4 << 20)

void
process_prepare(void)
{
    struct rlimit none = {0, 0};
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGUSR1, SIG_IGN); /* meterd run alone has a log file to open */
    setrlimit(RLIMIT_CORE, &none);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    mallopt(M_MMAP_THRESHOLD, HEAP_MAPPED_MIN);
    mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_MAX);
    umask(0027);
}


/* ---- the service manager: sending ------------------------------------ */

#define START_WAIT_MS 5000 /* for the database; then others may start */

static struct {
    struct sockaddr_un address;
    socklen_t size;    /* of the address; 0: nobody listens */
    bool is_announced; /* READY=1 was sent */
    bool is_there;     /* the database, as was told last */
    bool is_stopping;
    uv_timer_t wait; /* for the database, at the start */
    uv_timer_t watchdog;
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

static void
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

/* The first status that is told makes the service a ready one. */
static void
notify_status(const char *status)
{
    char lines[128];

    snprintf(lines, sizeof(lines), "%sSTATUS=%s\n",
             notify.is_announced ? "" : "READY=1\n", status);
    notify.is_announced = true;
    notify_send(lines);
}

static void
notify_away(void)
{
    notify_status("PostgreSQL is away; usage waits in the outbox");
}


/* ---- the service manager: from the loop ------------------------------ */

static void
notify_wait_cb(uv_timer_t *timer)
{
    (void)timer;
    if (!notify.is_announced && !notify.is_stopping) {
        notify_away();
    }
}

static void
notify_watchdog_cb(uv_timer_t *timer)
{
    (void)timer;
    notify_send("WATCHDOG=1");
}

/* Half the time asked for, so that one that comes late does no harm. */
static uint64_t
notify_watchdog_ms(void)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");

    if (usec == NULL ||
        (pid != NULL && strtol(pid, NULL, 10) != (long)getpid())) {
        return 0;
    }
    return strtoull(usec, NULL, 10) / 2000;
}

void
notify_start(uv_loop_t *loop)
{
    const char *name = getenv("NOTIFY_SOCKET");
    uint64_t watchdog_ms = notify_watchdog_ms();

    if (name != NULL) {
        notify_address_set(name);
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    CHECK(uv_timer_init(loop, &notify.wait) == 0);
    CHECK(uv_timer_init(loop, &notify.watchdog) == 0);
    notify_send("STATUS=waiting for PostgreSQL");
    uv_timer_start(&notify.wait, notify_wait_cb, START_WAIT_MS, 0);
    if (watchdog_ms > 0) {
        uv_timer_start(&notify.watchdog, notify_watchdog_cb, watchdog_ms,
                       watchdog_ms);
    }
}

void
notify_database(bool is_there)
{
    if (is_there == notify.is_there || notify.is_stopping) {
        return;
    }
    notify.is_there = is_there;
    if (is_there) {
        notify_status("taking events");
    } else {
        notify_away();
    }
}

void
notify_stopping(void)
{
    notify.is_stopping = true;
    notify_send("STOPPING=1\nSTATUS=finishing what is queued");
}

void
notify_close(void)
{
    uv_close((uv_handle_t *)&notify.wait, NULL);
    uv_close((uv_handle_t *)&notify.watchdog, NULL);
}


/* ---- the end --------------------------------------------------------- */

void
check_failed(const char *condition, const char *file, int line)
{
    fprintf(stderr,
            "{\"level\":\"error\",\"subsystem\":\"check\",\"message\":"
            "\"invariant broken\",\"condition\":\"%s\",\"file\":\"%s\","
            "\"line\":%d}\n",
            condition, file, line);
    abort();
}

bool crash_point_armed;

static const char *crash_point_name;
static size_t crash_point_size;
static unsigned long crash_point_hits_left = 1;

/* Before main: the environment does not change later. */
__attribute__((constructor)) static void
crash_point_arm(void)
{
    const char *wish = getenv("METERD_CRASH_POINT");
    const char *colon;

    if (wish == NULL || *wish == '\0') {
        return;
    }
    colon = strchr(wish, ':');
    crash_point_name = wish;
    crash_point_size = colon == NULL ? strlen(wish) : (size_t)(colon - wish);
    if (colon != NULL) {
        crash_point_hits_left = strtoul(colon + 1, NULL, 10);
    }
    crash_point_armed = crash_point_hits_left > 0;
}

void
crash_point_reached(const char *name)
{
    if (strlen(name) != crash_point_size ||
        memcmp(name, crash_point_name, crash_point_size) != 0) {
        return;
    }
    if (--crash_point_hits_left == 0) {
        kill(getpid(), SIGKILL);
    }
}
