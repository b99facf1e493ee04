/*
 * crash_point.c - see crash_point.h.
 */

#include "base/crash_point.h"

#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
