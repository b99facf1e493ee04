/*
 * progress.c - how far a long command is, for the person who waits.
 *
 *   maintain, cmd -> [progress_add] -> a bar on the terminal, or lines
 *
 * The two format functions are pure; what draws asks the clock and stderr.
 */

#include "base/progress.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define SILENT_MS     2000
#define LINE_MS       5000
#define BAR_MS        200
#define WIDTH_DEFAULT 80
#define CELLS_MIN     10
#define CELLS_MAX     40
#define HOURS_MAX     999 /* then it is not told */

#define PERCENT_SIZE 8
#define RATE_SIZE    32
#define AMOUNT_SIZE  80
#define CLOCK_SIZE   32
#define TAIL_SIZE    160

/* The figures as words; one that is not known is "". */
struct progress_words {
    char percent[PERCENT_SIZE];
    char rate[RATE_SIZE];
    char left[CLOCK_SIZE];
    char elapsed[CLOCK_SIZE];
};


/* 0:31, 12:05, 3:04:05. */
static void
clock_format(double seconds, char out[CLOCK_SIZE])
{
    unsigned long whole = (unsigned long)seconds;

    if (whole >= 3600) {
        snprintf(out, CLOCK_SIZE, "%lu:%02lu:%02lu", whole / 3600,
                 whole / 60 % 60, whole % 60);
    } else {
        snprintf(out, CLOCK_SIZE, "%lu:%02lu", whole / 60, whole % 60);
    }
}

/* 512 bytes, 1.5 kB, 12.3 MB, ... */
static void
bytes_format(double bytes, char out[RATE_SIZE])
{
    static const char *const units[] = {"kB", "MB", "GB", "TB"};
    size_t unit = 0;

    if (bytes < 1000) {
        snprintf(out, RATE_SIZE, "%.0f bytes", bytes);
        return;
    }
    for (bytes /= 1000; bytes >= 1000 && unit < 3; unit++) {
        bytes /= 1000;
    }
    snprintf(out, RATE_SIZE, "%.1f %s", bytes, units[unit]);
}

static void
rate_format(const struct progress_figures *figures, double rate,
            char out[RATE_SIZE])
{
    if (figures->unit != NULL) {
        snprintf(out, RATE_SIZE, rate < 10 ? "%.1f/s" : "%.0f/s", rate);
        return;
    }
    bytes_format(rate, out);
    snprintf(out + strlen(out), RATE_SIZE - strlen(out), "/s");
}

/* "5 of 10 events", "1.2 MB". */
static void
amount_format(const struct progress_figures *figures, bool has_of,
              char out[AMOUNT_SIZE])
{
    char done[RATE_SIZE];
    char of[RATE_SIZE] = "";

    if (figures->unit == NULL) {
        bytes_format((double)figures->done, done);
        bytes_format((double)figures->total, of);
        snprintf(out, AMOUNT_SIZE, "%s%s%s", done, has_of ? " of " : "",
                 has_of ? of : "");
        return;
    }
    if (has_of) {
        snprintf(of, sizeof(of), " of %lld", (long long)figures->total);
    }
    snprintf(out, AMOUNT_SIZE, "%lld%s %s", (long long)figures->done, of,
             figures->unit);
}

/* A total that turned out too small tells nothing. */
static bool
has_total(const struct progress_figures *figures)
{
    return figures->total > 0 && figures->done >= 0 &&
           figures->done <= figures->total;
}

static void
words_of(const struct progress_figures *figures, struct progress_words *out)
{
    double seconds = (double)figures->elapsed_ms / 1000;
    double done = figures->done < 0 ? 0 : (double)figures->done;
    double gone = done - (double)figures->skipped; /* since the start */
    double rate = seconds > 0 ? gone / seconds : 0;
    double left;

    *out = (struct progress_words){.rate = ""};
    clock_format(seconds, out->elapsed);
    if (rate > 0) {
        rate_format(figures, rate, out->rate);
    }
    if (!has_total(figures)) {
        return;
    }
    snprintf(out->percent, PERCENT_SIZE, "%d%%",
             (int)(done * 100 / (double)figures->total));
    if (rate > 0) {
        left = ((double)figures->total - done) * seconds / gone;
        if (left / 3600 < HOURS_MAX) {
            clock_format(left, out->left);
        }
    }
}

/* "[===>      ]" of so many cells; out holds two more and a NUL. */
static void
bar_fill(const struct progress_figures *figures, size_t cells, char *out)
{
    size_t full = (size_t)((double)figures->done * (double)cells /
                           (double)figures->total);

    out[0] = '[';
    for (size_t i = 0; i < cells; i++) {
        out[1 + i] = i < full ? '=' : i == full ? '>' : ' ';
    }
    out[1 + cells] = ']';
    out[2 + cells] = '\0';
}

