/*
 * replay_source.c - see replay_source.h.
 *
 *   window  [ done | record | not looked at yet | room for read ]
 *                  ^at                          ^end
 */

#include "cmd/replay_source.h"

#include "base/csv_reader.h"

#include <errno.h>
#include <stdlib.h>

#define READ_SIZE   ((size_t)256 << 10)
#define WINDOW_SIZE (REPLAY_LINE_MAX + 2 + READ_SIZE)

#define STRING(value)   STRING_OF(value)
#define STRING_OF(text) #text

static const char too_long[] =
    "the line is longer than " STRING(METER_EVENT_SIZE_MAX) " bytes";
static const char bad_quotes[] = "the quotes of the line are not those of CSV";

struct replay_source {
    bool is_csv;
    replay_read_cb read;
    void *asker;
    char *window;
    size_t at;
    size_t end;
    bool is_last;   /* nothing more can be read */
    int64_t offset; /* of at */
    int64_t line;   /* at `at` */

    bool is_skipping; /* to the end of a line that is too long */
    int64_t skipped_line;
    char kept[REPLAY_LINE_KEPT];
};

struct replay_source *
replay_source_create(bool is_csv, replay_read_cb read, void *asker)
{
    struct replay_source *source = calloc(1, sizeof(*source));

    if (source == NULL) {
        return NULL;
    }
    *source = (struct replay_source){
        .is_csv = is_csv, .read = read, .asker = asker, .line = 1};
    source->window = malloc(WINDOW_SIZE);
    if (source->window == NULL) {
        free(source);
        return NULL;
    }
    return source;
}

void
replay_source_destroy(struct replay_source *source)
{
    if (source != NULL) {
        free(source->window);
        free(source);
    }
}

void
replay_source_moved(struct replay_source *source, int64_t offset, int64_t line)
{
    source->at = 0;
    source->end = 0;
    source->is_last = false;
    source->is_skipping = false;
    source->offset = offset;
    source->line = line;
}


/* ---- the window ------------------------------------------------------- */

static struct meter_str
window_text(const struct replay_source *source)
{
    return (struct meter_str){source->window + source->at,
                              source->end - source->at};
}

/* Reads more behind what is there; RECORD: there is more, or it is last. */
static enum replay_next
window_fill(struct replay_source *source)
{
    ssize_t size;

    if (source->at > 0) {
        memmove(source->window, source->window + source->at,
                source->end - source->at);
        source->end -= source->at;
        source->at = 0;
    }
    CHECK(source->end < WINDOW_SIZE);
    size = source->read(source->asker, source->window + source->end,
                        WINDOW_SIZE - source->end);
    if (size < 0) {
        return errno == EAGAIN ? REPLAY_AGAIN : REPLAY_FAILED;
    }
    source->end += (size_t)size;
    source->is_last = size == 0;
    return REPLAY_RECORD;
}

static void
window_take(struct replay_source *source, size_t size)
{
    source->at += size;
    source->offset += (int64_t)size;
}

/* True: it is known whether the file starts with one, and it is gone. */
static bool
mark_pass(struct replay_source *source)
{
    static const char mark[] = "\xef\xbb\xbf";
    struct meter_str text = window_text(source);

    if (source->offset > 0 || (text.size < 3 && !source->is_last)) {
        return source->offset > 0;
    }
    if (text.size >= 3 && memcmp(text.data, mark, 3) == 0) {
        window_take(source, 3);
    }
    return true;
}


/* ---- one record ------------------------------------------------------- */

enum found { FOUND, FOUND_BROKEN, FOUND_MORE };

/* The first line; false: the window does not reach that far. */
static bool
line_find(struct meter_str text, bool is_last, size_t *size)
{
    const char *end =
        text.size == 0 ? NULL : memchr(text.data, '\n', text.size);

    *size = end == NULL ? text.size : (size_t)(end - text.data) + 1;
    return end != NULL || is_last;
}

