/*
 * pulse.h - feels whether the server lives, on a connection of its own.
 *
 *   [pg_pulse] -> session_look, once a second -> PostgreSQL
 *
 * A server that hangs keeps its connections open. A statement that takes
 * long is no proof of it; a question that reads nothing and has no answer for
 * pg_conn_patience_ms is. All connections are given up then, and what was
 * under way is resolved as after any loss.
 */

#ifndef PG_PULSE_H
#define PG_PULSE_H

#include "base/check.h"

#include <uv.h>

/* url is borrowed. */
void pg_pulse_start(uv_loop_t *loop, const char *url, int64_t patience_us);
/* One that was not started is no error. */
void pg_pulse_stop(void);

#endif
