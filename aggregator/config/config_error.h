/*
 * config_error.h - what is wrong with a configuration, and where.
 *
 * A bounded list, filled by every stage of a load: reading goes on after an
 * error where that makes sense, so that one check shows many mistakes.
 * Texts never carry the value of a connection string.
 */

#ifndef CONFIG_CONFIG_ERROR_H
#define CONFIG_CONFIG_ERROR_H

#include <stdio.h>

#include "meter_types.h"

#define CONFIG_ERRORS_MAX          20
#define CONFIG_ERROR_FILE_SIZE_MAX 255
#define CONFIG_ERROR_TEXT_SIZE_MAX 255

/* One thing wrong. line 0: not tied to a place in the file. */
struct config_error {
    char file[CONFIG_ERROR_FILE_SIZE_MAX + 1]; /* tail of a longer path */
    unsigned line;
    unsigned column;
    char text[CONFIG_ERROR_TEXT_SIZE_MAX + 1];
};

struct config_errors {
    struct config_error items[CONFIG_ERRORS_MAX];
    size_t count;
    size_t suppressed; /* found beyond the room above */
};

void config_errors_clear(struct config_errors *errors);

/* Control bytes that came from a file are shown as '?'. file may be "". */
void config_errors_add(struct config_errors *errors, const char *file,
                       unsigned line, unsigned column, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Orders by file, line and column; the files in the order they came. */
void config_errors_sort(struct config_errors *errors);

/* file:line:column: text, one per line. */
void config_errors_print(const struct config_errors *errors, FILE *out);

#endif
