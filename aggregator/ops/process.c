/*
 * process.c - see process.h.
 */

#include "ops/process.h"

#include <signal.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/stat.h>

void
process_prepare(void)
{
    struct rlimit none = {0, 0};
    struct rlimit files;

    signal(SIGPIPE, SIG_IGN);
    setrlimit(RLIMIT_CORE, &none);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(0027);
}
