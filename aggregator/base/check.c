/*
 * check.c - the end of a process that found itself wrong.
 */

#include "base/check.h"

#include <stdio.h>
#include <stdlib.h>

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