/* What does not fit stays away, the bar first; the rest is cut. */
size_t
progress_format_bar(const struct progress_figures *figures, size_t width,
                    char out[PROGRESS_TEXT_SIZE])
{
    struct progress_words words;
    char tail[TAIL_SIZE];
    char amount[AMOUNT_SIZE];
    char bar[CELLS_MAX + 3];
    size_t used;
    size_t cells;

    words_of(figures, &words);
    if (width > PROGRESS_TEXT_SIZE - 1) {
        width = PROGRESS_TEXT_SIZE - 1;
    }
    if (has_total(figures)) {
        snprintf(tail, sizeof(tail), "%4s%s%s%s%s%s", words.percent,
                 words.rate[0] != '\0' ? "  " : "", words.rate,
                 words.left[0] != '\0' ? "  " : "", words.left,
                 words.left[0] != '\0' ? " left" : "");
    } else {
        amount_format(figures, false, amount);
        snprintf(tail, sizeof(tail), "%s%s%s  %s", amount,
                 words.rate[0] != '\0' ? "  " : "", words.rate, words.elapsed);
    }
    used = strlen(figures->doing) + 2 + strlen(tail);
    cells = width > used + 4 ? width - used - 4 : 0;
    if (!has_total(figures) || cells < CELLS_MIN) {
        snprintf(out, width + 1, "%s  %s", figures->doing, tail);
    } else {
        bar_fill(figures, cells < CELLS_MAX ? cells : CELLS_MAX, bar);
        snprintf(out, width + 1, "%s  %s  %s", figures->doing, bar, tail);
    }
    return strlen(out);
}

size_t
progress_format_line(const struct progress_figures *figures,
                     char out[PROGRESS_TEXT_SIZE])
{
    struct progress_words words;
    char amount[AMOUNT_SIZE];

    words_of(figures, &words);
    amount_format(figures, has_total(figures), amount);
    snprintf(out, PROGRESS_TEXT_SIZE, "%s: %s%s%s%s%s%s%s%s", figures->doing,
             words.percent, words.percent[0] != '\0' ? ", " : "", amount,
             words.rate[0] != '\0' ? ", " : "", words.rate,
             words.left[0] != '\0' ? ", " : "", words.left,
             words.left[0] != '\0' ? " left" : "");
    return strlen(out);
}


/* ---- output ----------------------------------------------------------- */

static size_t
terminal_width(void)
{
    struct winsize size;

    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) {
        return WIDTH_DEFAULT - 1;
    }
    return size.ws_col - 1u; /* the last column would wrap */
}

void
progress_start(struct progress *progress, const char *doing, const char *unit,
               int64_t total)
{
    const char *terminal = getenv("TERM");

    *progress = (struct progress){
        .doing = doing,
        .unit = unit,
        .total = total,
        .is_terminal = isatty(STDERR_FILENO) == 1 && terminal != NULL &&
                       strcmp(terminal, "dumb") != 0,
        .started_ms = clock_mono_ms(),
    };
    progress->told_ms = progress->started_ms;
}

static void
progress_tell(struct progress *progress, uint64_t now_ms)
{
    const struct progress_figures figures = {
        .doing = progress->doing,
        .unit = progress->unit,
        .total = progress->total,
        .done = progress->done,
        .skipped = progress->skipped,
        .elapsed_ms = now_ms - progress->started_ms,
    };
    char text[PROGRESS_TEXT_SIZE];

    if (progress->is_terminal) {
        progress_format_bar(&figures, terminal_width(), text);
        fprintf(stderr, "\r%s\033[K", text);
        progress->is_drawn = true;
    } else {
        progress_format_line(&figures, text);
        fprintf(stderr, "%s\n", text);
    }
    fflush(stderr);
    progress->told_ms = now_ms;
}

void
progress_add(struct progress *progress, int64_t count)
{
    uint64_t now_ms;

    progress->done += count;
    if (progress->is_silent) {
        return;
    }
    now_ms = clock_mono_ms();
    if (now_ms - progress->started_ms < SILENT_MS ||
        now_ms - progress->told_ms <
            (progress->is_terminal ? BAR_MS : LINE_MS)) {
        return;
    }
    progress_tell(progress, now_ms);
}

void
progress_end(struct progress *progress)
{
    if (progress->is_drawn) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->is_drawn = false;
    }
}
