/*
 * url.h - the pieces of a raw request target. Pure.
 *
 * Everything is decoded exactly once, piece by piece: a path is cut at its
 * slashes first, so that %2F is part of a segment. What comes out is
 * well-formed UTF-8 without NUL, or an error.
 */

#ifndef API_URL_H
#define API_URL_H

#include "base/arena.h"

#define URL_SEGMENTS_MAX  8
#define URL_ARGUMENTS_MAX 64

struct url_path {
    struct meter_str segments[URL_SEGMENTS_MAX];
    size_t count;
    bool too_deep; /* more segments than anything here has */
};

struct url_argument {
    struct meter_str name;
    struct meter_str value;
};

struct url_arguments {
    struct url_argument items[URL_ARGUMENTS_MAX];
    size_t count;
};

/* "/a/b" gives a, b; "/a/" gives a and an empty one. False: *error. */
MUST_CHECK bool url_path_read(struct meter_str raw, struct arena *arena,
                              struct url_path *out, const char **error);

/*
 * name=value pairs between '&'; '+' is a space, a missing '=' an empty
 * value, an empty pair is skipped. The same name twice is an error. False:
 * *error, which lives in the arena or is a literal.
 */
MUST_CHECK bool
url_arguments_read(struct meter_str raw, struct arena *arena,
                   struct url_arguments *out, const char **error);

/* The argument of this name; NULL: not given. */
const struct url_argument *
url_argument_find(const struct url_arguments *arguments, const char *name);

#endif
