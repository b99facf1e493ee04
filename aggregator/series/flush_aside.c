/*
 * flush_aside.c - see flush_aside.h.
 */

#include "series/flush_aside.h"

#include "base/log.h"
#include "base/metrics.h"
#include "meter_time.h"

bool
flush_aside_note(struct flush_asides *asides, const struct flush_rows *rows,
                 const char sqlstate[6])
{
    struct flush_aside *aside = &asides->list[asides->count];

    CHECK(rows->row_count == 1);
    if (asides->count == FLUSH_ASIDES_MAX) {
        return false;
    }
    asides->count++;
    aside->cell = rows->rows[0].first;
    aside->stage = rows->stage;
    aside->level = rows->level;
    memcpy(aside->sqlstate, sqlstate, sizeof(aside->sqlstate));
    return true;
}

/* What is not there: a level of the bucket, or the name of its set. */
static void
tell(const struct flush_aside *aside, const struct buffer_cell *cell)
{
    const struct buffer_key *key = cell->key;
    bool is_key = aside->stage == FLUSH_STAGE_KEYS;
    enum meter_level level =
        aside->stage == FLUSH_STAGE_MARKS ? aside->level + 1 : aside->level;
    char bucket[METER_TIME_TEXT_SIZE + 1];

    meter_time_format(meter_level_bucket(level, cell->cell.bucket_us), bucket);
    log_error("series",
              is_key ? "a dimension set is refused and set aside: meterd "
                       "rebuild series makes it from the ledger"
                     : "a bucket is refused and set aside: meterd rebuild "
                       "series makes it from the ledger",
              log_bytes("tenant", key->tenant),
              log_bytes("series", key->series),
              log_bytes("dimensions", key->set.json),
              log_str("series_level", is_key ? "" : meter_level_name(level)),
              log_str("bucket", is_key ? "" : bucket),
              log_str("sqlstate", aside->sqlstate));
}

void
flush_asides_tell(struct flush_asides *asides, const struct flush_rows *rows)
{
    for (size_t i = 0; i < asides->count; i++) {
        const struct flush_aside *aside = &asides->list[i];

        if (aside->cell < rows->count) {
            tell(aside, rows->cells[aside->cell]);
        }
    }
    metrics.edgemeter_series_aside_total += (int64_t)asides->count;
    asides->count = 0;
}
