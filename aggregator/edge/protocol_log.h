/*
 * protocol_log.h - may a line about what a peer sent be written?
 *
 *   api_conn, link, mux -> [protocol_log] -> log
 *
 * A peer that is broken or hostile can send as much nonsense as it likes, on
 * as many connections. All of them together get PROTOCOL_LOG_LINES_MAX lines a
 * second; what was left out is counted and told in one line afterwards.
 */

#ifndef EDGE_PROTOCOL_LOG_H
#define EDGE_PROTOCOL_LOG_H

#include "base/check.h"

#define PROTOCOL_LOG_LINES_MAX 10

/* False: do not write a line; that is counted. */
MUST_CHECK bool protocol_log_take(void);
/* Now and then. True: something is left to be told, come again. */
bool protocol_log_tick(void);

#endif
