/*
 * billing_figures.c - the columns of a meter row, see billing_figures.h.
 */

#include "project/billing_figures.h"

#include "meter_digest.h"

static const struct {
    const char *name;
    enum pg_type type;
    bool is_zero_null; /* a sum of nothing */
} columns[FIGURE_COLUMNS] = {
    [FIGURE_SUM] = {"sum", PG_NUMERIC, false},
    [FIGURE_COUNT] = {"count", PG_INT8, false},
    [FIGURE_MIN] = {"min", PG_NUMERIC, false},
    [FIGURE_MAX] = {"max", PG_NUMERIC, false},
    [FIGURE_LAST] = {"last", PG_NUMERIC, false},
    [FIGURE_LAST_TS] = {"last_ts", PG_TIMESTAMPTZ, false},
    [FIGURE_LAST_RECORDED_AT] = {"last_recorded_at", PG_TIMESTAMPTZ, false},
    [FIGURE_LAST_WRITER] = {"last_writer", PG_UUID, false},
    [FIGURE_LAST_SEQ] = {"last_seq", PG_INT8, false},
    [FIGURE_UNIQUES] = {"uniques", PG_INT8, false},
    [FIGURE_WATERMARK_TS] = {"watermark_ts", PG_TIMESTAMPTZ, false},
    [FIGURE_LATE_SUM] = {"late_sum", PG_NUMERIC, true},
    [FIGURE_LATE_COUNT] = {"late_count", PG_INT8, true},
    [FIGURE_LATE_MIN] = {"late_min", PG_NUMERIC, false},
    [FIGURE_LATE_MAX] = {"late_max", PG_NUMERIC, false},
    [FIGURE_LATE_LAST] = {"late_last", PG_NUMERIC, false},
    [FIGURE_LATE_LAST_TS] = {"late_last_ts", PG_TIMESTAMPTZ, false},
    [FIGURE_LATE_LAST_RECORDED_AT] = {"late_last_recorded_at", PG_TIMESTAMPTZ,
                                      false},
    [FIGURE_LATE_LAST_WRITER] = {"late_last_writer", PG_UUID, false},
    [FIGURE_LATE_LAST_SEQ] = {"late_last_seq", PG_INT8, false},
    [FIGURE_LATE_UNIQUES] = {"late_uniques", PG_INT8, true},
    [FIGURE_MANUAL_SUM] = {"manual_sum", PG_NUMERIC, true},
};

static void
set_decimal(struct figure *figure, struct meter_decimal value)
{
    figure->has = true;
    figure->decimal = value;
}

static void
set_integer(struct figure *figure, int64_t value)
{
    figure->has = true;
    figure->integer = value;
}

/* min to last_seq, which folded and late ones have in one order. */
static void
set_values(struct figure *out, const struct billing_sums *sums)
{
    if (!sums->has_value) {
        return;
    }
    set_decimal(&out[FIGURE_MIN], sums->min);
    set_decimal(&out[FIGURE_MAX], sums->max);
    set_decimal(&out[FIGURE_LAST], sums->last);
    set_integer(&out[FIGURE_LAST_TS], sums->last_mark.ts_us);
    set_integer(&out[FIGURE_LAST_RECORDED_AT], sums->last_mark.recorded_us);
    out[FIGURE_LAST_WRITER].has = true;
    memcpy(out[FIGURE_LAST_WRITER].uuid, sums->last_mark.writer, 16);
    set_integer(&out[FIGURE_LAST_SEQ], sums->last_mark.writer_seq);
}

_Static_assert(FIGURE_LATE_LAST_SEQ - FIGURE_LATE_SUM == FIGURE_LAST_SEQ,
               "late columns in the order of the others");

