/*
 * outage.h - what the log says while connections cannot be had.
 *
 *   every pg_conn of the process -> [pg_outage] -> one line for all of them
 *
 * A reason is told when it is new and once a minute while it lasts; the end
 * is told once, when every connection has been up for a moment. Connections
 * of one process belong to one server, so what the second one meets is no
 * news.
 */

#ifndef PG_OUTAGE_H
#define PG_OUTAGE_H

#include <stdbool.h>

/*
 * A connection was lost (was_ready), or could not be made. is_out is its
 * mark, false at first: whether it is among those that are out.
 */
void pg_outage_failed(bool *is_out, const char *name, bool was_ready,
                      const char *why);
/* It is up, or nobody wants it any more. */
void pg_outage_ended(bool *is_out);
/* Now and then while a connection is up: tells the end of an outage. */
void pg_outage_look(void);

#endif
