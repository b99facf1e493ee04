/*
 * options.h - every scalar option of the configuration, one row each.
 *
 * The row feeds parsing, defaults, range errors, `meterd check
 * --print-options` and docs/options.md. Rules (events, counters, usage,
 * meters, series) are no options: catalog_build.h.
 */

#ifndef CONFIG_OPTIONS_H
#define CONFIG_OPTIONS_H

#include "base/buf.h"
#include "config/config.h"

/* Texts come first: option_is_text. */
enum option_type {
    OPTION_DATABASE, /* const char *: postgres://... or key=value pairs */
    OPTION_PATH,     /* const char *: absolute */
    OPTION_LISTEN,   /* const char *: unix:PATH, kept without unix: */
    OPTION_NODE,     /* const char *: letters, digits, '_', '.', '-' */
    OPTION_BOOL,     /* bool */
    OPTION_INTEGER,  /* int64_t */
    OPTION_DURATION, /* int64_t, microseconds */
    OPTION_SKEW,     /* the same, or none = CONFIG_NONE */
    OPTION_DAYS,     /* int64_t: whole days, or forever = CONFIG_NONE */
    OPTION_WORD,     /* int64_t: position in `words` */
    OPTION_USERS     /* struct config_users: a list of user names */
};

enum option_flag {
    OPTION_RELOAD = 1 << 0, /* a reload applies it; else a restart does */
    OPTION_SECRET = 1 << 1  /* never printed */
};

struct option_row {
    const char *name; /* "limits.queueEvents"; at most one dot */
    enum option_type type;
    size_t offset;        /* in struct config */
    const char *fallback; /* default as text; NULL: none */
    int64_t min;          /* numbers, durations, days: inclusive */
    int64_t max;
    unsigned flags;
    const char *const *words; /* OPTION_WORD: NULL-terminated */
    const char *help;         /* one sentence or two, Markdown */
};

static inline bool
option_is_text(const struct option_row *row)
{
    return row->type <= OPTION_NODE;
}

/* The table, grouped by section. */
const struct option_row *options_table(size_t *count);

/* The value as text: "" when there is none, "(set)" for a secret. */
void options_format(const struct option_row *row, const struct config *config,
                    struct buf *out);

/* The whole table for people, as plain text or as Markdown. */
void options_print(bool markdown, FILE *out);

#endif
