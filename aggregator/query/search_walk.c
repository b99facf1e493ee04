/*
 * search_walk.c - pages of candidates, see search_walk.h.
 *
 *   from           window                        behind           to
 *    |- - - - - - - - |===== page of rows ===========|- - - - - - - |
 *
 * A page that is full ends at its last row, and the window goes on from
 * there; one that is not has seen its window to the end, and the next window
 * is longer.
 */

#include "query/search_walk.h"

#include "meter_bytes.h"
#include "meter_time.h"

#define WINDOW_FIRST_US METER_TIME_DAY /* what a partition holds */
#define WINDOW_GROWTH   4
#define VALUES_FEW      4 /* that many are walked along without windows */

static int64_t
later_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void
window_set(struct search_walk *walk, int64_t until_us)
{
    const struct search *search = walk->search;

    walk->from_us = until_us - search->from_us <= walk->window_us
                        ? search->from_us
                        : until_us - walk->window_us;
}

/* The index gives entries of one value in order of time by itself. */
static bool
needs_windows(const struct search_drive *drive)
{
    return drive->kind != SEARCH_DRIVE_VALUES ||
           drive->value_count > VALUES_FEW;
}

void
search_walk_begin(struct search_walk *walk, const struct search *search,
                  const struct search_place *after, int64_t now_us)
{
    int64_t until_us;

    *walk = (struct search_walk){
        .search = search,
        .behind = {.ts_us = search->to_us},
        .from_us = search->from_us,
        .window_us = WINDOW_FIRST_US,
        .rows = SEARCH_PAGE_ROWS_MIN,
    };
    if (after != NULL) {
        walk->behind = *after;
    }
    if (needs_windows(&search->drive)) {
        until_us = walk->behind.ts_us < now_us ? walk->behind.ts_us : now_us;
        window_set(walk, later_of(until_us, search->from_us));
    }
}

static bool
is_same(const struct search_place *a, const struct search_place *b)
{
    return a->ts_us == b->ts_us && a->writer_seq == b->writer_seq &&
           memcmp(a->writer, b->writer, sizeof(a->writer)) == 0;
}

bool
search_walk_row(struct search_walk *walk, const struct search_place *place,
                size_t size)
{
    if (is_same(&walk->behind, place)) {
        return false;
    }
    walk->behind = *place;
    walk->page_size += size;
    return true;
}

/* More rows while they are small. */
static void
rows_set(struct search_walk *walk, int64_t candidates)
{
    int64_t size = (int64_t)walk->page_size / (candidates > 0 ? candidates : 1);
    int64_t fit = (int64_t)SEARCH_PAGE_SIZE_MAX / (size > 0 ? size : 1);

    walk->rows *= 2;
    if (walk->rows > fit) {
        walk->rows = fit;
    }
    if (walk->rows > SEARCH_PAGE_ROWS_MAX) {
        walk->rows = SEARCH_PAGE_ROWS_MAX;
    }
    walk->rows = later_of(walk->rows, SEARCH_PAGE_ROWS_MIN);
    walk->page_size = 0;
}

enum search_walk_next
search_walk_page(struct search_walk *walk, int64_t candidates,
                 const struct search_place *end)
{
    bool is_full = candidates >= walk->rows;

    walk->scanned += candidates;
    if (is_full) {
        walk->behind = *end;
        if (needs_windows(&walk->search->drive)) {
            window_set(walk, walk->behind.ts_us);
        }
    } else if (walk->from_us <= walk->search->from_us) {
        return SEARCH_WALK_END;
    } else {
        walk->behind = (struct search_place){.ts_us = walk->from_us};
        walk->window_us *= WINDOW_GROWTH;
        window_set(walk, walk->from_us);
    }
    rows_set(walk, candidates);
    return walk->scanned >= SEARCH_BUDGET_ROWS ? SEARCH_WALK_SPENT
                                               : SEARCH_WALK_MORE;
}


/* ---- places ---------------------------------------------------------- */

void
search_place_write(const struct search_place *place,
                   char out[SEARCH_PLACE_SIZE])
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, SEARCH_PLACE_SIZE);
    meter_put_u64(&writer, (uint64_t)place->ts_us);
    meter_put_bytes(&writer, place->writer, sizeof(place->writer));
    meter_put_u64(&writer, (uint64_t)place->writer_seq);
    CHECK(!writer.failed && writer.at == SEARCH_PLACE_SIZE);
}

bool
search_place_read(const struct search *search, struct meter_str key,
                  struct search_place *out)
{
    struct meter_reader reader;
    struct meter_str bytes;

    meter_reader_init(&reader, key.data, key.size);
    out->ts_us = (int64_t)meter_get_u64(&reader);
    bytes = meter_get_bytes(&reader, sizeof(out->writer));
    out->writer_seq = (int64_t)meter_get_u64(&reader);
    if (reader.failed || meter_reader_left(&reader) > 0 ||
        out->ts_us < search->from_us || out->ts_us > search->to_us) {
        return false;
    }
    memcpy(out->writer, bytes.data, sizeof(out->writer));
    return true;
}
