/*
 * log.h - one JSON object a line on stderr, or in a file; plain text for
 * commands.
 *
 *   log_info("ingest", "batch committed", log_int("rows", n));
 *
 * Log a change of state once, not a condition repeatedly. Values are
 * escaped and cut to LOG_VALUE_SIZE_MAX bytes; secrets never come here.
 */

#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/check.h"

#define LOG_VALUE_SIZE_MAX 256

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

enum log_kind { LOG_KIND_STR, LOG_KIND_INT, LOG_KIND_BOOL };

struct log_field {
    const char *name;
    enum log_kind kind;
    struct meter_str str;
    int64_t number;
};

static inline struct log_field
log_bytes(const char *name, struct meter_str value)
{
    return (struct log_field){name, LOG_KIND_STR, value, 0};
}

static inline struct log_field
log_str(const char *name, const char *value)
{
    value = value == NULL ? "" : value;
    return log_bytes(name, (struct meter_str){value, strlen(value)});
}

static inline struct log_field
log_int(const char *name, int64_t value)
{
    return (struct log_field){name, LOG_KIND_INT, {NULL, 0}, value};
}

static inline struct log_field
log_bool(const char *name, bool value)
{
    return (struct log_field){name, LOG_KIND_BOOL, {NULL, 0}, value};
}

/*
 * For commands at a terminal: from now on the lines are for a person, "NAME:
 * message" and each field on a line of its own. `name` outlives the process.
 */
void log_for_person(const char *name);

/*
 * From now on the lines go to this file, which is made where there is none,
 * and no longer where they went; again, after the file was renamed. False:
 * they go where they went, errno says why.
 */
MUST_CHECK bool log_file_open(const char *path);

/* Lines above the level are not written; INFO until set. */
void log_level_set(enum log_level level);
bool log_enabled(enum log_level level);

void log_write(enum log_level level, const char *subsystem, const char *message,
               const struct log_field *fields, size_t count);

#define LOG_LINE(level, subsystem, message, ...)                         \
    do {                                                                 \
        if (log_enabled(level)) {                                        \
            const struct log_field log_fields_[] = {{0}, ##__VA_ARGS__}; \
            log_write(level, subsystem, message, log_fields_ + 1,        \
                      sizeof(log_fields_) / sizeof(log_fields_[0]) - 1); \
        }                                                                \
    } while (0)

#define log_error(subsystem, message, ...) \
    LOG_LINE(LOG_ERROR, subsystem, message, ##__VA_ARGS__)
#define log_warn(subsystem, message, ...) \
    LOG_LINE(LOG_WARN, subsystem, message, ##__VA_ARGS__)
#define log_info(subsystem, message, ...) \
    LOG_LINE(LOG_INFO, subsystem, message, ##__VA_ARGS__)
#define log_debug(subsystem, message, ...) \
    LOG_LINE(LOG_DEBUG, subsystem, message, ##__VA_ARGS__)

#endif
