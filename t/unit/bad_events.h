/*
 * bad_events.h - reads bad_events.txt, see the head of that file.
 */

#ifndef BAD_EVENTS_H
#define BAD_EVENTS_H

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

#define BAD_EVENTS_FILE "t/unit/bad_events.txt"
#define BAD_EVENTS_MAX  512

struct bad_event {
    char *name;
    struct buf element;
    char *reason; /* without the ! */
    bool breaks_outline;
};

struct bad_events {
    struct bad_event items[BAD_EVENTS_MAX];
    size_t count;
};

/* \xHH only; returns behind what it took. */
static inline const char *
bad_events_put_byte(const char *at, struct buf *out)
{
    unsigned byte;

    if (at[0] == '\\' && at[1] == 'x' && sscanf(at + 2, "%2x", &byte) == 1) {
        buf_put_byte(out, (uint8_t)byte);
        return at + 4;
    }
    buf_put_byte(out, (uint8_t)*at);
    return at + 1;
}

static inline void
bad_events_unescape(const char *at, struct buf *out)
{
    while (*at != '\0') {
        const char *text, *end;
        long turns;

        if (at[0] != '\\' || at[1] != '*') {
            at = bad_events_put_byte(at, out);
            continue;
        }
        turns = strtol(at + 2, (char **)&text, 10);
        end = strchr(text, '>');
        CHECK(*text == '<' && end != NULL && turns > 0);
        for (long turn = 0; turn < turns; turn++) {
            for (at = text + 1; at < end;) {
                if (*at == '#') {
                    buf_printf(out, "%ld", turn);
                    at++;
                } else {
                    at = bad_events_put_byte(at, out);
                }
            }
        }
        at = end + 1;
    }
}

static inline void
bad_events_load(struct bad_events *bad)
{
    FILE *file = fopen(BAD_EVENTS_FILE, "r");
    char *line = NULL;
    size_t room = 0;

    bad->count = 0;
    CHECK(file != NULL);
    while (getline(&line, &room, file) > 0) {
        struct bad_event *item = &bad->items[bad->count];
        char *element, *reason;

        if (line[0] == '#') {
            continue;
        }
        line[strcspn(line, "\n")] = '\0';
        element = strchr(line, '\t');
        CHECK(element != NULL && bad->count < BAD_EVENTS_MAX);
        *element++ = '\0';
        reason = strchr(element, '\t');
        CHECK(reason != NULL);
        *reason++ = '\0';
        item->breaks_outline = *reason == '!';
        item->name = strdup(line);
        item->reason = strdup(reason + item->breaks_outline);
        buf_init(&item->element, 1 << 20);
        bad_events_unescape(element, &item->element);
        CHECK(!item->element.failed);
        bad->count++;
    }
    free(line);
    fclose(file);
}

static inline void
bad_events_free(struct bad_events *bad)
{
    for (size_t i = 0; i < bad->count; i++) {
        free(bad->items[i].name);
        free(bad->items[i].reason);
        buf_fini(&bad->items[i].element);
    }
}

#endif
