/*
 * usage.h - the usage row of a tenant: three totals and a status. Pure.
 *
 * Each total is clamped at 0 and folds as a counter does (counter.h). The
 * status is that of the last event that sets one; without any it is active.
 */

#ifndef PROJECT_USAGE_H
#define PROJECT_USAGE_H

#include "project/counter.h"
#include "project/projection.h"

/* What one event does to its tenant's row. */
struct usage_effect {
    bool is_touched[USAGE_COLUMN_COUNT];
    int64_t delta[USAGE_COLUMN_COUNT];
    enum usage_status status; /* KEEP: as it is */
    bool is_ordered; /* the outcome depends on what came before: it sets the
                        status, or touches a column that may be clamped */
};

/* The row, when it is known. */
struct usage_row {
    int64_t value[USAGE_COLUMN_COUNT];
    enum usage_status status; /* ACTIVE or DECOMMISSIONED */
};

/* Many effects as one. */
struct usage_fold {
    struct counter_fold column[USAGE_COLUMN_COUNT];
    enum usage_status status; /* KEEP: as it is */
};

void usage_row_init(struct usage_row *row); /* zeros, active */
/* False: *column would leave 64 bits; row unchanged. */
MUST_CHECK bool
usage_apply(struct usage_row *row, const struct usage_effect *effect,
            enum usage_column *column);
void usage_fold_init(struct usage_fold *fold);
/* False: 64 bits, fold unchanged; the careful path decides. */
MUST_CHECK bool
usage_fold_step(struct usage_fold *fold, const struct usage_effect *effect);
/*
 * The whole fold on a known row. False: one of its steps leaves 64 bits on
 * this row (also when the steps behind it come back); row unchanged.
 */
MUST_CHECK bool
usage_fold_apply(const struct usage_fold *fold, struct usage_row *row);

/* "active", "decommissioned"; KEEP, which is no row's, has none: NULL. */
const char *usage_status_name(enum usage_status status);
/* False: neither of the two. */
MUST_CHECK bool
usage_status_parse(struct meter_str text, enum usage_status *out);

/*
 * As projection.project; *effect is a struct usage_effect. Rejected: an
 * amount that is no non-negative 64-bit integer, overflow, no memory.
 */
MUST_CHECK bool
usage_project(const struct event_type *type, const struct meter_event *event,
              const struct json_value *attributes, struct arena *arena,
              const void **effect, bool *is_careful, const char **error);

#endif
