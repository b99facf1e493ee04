/*
 * shift_clock.c - a wall clock that jumps, for tests.
 *
 *   cc -shared -fPIC -o shift_clock.so shift_clock.c
 *   LD_PRELOAD=./shift_clock.so SHIFT_CLOCK=FILE program
 *
 * FILE holds a signed 64-bit number that both sides share: by how many
 * seconds the program's wall clock is ahead. The monotonic clock goes on.
 */

#define _GNU_SOURCE

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *ahead;

__attribute__((constructor)) static void
shift_start(void)
{
    const char *path = getenv("SHIFT_CLOCK");
    int file = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *map;

    if (file < 0) {
        return;
    }
    map = mmap(NULL, sizeof(*ahead), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    ahead = map == MAP_FAILED ? NULL : map;
}

int
clock_gettime(clockid_t clock, struct timespec *out)
{
    int status = (int)syscall(SYS_clock_gettime, clock, out);

    if (status == 0 && ahead != NULL &&
        (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        out->tv_sec += *ahead;
    }
    return status;
}

int
gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t
time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
