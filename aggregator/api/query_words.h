/*
 * query_words.h - the arguments of GET /v1/query as the words of a question.
 *
 *   metric=requests&where.route=/a&group_by=a,b -> [query_words] -> words
 *
 * Texts stay texts; group_by and quantiles are cut at their commas; where
 * is JSON. where.NAME is the dimension NAME, its value read in all ways in
 * which it may have been sent, as those of counters are.
 */

#ifndef API_QUERY_WORDS_H
#define API_QUERY_WORDS_H

#include "api/url.h"
#include "query/query.h"

/* A sentence for a 400, or NULL. All is in the arena. */
const char *
query_words_read(const struct url_arguments *arguments, struct arena *arena,
                 const struct json_value *values[QUERY_WORDS]);

/* The filters of where.NAME; the rest is passed over. Likewise. */
const char *
query_words_filters(const struct url_arguments *arguments,
                    const struct series *series, struct arena *arena,
                    struct query_filters *filters);

#endif