/* *size: with the line break. Too long is what has no end in the window. */
static enum found
record_find(const struct replay_source *source, size_t *size)
{
    struct meter_str text = window_text(source);
    bool is_full = text.size > REPLAY_LINE_MAX + 1;

    if (!source->is_csv) {
        return line_find(text, source->is_last, size) ? FOUND : FOUND_MORE;
    }
    switch (csv_record_end(text, source->is_last, size)) {
    case CSV_END_FOUND:
        if (*size <= REPLAY_LINE_MAX + 2) {
            return FOUND;
        }
        break;
    case CSV_END_MORE:
        if (!is_full) {
            return FOUND_MORE;
        }
        break;
    case CSV_END_BROKEN: break;
    }
    /* As its first line only, whatever the quotes say. */
    return line_find(text, source->is_last, size) ? FOUND_BROKEN : FOUND_MORE;
}

static struct meter_str
break_cut(struct meter_str text)
{
    if (text.size > 0 && text.data[text.size - 1] == '\n') {
        text.size--;
    }
    if (text.size > 0 && text.data[text.size - 1] == '\r') {
        text.size--;
    }
    return text;
}

static bool
is_blank(struct meter_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] != ' ' && text.data[i] != '\t') {
            return false;
        }
    }
    return true;
}

static int64_t
breaks_count(struct meter_str text)
{
    const char *end = text.data + text.size;
    int64_t count = 0;

    for (const char *at = text.data;
         at < end && (at = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at++) {
        count++;
    }
    return count;
}

/* True: *out is a record; false: it was blank. */
static bool
record_take(struct replay_source *source, size_t size, bool is_broken,
            struct replay_record *out)
{
    struct meter_str whole = {source->window + source->at, size};

    out->text = break_cut(whole);
    out->line = source->line;
    out->error = is_broken ? bad_quotes : NULL;
    window_take(source, size);
    source->line += breaks_count(whole);
    out->line_next = source->line;
    out->offset_next = source->offset;
    if (out->text.size > REPLAY_LINE_MAX) {
        out->error = too_long;
        out->text.size = REPLAY_LINE_KEPT;
    }
    return !is_blank(out->text);
}


/* ---- lines that are too long ------------------------------------------ */

static void
skip_begin(struct replay_source *source)
{
    memcpy(source->kept, source->window + source->at, sizeof(source->kept));
    source->is_skipping = true;
    source->skipped_line = source->line;
}

/* True: it is over, and *out is what was kept of the line. */
static bool
skip_on(struct replay_source *source, struct replay_record *out)
{
    size_t size;
    bool is_over = line_find(window_text(source), source->is_last, &size);

    source->line +=
        breaks_count((struct meter_str){source->window + source->at, size});
    window_take(source, size);
    if (!is_over) {
        return false;
    }
    source->is_skipping = false;
    *out = (struct replay_record){
        .text = {source->kept, sizeof(source->kept)},
        .error = too_long,
        .line = source->skipped_line,
        .line_next = source->line,
        .offset_next = source->offset,
    };
    return true;
}


/* True: *out is a record; false: more has to be read, if there is more. */
static bool
record_next(struct replay_source *source, struct replay_record *out)
{
    enum found found;
    size_t size;

    while (source->is_skipping || source->at < source->end) {
        if (source->is_skipping) {
            return skip_on(source, out);
        }
        found = record_find(source, &size);
        if (found != FOUND_MORE) {
            if (record_take(source, size, found == FOUND_BROKEN, out)) {
                return true;
            }
        } else if (source->end - source->at > REPLAY_LINE_MAX + 1) {
            skip_begin(source);
        } else {
            return false;
        }
    }
    return false;
}

enum replay_next
replay_source_next(struct replay_source *source, struct replay_record *out)
{
    for (;;) {
        enum replay_next filled;

        if (mark_pass(source) && record_next(source, out)) {
            return REPLAY_RECORD;
        }
        if (source->is_last) {
            return REPLAY_END;
        }
        filled = window_fill(source);
        if (filled != REPLAY_RECORD) {
            return filled;
        }
    }
}
