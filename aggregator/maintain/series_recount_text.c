/*
 * series_recount_text.c - see series_recount_text.h.
 */

#include "maintain/series_recount_text.h"

#include "base/json_writer.h"
#include "meter_time.h"

/* One side of a row: a cell and its NULLs. */
struct side {
    const struct cell *cell;
    unsigned nulls;
};

static void
json_hex(struct json_writer *json, const uint8_t *bytes, size_t size)
{
    char text[2 * METER_DIGEST_SIZE + 1];

    CHECK(size <= METER_DIGEST_SIZE);
    meter_hex(bytes, size, text);
    json_string(json, (struct meter_str){text, 2 * size});
}

static void
json_sum(struct json_writer *json, struct decimal_sum sum)
{
    char text[DECIMAL_SUM_TEXT_SIZE + 1];
    size_t size = decimal_sum_format(sum, text);

    json_string(json, (struct meter_str){text, size});
}

static void
put_set_members(struct json_writer *json, const struct series_rows_set *set)
{
    struct meter_str known = set->json.data != NULL ? set->json : set->stored;

    if (known.data != NULL) {
        json_key(json, "dimensions");
        json_raw(json, known);
    } else {
        json_key(json, "dimension_key");
        json_hex(json, set->key, METER_DIGEST_SIZE);
    }
}

void
series_recount_put_key(struct buf *out, const struct series_rows_row *row,
                       enum meter_level level)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "series");
    json_string(&json, row->set->series->name);
    json_key(&json, "level");
    json_text(&json, meter_level_name(level));
    put_set_members(&json, row->set);
    json_key(&json, "bucket");
    json_time(&json, row->expected.bucket_us);
    json_object_end(&json);
}

void
series_recount_put_set(struct buf *out, const struct series_rows_set *set)
{
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "series");
    json_string(&json, set->series->name);
    json_key(&json, "dimension_key");
    json_hex(&json, set->key, METER_DIGEST_SIZE);
    json_object_end(&json);
}

static void
json_tally(struct json_writer *json, const struct cell *cell, bool is_labels)
{
    json_array_begin(json);
    for (uint32_t i = 0; i < cell->tally_count; i++) {
        if (is_labels) {
            json_string(json, cell->tallies[i].label);
        } else {
            json_int_string(json, cell->tallies[i].count);
        }
    }
    json_array_end(json);
}

static void
put_column(struct json_writer *json, const struct side *side,
           enum cell_column column)
{
    static const char *const names[CELL_COLUMNS] = {
        [CELL_COUNT] = "count",
        [CELL_SUM] = "sum",
        [CELL_MIN] = "min",
        [CELL_MAX] = "max",
        [CELL_LAST] = "last",
        [CELL_LAST_AT] = "last_at",
        [CELL_LAST_RECORDED_AT] = "last_recorded_at",
        [CELL_LAST_WRITER] = "last_writer",
        [CELL_LAST_SEQ] = "last_seq",
        [CELL_LABELS] = "labels",
        [CELL_COUNTS] = "counts",
    };
    const struct cell *cell = side->cell;

    json_key(json, names[column]);
    if ((side->nulls & (1u << column)) != 0) {
        json_null(json);
        return;
    }
    switch (column) {
    case CELL_COUNT: json_int_string(json, cell->count); break;
    case CELL_SUM: json_sum(json, cell->sum); break;
    case CELL_MIN: json_sum(json, decimal_sum_of(cell->min)); break;
    case CELL_MAX: json_sum(json, decimal_sum_of(cell->max)); break;
    case CELL_LAST: json_sum(json, decimal_sum_of(cell->last)); break;
    case CELL_LAST_AT: json_time(json, cell->last_place.ts_us); break;
    case CELL_LAST_RECORDED_AT:
        json_time(json, cell->last_place.recorded_us);
        break;
    case CELL_LAST_WRITER:
        json_hex(json, cell->last_place.writer,
                 sizeof(cell->last_place.writer));
        break;
    case CELL_LAST_SEQ: json_int_string(json, cell->last_place.seq); break;
    case CELL_LABELS: json_tally(json, cell, true); break;
    case CELL_COUNTS: json_tally(json, cell, false); break;
    case CELL_COLUMNS: break;
    }
}

static void
put_side(struct buf *out, const struct series_rows_row *row, bool is_found)
{
    bool is_both = row->found != NULL && row->expected.count > 0;
    unsigned nulls = series_rows_nulls(&row->expected);
    struct side side = {&row->expected, nulls};
    struct json_writer json;

    if (is_found) {
        side = (struct side){&row->found->cell, row->found->nulls};
    }
    json_writer_init(&json, out);
    json_object_begin(&json);
    for (int i = 0; i < CELL_COLUMNS; i++) {
        enum cell_column column = (enum cell_column)i;

        if (is_both ? !series_rows_column_equal(&row->expected, nulls,
                                                row->found, column)
                    : (side.nulls & (1u << i)) == 0) {
            put_column(&json, &side, column);
        }
    }
    json_object_end(&json);
}

void
series_recount_put_expected(struct buf *out, const struct series_rows_row *row)
{
    put_side(out, row, false);
}

void
series_recount_put_found(struct buf *out, const struct series_rows_row *row)
{
    put_side(out, row, true);
}
