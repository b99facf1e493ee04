/*
 * search_drive.c - the part of the index that holds all that can match.
 *
 *   terms of `where` -> [search_drive_choose] -> values | a range of values
 *                                             -> nothing: the ledger
 *
 * Values of the index are canonical JSON, cut, and ordered by their bytes:
 * texts begin with a quote, numbers with a minus or a digit. The order of
 * numbers is not that of their texts, so a range of numbers goes through all
 * of them, with bounds for the server to look at; texts that begin alike lie
 * together. `ne` and `exists` match events that are not in the index.
 */

#include "query/search.h"

#include "project/index.h"

#include <stdlib.h>

/* The smaller the better; the number of ranks: does not drive. */
static int
term_rank(const struct search_term *term)
{
    static const int ranks[SEARCH_OPERATORS] = {
        [SEARCH_EQ] = 0,  [SEARCH_IN] = 1,  [SEARCH_PREFIX] = 2,
        [SEARCH_LT] = 3,  [SEARCH_LTE] = 3, [SEARCH_GT] = 3,
        [SEARCH_GTE] = 3, [SEARCH_NE] = 4,  [SEARCH_EXISTS] = 4,
    };

    return term->is_where ? ranks[term->operator] : 4;
}


/* ---- values ---------------------------------------------------------- */

static int
values_compare(const void *left, const void *right)
{
    return meter_str_compare(*(const struct meter_str *)left,
                             *(const struct meter_str *)right);
}

static bool
value_put(struct search_drive *drive, const struct json_value *value,
          struct arena *arena)
{
    struct meter_str json;

    if (!json_canonical(value, arena, &json)) {
        return false;
    }
    drive->values[drive->value_count++] = index_value_cut(json);
    return true;
}

/* Two that are cut to the same would find an event twice. */
static void
values_sort(struct search_drive *drive)
{
    size_t kept = 1;

    qsort(drive->values, drive->value_count, sizeof(*drive->values),
          values_compare);
    for (size_t i = 1; i < drive->value_count; i++) {
        if (!meter_str_equal(drive->values[i], drive->values[kept - 1])) {
            drive->values[kept++] = drive->values[i];
        }
    }
    drive->value_count = kept;
}

static bool
values_fill(struct search_drive *drive, const struct search_term *term,
            struct arena *arena)
{
    size_t count = term->operator== SEARCH_IN ? term->value->count : 1;
    const struct json_value *items =
        term->operator== SEARCH_IN ? term->value->items : term->value;

    drive->kind = SEARCH_DRIVE_VALUES;
    drive->values = arena_alloc(arena, count * sizeof(*drive->values));
    if (drive->values == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (!value_put(drive, &items[i], arena)) {
            return false;
        }
    }
    values_sort(drive);
    return true;
}


/* ---- ranges ---------------------------------------------------------- */

/* The code point that ends before size; *start is where it begins. */
static uint32_t
character_before(const char *text, size_t size, size_t *start)
{
    uint32_t code;
    size_t at = size - 1;

    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    *start = at;
    code = (unsigned char)text[at];
    if (size - at > 1) {
        code &= 0x7fu >> (size - at);
        for (size_t i = at + 1; i < size; i++) {
            code = code << 6 | ((unsigned char)text[i] & 0x3f);
        }
    }
    return code;
}

static size_t
character_write(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (char)(0xc0 | code >> 6);
        out[1] = (char)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (char)(0xe0 | code >> 12);
        out[1] = (char)(0x80 | (code >> 6 & 0x3f));
        out[2] = (char)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | code >> 18);
    out[1] = (char)(0x80 | (code >> 12 & 0x3f));
    out[2] = (char)(0x80 | (code >> 6 & 0x3f));
    out[3] = (char)(0x80 | (code & 0x3f));
    return 4;
}

/*
 * The first text behind all that begin with low: its last character becomes
 * the next one, as bytes are ordered like code points. low begins with a
 * quote, so there is always one that has a next.
 */
static bool
range_end(struct meter_str low, struct arena *arena, struct meter_str *out)
{
    char *text = arena_alloc(arena, low.size + 4);
    size_t size = low.size;
    size_t start;
    uint32_t code;

    if (text == NULL) {
        return false;
    }
    memcpy(text, low.data, low.size);
    code = character_before(text, size, &start);
    while (code == 0x10ffff) {
        size = start;
        CHECK(size > 0);
        code = character_before(text, size, &start);
    }
    code = code == 0xd7ff ? 0xe000 : code + 1; /* surrogates are none */
    *out =
        (struct meter_str){text, start + character_write(code, text + start)};
    return true;
}

static bool
prefix_fill(struct search_drive *drive, const struct search_term *term,
            struct arena *arena)
{
    struct meter_str json;

    drive->kind = SEARCH_DRIVE_RANGE;
    if (!json_canonical(term->value, arena, &json)) {
        return false;
    }
    json.size--; /* without the closing quote */
    drive->low = index_value_cut(json);
    return range_end(drive->low, arena, &drive->high);
}

/* Bounds of all terms on the attribute, the closest ones. */
static void
bound_add(struct search_drive *drive, const struct search_term *term)
{
    bool is_low = term->operator== SEARCH_GT || term->operator== SEARCH_GTE;
    struct meter_str *bound = is_low ? &drive->number_low : &drive->number_high;
    struct meter_str number = term->value->text;
    int order = bound->data == NULL ? 0 : search_number_compare(number, *bound);

    if (bound->data == NULL || (is_low ? order > 0 : order < 0)) {
        *bound = number;
    }
}

static void
order_fill(struct search *search, const struct search_term *chosen)
{
    struct search_drive *drive = &search->drive;

    drive->kind = SEARCH_DRIVE_RANGE;
    if (chosen->value->kind == JSON_STRING) {
        drive->low = METER_STR("\"");
        drive->high = METER_STR("#");
        return;
    }
    drive->low = METER_STR("-");
    drive->high = METER_STR(":");
    for (size_t i = 0; i < search->term_count; i++) {
        const struct search_term *term = &search->terms[i];

        if (term_rank(term) == term_rank(chosen) &&
            term->value->kind == JSON_NUMBER &&
            meter_str_equal(term->path.name, chosen->path.name)) {
            bound_add(drive, term);
        }
    }
}

bool
search_drive_choose(struct search *search, struct arena *arena)
{
    const struct search_term *best = NULL;

    search->drive = (struct search_drive){.kind = SEARCH_DRIVE_LEDGER};
    for (size_t i = 0; i < search->term_count; i++) {
        const struct search_term *term = &search->terms[i];

        if (term_rank(term) < (best == NULL ? 4 : term_rank(best))) {
            best = term;
        }
    }
    if (best == NULL) {
        return true;
    }
    search->drive.attribute = best->path.name;
    switch (best->operator) {
    case SEARCH_EQ:
    case SEARCH_IN: return values_fill(&search->drive, best, arena);
    case SEARCH_PREFIX: return prefix_fill(&search->drive, best, arena);
    default: order_fill(search, best); return true;
    }
}
