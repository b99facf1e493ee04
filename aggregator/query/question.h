/*
 * question.h - a question about a series on its way to the answer.
 *
 *   query -> [question_start] -> [question_ask] -> statement, parameters
 *                                      ^                  | rows
 *                                      +- more - [question_take] - done
 *   [answer_write] <------------------------------------------------+
 *
 * Who holds a question asks the database what question_ask says and brings
 * the rows back, until question_take says that all is there.
 *
 *     bounds[0]   bounds[1]   bounds[2]        windows touch each other;
 *     |  window 0 |  window 1 |  ...           from lies in the first, the
 *           from ^                             instant before to in the last
 *
 * A group is what group_by leaves of the dimensions. Groups stand in the
 * bytewise order of their JSON; without dimensions there is one, also where
 * there is no set at all. A cell is one group in one window that has samples.
 */

#ifndef QUERY_QUESTION_H
#define QUERY_QUESTION_H

#include "base/buf.h"
#include "base/csv.h"
#include "base/decimal_sum.h"
#include "pg/param.h"
#include "pg/statements.h"
#include "query/query.h"

#define WINDOWS_MAX    10000
#define GROUP_KEYS_MAX 10000 /* dimension sets of one question */
#define CELLS_MAX      100000
#define TALLIES_MAX    500000

struct windows {
    int64_t *bounds_us; /* count + 1 of them, ascending */
    bool *is_partial;   /* of each window */
    size_t count;
};

/* A bucket that has to be computed again. */
struct window_dirt {
    enum meter_level level;
    int64_t bucket_us;
};

struct group_key {
    uint8_t key[METER_DIGEST_SIZE];
    struct meter_str json; /* of its group */
    int32_t place;         /* of its group */
};

struct groups {
    const struct query *query;
    struct arena *arena;
    struct group_key *keys;
    size_t key_count;
    struct meter_str *json; /* of each group; by place */
    size_t count;
    /* Which reading of each loose filter was met; -1: none yet. */
    int readings[METER_DIMENSION_COUNT_MAX];
};

struct cell_label {
    struct meter_str label;
    int64_t count;
};

struct answer_cell {
    uint32_t place; /* of the group */
    uint32_t slot;  /* of the window */
    int64_t count;
    struct decimal_sum figure;        /* counter, gauge: value; else sum */
    const struct cell_label *tallies; /* histogram, state: by label */
    size_t tally_count;
};

struct cells {
    struct answer_cell *items; /* by place, then by slot */
    size_t count;
    int64_t floor_us; /* from where on the level is kept */
};

/* What the database is asked for next. */
enum question_step {
    QUESTION_WINDOWS, /* the midnights of a time zone */
    QUESTION_MARK,  /* how far the series is, which dimension sets there are */
    QUESTION_CELLS, /* the buckets */
    QUESTION_DONE
};

struct question {
    struct query query;
    struct arena *arena;
    struct meter_str tenant;
    enum question_step step;
    enum meter_level level;
    struct windows windows;
    struct groups groups;
    struct cells cells;
    int64_t floors_us[METER_LEVEL_COUNT];
    int64_t mark_us; /* what was committed by then is in the buckets */
    struct window_dirt *dirt;
    size_t dirt_count;
    bool is_dirt_cut; /* there is more of it */
};

/*
 * Once query, arena and tenant are set; arena and tenant must outlive the
 * question. NULL, or the sentence of a 400.
 */
const char *question_start(struct question *question);

/* While step is not DONE. False: no memory. */
MUST_CHECK bool
question_ask(struct question *question, struct pg_params *params,
             enum statement *statement);

/*
 * The rows that were asked for; labels of cells borrow from them until the
 * answer is written. 0: step says what follows. Else the status of the
 * answer with *error; 503: no memory.
 */
MUST_CHECK unsigned
question_take(struct question *question, const void *rows, const char **error);

/* Of QUESTION_CELLS; cells.c. */
enum statement
cells_ask(const struct question *question, struct pg_params *params);
/* 0, or the status of *error. */
MUST_CHECK unsigned
cells_take(struct question *question, const void *rows, const char **error);

/*
 * The answer to a question that is DONE, as JSON or as a table; answer.c.
 * Everything stands in an order of its own: windows by time, groups by the
 * bytes of their JSON. The same question over the same data gives the same
 * bytes. False: it would be too large.
 */
MUST_CHECK bool
answer_write(struct question *question, bool is_table, struct buf *out);
/* A cell for each of the dimensions (is_shown NULL: all) of canonical JSON. */
MUST_CHECK bool
csv_dimensions(struct csv_writer *csv, const struct attribute_path *paths,
               size_t count, const bool *is_shown, struct meter_str json,
               struct arena *arena);

/* 422: the answer has more than CELLS_MAX values. */
extern const char question_error_size[];
/* 400: which value is meant cannot be told. */
extern const char question_error_mixed[];
/* 422: sums of exact figures that are longer than what is kept. */
#define QUESTION_ERROR_RANGE "the figure has more than 38 digits"

#endif
