/*
 * query_question.h - a question about a series on its way to the answer.
 *
 *   query_api.c  -> [query_mark.c: how far, which sets] -> query_api.c
 */

#ifndef API_QUERY_QUESTION_H
#define API_QUERY_QUESTION_H

#include "api/page.h"
#include "api/call.h"
#include "query/answer.h"
#include "query/planner.h"

#define QUESTION_MEMORY_MAX    (96u << 20)
#define QUESTION_ERROR_WINDOWS "more than 10000 windows are asked for"
_Static_assert(WINDOWS_MAX == 10000, "the sentence says 10000");

/* The call's state. */
struct question {
    struct query query;
    enum accept_form form;
    enum meter_level level;
    struct windows windows;
    struct groups groups;
    int64_t floors_us[METER_LEVEL_COUNT];
    int64_t mark_us; /* what was committed by then is in the buckets */
    struct window_dirt *dirt;
    size_t dirt_count;
    bool is_dirt_cut;                    /* there is more of it */
    void (*next)(struct api_call *call); /* once the mark is read */
};

/*
 * Reads mark, floors and dimension sets of the question's level. Windows are
 * then made, but for those of a time zone, and judged; groups are sorted.
 * next is called, or the call has its answer.
 */
void question_mark(struct api_call *call, void (*next)(struct api_call *call));

/* NULL, or the sentence of a 422: the level is not kept so far back. */
const char *question_floor_check(struct api_call *call);

#endif
