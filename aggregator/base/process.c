/*
 * process.c - see process.h.
 */

#include "base/process.h"

#include <malloc.h>
#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>

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