void
figures_of_sums(const struct billed_sums *sums,
                struct figure out[FIGURE_COLUMNS])
{
    memset(out, 0, FIGURE_COLUMNS * sizeof(*out));
    set_decimal(&out[FIGURE_SUM], sums->folded.sum);
    set_integer(&out[FIGURE_COUNT], sums->folded.count);
    set_values(out, &sums->folded);
    set_integer(&out[FIGURE_UNIQUES], sums->folded.uniques);
    if (sums->watermark_us != INT64_MIN) {
        set_integer(&out[FIGURE_WATERMARK_TS], sums->watermark_us);
    }
    if (sums->has_late) {
        set_decimal(&out[FIGURE_LATE_SUM], sums->late.sum);
        set_integer(&out[FIGURE_LATE_COUNT], sums->late.count);
        set_values(out + FIGURE_LATE_SUM, &sums->late);
        set_integer(&out[FIGURE_LATE_UNIQUES], sums->late.uniques);
    }
    if (sums->has_manual) {
        set_decimal(&out[FIGURE_MANUAL_SUM], sums->manual);
    }
}

void
figures_read(const void *result, int row, int first,
             struct figure out[FIGURE_COLUMNS])
{
    memset(out, 0, FIGURE_COLUMNS * sizeof(*out));
    for (int i = 0; i < FIGURE_COLUMNS; i++) {
        int column = first + i;

        if (pg_is_null(result, row, column)) {
            continue;
        }
        out[i].has = true;
        switch (columns[i].type) {
        case PG_NUMERIC:
            out[i].is_bad =
                !pg_get_numeric(result, row, column, &out[i].decimal);
            break;
        case PG_TIMESTAMPTZ:
            out[i].integer = pg_get_time(result, row, column);
            break;
        case PG_UUID: {
            struct meter_str uuid = pg_get_bytes(result, row, column);

            CHECK(uuid.size == sizeof(out[i].uuid));
            memcpy(out[i].uuid, uuid.data, uuid.size);
            break;
        }
        default: out[i].integer = pg_get_int8(result, row, column); break;
        }
    }
}

bool
figure_is_equal(enum figure_column column, const struct figure *a,
                const struct figure *b)
{
    if (a->is_bad || b->is_bad) {
        return false;
    }
    if (!columns[column].is_zero_null && a->has != b->has) {
        return false;
    }
    /* What is NULL has zeros. */
    switch (columns[column].type) {
    case PG_NUMERIC: return a->decimal.units == b->decimal.units;
    case PG_UUID: return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0;
    default: return a->integer == b->integer;
    }
}

enum pg_type
figure_type(enum figure_column column)
{
    return columns[column].type;
}

void
figure_put(struct buf *bytes, enum figure_column column,
           const struct figure *figure)
{
    if (!figure->has) {
        pg_put_null(bytes);
        return;
    }
    switch (columns[column].type) {
    case PG_NUMERIC: pg_put_numeric(bytes, figure->decimal); break;
    case PG_TIMESTAMPTZ: pg_put_time(bytes, figure->integer); break;
    case PG_UUID: pg_put_uuid(bytes, figure->uuid); break;
    default: pg_put_int8(bytes, figure->integer); break;
    }
}

void
figure_json(struct json_writer *json, enum figure_column column,
            const struct figure *figure)
{
    char text[METER_DECIMAL_TEXT_SIZE + 1];

    json_key(json, columns[column].name);
    if (figure->is_bad) {
        json_text(json, "NaN");
        return;
    }
    if (!figure->has) {
        json_null(json);
        return;
    }
    switch (columns[column].type) {
    case PG_NUMERIC:
        (void)meter_decimal_format(figure->decimal, text);
        json_text(json, text);
        break;
    case PG_TIMESTAMPTZ: json_time(json, figure->integer); break;
    case PG_UUID:
        meter_hex(figure->uuid, sizeof(figure->uuid), text);
        json_text(json, text);
        break;
    default: json_int_string(json, figure->integer); break;
    }
}

_Static_assert(METER_DECIMAL_TEXT_SIZE >= 32, "room for the digits of a UUID");
