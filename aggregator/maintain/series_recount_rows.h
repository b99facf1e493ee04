/*
 * series_recount_rows.h - rows of one slice of series: what they should be
 * and what they are. Pure.
 *
 *   events | level below -> [fold | merge] -> expected
 *   level ----------------> [found] --------> differences
 *   dictionary -----------> [dictionary] ---> differences
 *
 * Holds the rows of one tenant, one level and one stretch of time, at most
 * rows_max of them: some 400 bytes each, with the text of their labels. The
 * dimension sets outlive a slice, so that each is looked up once.
 */

#ifndef MAINTAIN_SERIES_RECOUNT_ROWS_H
#define MAINTAIN_SERIES_RECOUNT_ROWS_H

#include "base/map.h"
#include "meter_level.h"
#include "series/cell.h"

#define SERIES_ROWS_MAX 250000            /* of a slice, where it can be cut */
#define SERIES_SETS_MAX ((size_t)1 << 17) /* more: forgotten between slices */

/* A dimension set of a series. */
struct series_rows_set {
    char id[4 + METER_DIGEST_SIZE]; /* index of the series, key */
    const struct series *series;
    const uint8_t *key;      /* in id */
    struct meter_str json;   /* as events make it; data NULL: not seen */
    struct meter_str stored; /* of the dictionary; data NULL: none there */
    bool is_asked;           /* the dictionary was */
    bool is_told;            /* its difference is counted */
    int64_t since_us;        /* its first event was recorded; INT64_MAX */
    struct series_rows_set *next;
};

/* Beside the columns: labels and counts are none that are ever written. */
#define SERIES_ROWS_ODD (1u << CELL_COLUMNS)

/* A row as the database has it: a cell and which columns are NULL. */
struct series_rows_found {
    struct cell cell;
    unsigned nulls; /* bits of enum cell_column */
};

struct series_rows_row {
    char id[4 + METER_DIGEST_SIZE + 8]; /* that of the set, bucket */
    struct series_rows_set *set;
    struct cell expected;            /* count 0: no row */
    int64_t since_us;                /* as that of the set */
    struct series_rows_found *found; /* NULL: none, or as expected */
    bool is_found;
    bool is_marked; /* still to be computed: not compared */
    struct series_rows_row *next;
};

struct series_rows;

/* NULL: no memory. rows_max: never more; see RECOUNT_ROWS_MAX. */
MUST_CHECK struct series_rows *
series_rows_create(const struct catalog *catalog);
void series_rows_destroy(struct series_rows *rows);
/* Before a slice. */
void series_rows_start(struct series_rows *rows, enum meter_level level,
                       size_t rows_max);

enum series_rows_end {
    SERIES_ROWS_OK,
    SERIES_ROWS_FULL, /* more than rows_max */
    SERIES_ROWS_FAULT /* no memory */
};

/* One event; a change of a series that is not `only` (NULL: any) is left. */
MUST_CHECK enum series_rows_end
series_rows_fold(struct series_rows *rows, const struct series_effect *effect,
                 const struct meter_str *from, const struct cell_place *place,
                 const struct series *only);

/* Which row; the bucket is any instant in it. */
struct series_rows_at {
    const struct series *series;
    const uint8_t *key; /* METER_DIGEST_SIZE bytes */
    int64_t bucket_us;
};

/* A row of the level below; its columns are taken as they are. */
MUST_CHECK enum series_rows_end
series_rows_merge(struct series_rows *rows, const struct series_rows_at *at,
                  const struct series_rows_found *child);
/* A row of the level; found->cell is taken over and left empty. */
MUST_CHECK enum series_rows_end
series_rows_found(struct series_rows *rows, const struct series_rows_at *at,
                  struct series_rows_found *found);
/* The row is still to be computed. */
MUST_CHECK enum series_rows_end
series_rows_mark(struct series_rows *rows, const struct series_rows_at *at);

/* The next set the dictionary was not asked for, *at from NULL on. */
struct series_rows_set *
series_rows_unasked(struct series_rows *rows, struct series_rows_set *at);
/* What the dictionary says of a set that it was asked for. */
MUST_CHECK enum series_rows_end
series_rows_dictionary(struct series_rows *rows,
                       const struct series_rows_at *at, struct meter_str json);

/*
 * Behind all rows: those that differ, by (series, key, bucket); *count of
 * them. NULL: no memory. Until the next start.
 */
MUST_CHECK struct series_rows_row *const *
series_rows_differing(struct series_rows *rows, size_t *count);
bool series_rows_differs(const struct series_rows_row *row);
/* Sets whose dictionary row is missing or another, likewise. */
MUST_CHECK struct series_rows_set *const *
series_rows_sets_differing(struct series_rows *rows, size_t *count);

/* Bits of the columns that cell_put leaves NULL. */
unsigned series_rows_nulls(const struct cell *cell);
/* Is a column the same on both sides? */
bool series_rows_column_equal(const struct cell *cell, unsigned nulls,
                              const struct series_rows_found *found,
                              enum cell_column column);

#endif
