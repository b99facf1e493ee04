/*
 * series_engine.h - series after the commit: buffer, flush, rollups.
 *
 *   ingest -> [fold] -> buffer -> flush -> series_5s -> rollup -> 1m 1h 1d 7d
 *   ledger -> recovery ---^          tails of writers that are gone: orphan
 *
 * Nothing here may be lost: what is in memory is in the ledger after
 * writer_flush.upto, and is read again from there after a crash, when memory
 * ran out, and when the database is another one than before.
 */

#ifndef SERIES_SERIES_ENGINE_H
#define SERIES_SERIES_ENGINE_H

#include "config/config.h"
#include "series/buffer.h"
#include "store/lane.h"
#include "store/partition.h"

struct series_engine;

struct series_engine_options {
    const char *url; /* database */
    struct lane *lane;
    struct partition *partition;
    struct config *config;
    /* There is room again, see is_full. */
    void (*on_room)(void *owner);
    void *owner;
};

struct series_engine *
series_engine_create(uv_loop_t *loop,
                     const struct series_engine_options *options);
void series_engine_destroy(struct series_engine *engine);
void
series_engine_config_set(struct series_engine *engine, struct config *config);

/* After every (re)connect of the lane, before ingest hears of it. */
void series_engine_lane_ready(struct series_engine *engine, int64_t last);

/* One accepted event of a committed transaction of the lane. */
void series_engine_fold(struct series_engine *engine,
                        const struct buffer_event *event);
/*
 * All events up to this number are committed and folded: the last of them at
 * this place in the order, and at this time of the database's clock.
 */
void series_engine_folded(struct series_engine *engine, int64_t writer_seq,
                          int64_t recorded_us, int64_t clock_us);

/*
 * Twice limits.seriesCells are held: the next batch has to wait for a flush,
 * which calls on_room.
 */
bool series_engine_is_full(const struct series_engine *engine);

/*
 * Flushes what there is as soon as it can, and what is folded later, too;
 * is_settled: all is flushed and rolled up. For commands, before a drain.
 */
void series_engine_settle(struct series_engine *engine);
bool series_engine_is_settled(const struct series_engine *engine);

/* Flushes what there is as soon as it can, then is_idle; for the end. */
void series_engine_drain(struct series_engine *engine);
bool series_engine_is_idle(const struct series_engine *engine);


/* ---- jobs -------------------------------------------------------------- */

/*
 * What runs beside the flush, on connections of its own: rollup.c and
 * orphan.c. Both look by themselves now and then, may fail at any time, and
 * find the same work again at the next look.
 */

/* For the connections of series: BRIN of the ledger, else look-ups by key,
   all of it planned once. */
#define SERIES_SETTINGS          \
    "enable_seqscan=off jit=off" \
    " plan_cache_mode=force_generic_plan"

struct series_job_options {
    const char *url; /* database; borrowed */
    struct lane *lane;
    struct partition *partition;
    struct config *const *config; /* the rules, as they are at the time */
    /* Rows of 5s were committed. */
    void (*on_flushed)(void *owner);
    void *owner;
};

enum series_job_state {
    SERIES_JOB_BUSY,    /* wait for it before the end */
    SERIES_JOB_WAITING, /* something is left to do; may end */
    SERIES_JOB_SETTLED  /* all is done that was there at the last wake */
};

struct series_job {
    /* Connects on its own, as meter_writer. */
    void *(*create)(uv_loop_t *loop, const struct series_job_options *options);
    /* At any time; before the lane and the partitions go. */
    void (*destroy)(void *job);
    /* There may be something to do, and the lane has been ready. */
    void (*wake)(void *job);
    /* Begins nothing any more; what runs may end. */
    void (*stop)(void *job);
    enum series_job_state (*state)(const void *job);
};

extern const struct series_job rollup_job;
extern const struct series_job orphan_job;

#endif
