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

/* ---- how often a line is worth it -------------------------------------- */

/*
 * So many lines a second, and how many were left out: for lines that somebody
 * outside can cause at will. The caller writes the line when there is room for
 * it, and the number when a second is over. All zero: nothing written yet.
 */
struct log_limit {
    uint64_t second; /* of the monotonic clock */
    int64_t lines;   /* in this second */
    int64_t suppressed;
};

/* Begins the next second when it is time; how many were left out, now told. */
int64_t log_limit_turn(struct log_limit *limit, uint64_t now_ms);
/* After a turn. False: this line is one too many, and counted. */
MUST_CHECK bool log_limit_take(struct log_limit *limit, int64_t lines_max);

/*
 * For a condition that is met again and again while it lasts: each reason is
 * told when it is new, and once a minute from then on. More than
 * LOG_REPEAT_MAX reasons a minute are too many to read; the others wait for
 * their turn. All zero: nothing was told.
 */
#define LOG_REPEAT_MAX      8
#define LOG_REPEAT_SIZE_MAX 256
#define LOG_REPEAT_EVERY_MS 60000

struct log_repeat {
    struct {
        char reason[LOG_REPEAT_SIZE_MAX]; /* empty: free */
        uint64_t at_ms;
    } of[LOG_REPEAT_MAX];
};

/* True: the caller writes the line now, and the reason counts as told. */
bool log_repeat_is_due(struct log_repeat *repeat, const char *reason,
                       uint64_t now_ms);
/* The condition is over: every reason is new again. */
void log_repeat_forget(struct log_repeat *repeat);

#endif
