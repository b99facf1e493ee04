/*
 * line_split.c - see line_split.h.
 *
 * Blank lines are passed byte by byte in one walk: a body of nothing but
 * line ends costs no more than any other.
 */

#include "ingest/line_split.h"

static bool
is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

bool
line_split_next(struct line_split *split, struct meter_str *line)
{
    const char *at = split->rest.data;
    const char *end, *feed;

    if (split->rest.size == 0) {
        return false;
    }
    end = at + split->rest.size;
    split->number++;
    while (at < end && (is_blank(*at) || *at == '\n')) {
        split->number += *at++ == '\n';
    }
    feed = at < end ? memchr(at, '\n', (size_t)(end - at)) : NULL;
    split->rest.data = feed == NULL ? end : feed + 1;
    split->rest.size = (size_t)(end - split->rest.data);
    *line = (struct meter_str){at, (size_t)((feed == NULL ? end : feed) - at)};
    while (line->size > 0 && is_blank(line->data[line->size - 1])) {
        line->size--;
    }
    return line->size > 0;
}
