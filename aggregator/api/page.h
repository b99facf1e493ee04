/*
 * page.h - answers in pages, as JSON or as a table (CSV).
 *
 *   question, arguments -> [page_read] -> limit, key to go on from
 *   rows -> [page_row_count, page_end] -> how many to show, "cursor"
 *   Accept -> [table_form] -> ... -> [table_answer]
 *
 * A statement is asked for limit + 1 rows in the order of a unique key: the
 * last one is not shown and says that there is more. A cursor is base64url
 * of a check and the key of the last row shown:
 *
 *   [check 8][key 1..PAGE_KEY_SIZE_MAX]
 *
 * The check is of the question and the key, so a cursor that was cut or
 * belongs to another question is refused. It is no signature: whoever knows
 * this can make one, so a key is read as carefully as any argument.
 *
 * A table has no room for a cursor: the next page is in the header
 *
 *   Link: <?metric=api_calls&cursor=...>; rel="next"
 *
 * a reference that is relative to the address asked for, whatever location
 * the operator gave it.
 */

#ifndef API_PAGE_H
#define API_PAGE_H

#include "api/call.h"
#include "meter_tuple.h"

#define PAGE_LIMIT_DEFAULT 100
#define PAGE_LIMIT_MAX     1000
#define PAGE_KEY_SIZE_MAX  1024

/* Also for a key that the caller cannot read. */
#define PAGE_ERROR_CURSOR "the cursor does not belong to this question"

struct page {
    struct meter_tuple question; /* gathered until page_read */
    uint8_t asked[METER_DIGEST_SIZE];
    int64_t limit;
    struct meter_str after; /* in the arena; data NULL: from the start */
};

/* "limit" and "cursor". */
bool page_is_argument(struct meter_str name);

/*
 * What is asked for, piece by piece: the path, the tenant, each filter; all
 * that must stay the same from page to page. limit is not part of it.
 */
void page_init(struct page *page);
void page_ask(struct page *page, struct meter_str piece);

/*
 * Fills limit and after from the arguments, once. False: *error is a
 * sentence for a 400, in the arena or a literal.
 */
MUST_CHECK bool
page_read(struct page *page, const struct url_arguments *arguments,
          struct arena *arena, const char **error);

/* Rows to ask the statement for; of what came, rows to show. */
int64_t page_row_limit(const struct page *page);
int page_row_count(const struct page *page, int rows);

/*
 * The cursor after the rows that were shown; key is that of the last one
 * shown. False: there are no more rows.
 */
#define PAGE_CURSOR_SIZE_MAX METER_BASE64URL_SIZE(8 + PAGE_KEY_SIZE_MAX)
bool page_cursor(const struct page *page, int rows, struct meter_str key,
                 char out[PAGE_CURSOR_SIZE_MAX + 1]);
/* The same as a member "cursor", when there are more. */
void page_end(const struct page *page, int rows, struct meter_str key,
              struct json_writer *json);


/* ---- tables ---------------------------------------------------------- */

enum accept_form {
    ACCEPT_JSON,
    ACCEPT_CSV,
    ACCEPT_NEITHER /* 406 */
};

/* The form asked for. False: it is none of ours, and the call is answered. */
MUST_CHECK bool table_form(struct api_call *call, enum accept_form *form);

/* Ends the call with the table in out; cursor NULL: the last page. */
void table_answer(struct api_call *call, const char *cursor);

#endif
