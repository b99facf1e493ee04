/*
 * progress.h - how far a long command is, for the person who waits.
 *
 *   doing  [=====>     ]  42%  120345/s  0:31 left
 *
 * On stderr: a bar that is drawn again and again on a terminal, else a line
 * every 5 seconds. Nothing is said in the first 2 seconds.
 */

#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include "base/check.h"

#define PROGRESS_TEXT_SIZE 256 /* with the NUL */

struct progress {
    const char *doing; /* borrowed: "counters" */
    const char *unit;  /* borrowed: "events"; NULL: bytes */
    int64_t total;     /* 0: not known */
    int64_t done;
    int64_t skipped; /* of these: before the start; no part of the rate */
    bool is_silent;

    bool is_terminal;
    bool is_drawn; /* a bar stands on the terminal */
    uint64_t started_ms;
    uint64_t told_ms; /* last output */
};

/* Starts the clock. */
void progress_start(struct progress *progress, const char *doing,
                    const char *unit, int64_t total);
/* So many more are done; may write. Cheap: call it for every row. */
void progress_add(struct progress *progress, int64_t count);
/* Wipes the bar; before any other output, and at the end. */
void progress_end(struct progress *progress);

/* What is told, at one moment. */
struct progress_figures {
    const char *doing;
    const char *unit; /* NULL: bytes, told as 12.3 MB */
    int64_t total;    /* 0: not known */
    int64_t done;
    int64_t skipped; /* of these: before the start */
    uint64_t elapsed_ms;
};

/*
 * Pure. Both give the length without the NUL; the text is cut to what out
 * holds and never longer than width columns. Text in `doing` and `unit` is
 * ASCII.
 */
size_t progress_format_bar(const struct progress_figures *figures, size_t width,
                           char out[PROGRESS_TEXT_SIZE]);
size_t progress_format_line(const struct progress_figures *figures,
                            char out[PROGRESS_TEXT_SIZE]);

#endif
