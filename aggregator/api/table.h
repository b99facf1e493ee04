/*
 * table.h - answers that may be a table (CSV) instead of JSON.
 *
 * A table has no room for a cursor: the next page is in the header
 *
 *   Link: <?metric=api_calls&cursor=...>; rel="next"
 *
 * a reference that is relative to the address asked for, whatever location
 * the operator gave it.
 */

#ifndef API_TABLE_H
#define API_TABLE_H

#include "api/accept.h"
#include "api/call.h"

/* The form asked for. False: it is none of ours, and the call is answered. */
MUST_CHECK bool table_form(struct api_call *call, enum accept_form *form);

/* Ends the call with the table in out; cursor NULL: the last page. */
void table_answer(struct api_call *call, const char *cursor);

/*
 * The value of Link: args as the client sent them, with this cursor instead
 * of theirs; whatever has no place in such a reference is escaped. Pure.
 */
void table_link(struct meter_str args, const char *cursor, struct buf *out);

#endif
