/*
 * recovery.h - ledger rows that no flush has had, folded again.
 *
 *   ledger rows (after, upto] of a writer -> [recovery] -> buffer
 *
 * By the rules as they are now. An event that they would reject is passed
 * over and counted. Nothing is written; whoever asked flushes.
 */

#ifndef SERIES_RECOVERY_H
#define SERIES_RECOVERY_H

#include "config/config.h"
#include "pg/conn.h"
#include "series/buffer.h"

/* Of times that are not known, as a bound from below. */
#define RECOVERY_ANY_US INT64_MIN

struct recovery;

struct recovery_task {
    uint8_t writer[16];
    int64_t after;
    int64_t upto;
    int64_t recorded_us; /* no wanted row is older; or RECOVERY_ANY_US */
    struct buffer *buffer;
    struct config *config; /* held until the end */
};

/* False: connection, server or memory; the buffer then has a part of it. */
typedef void (*recovery_cb)(void *owner, bool is_done);

/* conn is borrowed and used by nobody else meanwhile. */
struct recovery *
recovery_create(struct pg_conn *conn, recovery_cb cb, void *owner);
/* The connection is gone before: nothing is outstanding. */
void recovery_destroy(struct recovery *recovery);

void
recovery_start(struct recovery *recovery, const struct recovery_task *task);

#endif
