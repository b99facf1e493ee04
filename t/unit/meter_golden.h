/*
 * meter_golden.h - reads a golden frame: hexadecimal text, # comments.
 */

#ifndef METER_GOLDEN_H
#define METER_GOLDEN_H

#include "meter_cmocka.h"

/* The golden directory lies beside the test's source. */
static inline size_t
golden_read(const char *source, const char *name, uint8_t *out, size_t room)
{
    const char *slash = strrchr(source, '/');
    int directory = slash == NULL ? 0 : (int)(slash - source + 1);
    char path[512], line[256];
    size_t size = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%.*sgolden/%s.hex", directory, source, name);
    file = fopen(path, "r");
    if (file == NULL) {
        fail_msg("cannot open %s", path);
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        const char *at = line;
        unsigned byte;
        int used;

        while (line[0] != '#' && sscanf(at, " %2x%n", &byte, &used) == 1) {
            assert_true(size < room);
            out[size++] = (uint8_t)byte;
            at += used;
        }
    }
    fclose(file);
    return size;
}

#endif
