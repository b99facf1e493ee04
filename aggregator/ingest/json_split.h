/*
 * json_split.h - the outline of a request body. Pure.
 *
 *   body -> [split] -> element, element, ... -> envelope
 *
 * Knows three forms: one object; an array; {"events": [...]}, an object
 * whose only member is an array named "events". Looks at brackets, commas
 * and quotes only; what is inside an element is the reader's to judge, and
 * the reader says how far it went. CloudEvents have the first two, and
 * their Content-Type says which.
 */

#ifndef INGEST_JSON_SPLIT_H
#define INGEST_JSON_SPLIT_H

#include "base/check.h"

struct json_split {
    struct meter_str body;
    size_t at;
    bool list;         /* an array, or wrapped in "events" */
    bool wrapped;      /* {"events": [...]} */
    bool first;        /* no element was handed out yet */
    bool done;         /* nothing is left */
    const char *error; /* fixed sentence; NULL: the outline holds */
    size_t error_offset;
};

/* False: error says why the body is none of the forms. */
MUST_CHECK bool
json_split_init(struct json_split *split, struct meter_str body);
/* The same for one form alone: an array, or one object of any members. */
MUST_CHECK bool json_split_init_form(struct json_split *split,
                                     struct meter_str body, bool is_list);

/*
 * The next element: *rest starts at its first byte and goes to the end of
 * the body, so that one pass can find its end and its content. False: the
 * end, or error is set. After true comes json_split_take.
 */
MUST_CHECK bool
json_split_next(struct json_split *split, struct meter_str *rest);
/* The element was this long. */
void json_split_take(struct json_split *split, size_t size);

/*
 * Walks the members of an object that may be broken inside: *at starts at
 * 1, behind its brace. True: name is the raw text of a key with its quotes,
 * value starts at its value and ends where the value ends. False: no more,
 * or the walk is lost.
 */
MUST_CHECK bool
json_split_member(struct meter_str object, size_t *at, struct meter_str *name,
                  struct meter_str *value);

#endif
