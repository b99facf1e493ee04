/*
 * search_walk.h - newest first through what a search drives, in pages. Pure.
 *
 *   [search_walk_begin] -> behind, from, rows -> statement -> candidates
 *   candidates -> [search_walk_row], [search_walk_page] -> next page | END
 *
 * Events are ordered by (ts, writer, writer_seq), descending, which no two
 * share and which never changes: whatever arrives meanwhile, going on behind
 * a place neither skips nor repeats an event. Pages come from windows of
 * time that grow while little is found, so that the newest days are looked
 * at first and alone.
 */

#ifndef QUERY_SEARCH_WALK_H
#define QUERY_SEARCH_WALK_H

#include "query/search.h"

#define SEARCH_PAGE_ROWS_MIN 100  /* the first page */
#define SEARCH_PAGE_ROWS_MAX 2000 /* and fewer of large events */
#define SEARCH_PAGE_SIZE_MAX (4u << 20)
#define SEARCH_BUDGET_ROWS   50000

#define SEARCH_PLACE_SIZE 32 /* [ts 8][writer 16][writer_seq 8] */

/* Of an event; what is asked for lies strictly behind. */
struct search_place {
    int64_t ts_us;
    uint8_t writer[16];
    int64_t writer_seq;
};

/* One page, as the statements take it. */
struct search_walk {
    const struct search *search;
    struct search_place behind;
    int64_t from_us; /* of the window */
    int64_t window_us;
    int64_t rows;     /* at most */
    int64_t scanned;  /* candidates so far */
    size_t page_size; /* bytes of events of this page */
};

enum search_walk_next {
    SEARCH_WALK_MORE,  /* another page */
    SEARCH_WALK_SPENT, /* the budget is: more may follow */
    SEARCH_WALK_END    /* the range is through */
};

/* after NULL: from the start. search must outlive the walk. */
void search_walk_begin(struct search_walk *walk, const struct search *search,
                       const struct search_place *after, int64_t now_us);
/* An event of the page came, of so many bytes. False: it was the last one
   already: two entries of the index lead to it. */
bool search_walk_row(struct search_walk *walk, const struct search_place *place,
                     size_t size);
/*
 * The page is through: it had so many candidates, the last one at *end. An
 * entry without its event is a candidate too.
 */
enum search_walk_next
search_walk_page(struct search_walk *walk, int64_t candidates,
                 const struct search_place *end);

/* The key of a cursor and back; false: it is none of this search. */
void search_place_write(const struct search_place *place,
                        char out[SEARCH_PLACE_SIZE]);
MUST_CHECK bool
search_place_read(const struct search *search, struct meter_str key,
                  struct search_place *out);

#endif
