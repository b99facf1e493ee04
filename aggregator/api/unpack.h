/*
 * unpack.h - compressed bodies inflated beside other work, one at a time.
 *
 *   call -> [unpack: gunzip_step, a turn of the loop, gunzip_step, ...]
 *        -> call, with the body that was meant
 *
 * A body that one step inflates is ready at once. A longer one takes its
 * turns of the loop, one step each, so that nobody else waits longer than
 * a step. Only the oldest is being inflated: beside what is inflated, which
 * goes on to ingest and is counted there, one body of METER_BODY_SIZE_MAX
 * is all the memory this can take. Those that wait are as many as there are
 * requests, and their compressed bytes are counted by the listener.
 */

#ifndef API_UNPACK_H
#define API_UNPACK_H

#include "base/gunzip.h"

#include <uv.h>

struct unpack;
struct unpack_job;

/* Called once. error: of BAD, a fixed sentence. */
typedef void (*unpack_cb)(void *asker, enum gunzip_result result,
                          const char *error);

/* NULL: no memory. */
MUST_CHECK struct unpack *unpack_create(uv_loop_t *loop);
/* Every job must be done or cancelled; the loop runs on for its handle. */
void unpack_destroy(struct unpack *unpack);

/*
 * body holds gzip and must stay until the callback; after DONE it holds
 * what was inside, at most METER_BODY_SIZE_MAX bytes. The callback comes
 * during this call, which then returns NULL, or later.
 */
struct unpack_job *unpack_start(struct unpack *unpack, struct buf *body,
                                unpack_cb cb, void *asker);
/* No callback any more; the body may go. */
void unpack_cancel(struct unpack_job *job);

#endif
