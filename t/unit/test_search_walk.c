/*
 * test_search_walk.c - pages of a search over a list that grows: every event
 * of the range once, newest first, with bounded pages and a budget.
 */

#include "meter_cmocka.h"

#include "api/event.c"
#include "meter_random.h"
#include "meter_time.h"

#define EVENTS_MAX 4000
#define NOW        (1000 * METER_TIME_DAY)

/* A server: events in no order. */
struct server {
    struct search_place events[EVENTS_MAX];
    bool is_first[EVENTS_MAX]; /* there before the walk */
    int seen[EVENTS_MAX];
    size_t count;
    struct meter_random random;
};

static struct server server;
static uint64_t rounds;

static void
server_add(int64_t ts_us, bool is_first)
{
    struct search_place *event = &server.events[server.count];

    assert_true(server.count < EVENTS_MAX);
    *event = (struct search_place){.ts_us = ts_us};
    event->writer[0] = (uint8_t)random_below(&server.random, 3);
    event->writer_seq = (int64_t)server.count + 1;
    server.is_first[server.count++] = is_first;
}

static int
place_compare(const struct search_place *a, const struct search_place *b)
{
    int order = memcmp(a->writer, b->writer, 16);

    if (a->ts_us != b->ts_us) {
        return a->ts_us < b->ts_us ? -1 : 1;
    }
    if (order != 0) {
        return order;
    }
    return (a->writer_seq > b->writer_seq) - (a->writer_seq < b->writer_seq);
}

/* As the statements: the newest behind the place and not before from. */
static size_t
server_page(const struct search_walk *walk, size_t *out)
{
    struct search_place behind = walk->after;
    size_t count = 0;

    while (count < (size_t)walk->rows) {
        size_t best = server.count;

        for (size_t i = 0; i < server.count; i++) {
            const struct search_place *event = &server.events[i];

            if (event->ts_us >= walk->from_us &&
                place_compare(event, &behind) < 0 &&
                (best == server.count ||
                 place_compare(event, &server.events[best]) > 0)) {
                best = i;
            }
        }
        if (best == server.count) {
            break;
        }
        out[count++] = best;
        behind = server.events[best];
    }
    return count;
}

/* One page taken whole; counts what was seen. */
static enum search_walk_next
walk_page(struct search_walk *walk)
{
    static size_t page[SEARCH_PAGE_ROWS_MAX];
    size_t count = server_page(walk, page);
    struct search_place end = walk->after;

    for (size_t i = 0; i < count; i++) {
        end = server.events[page[i]];
        assert_true(search_walk_row(walk, &end, 100));
        server.seen[page[i]]++;
    }
    return search_walk_page(walk, (int64_t)count, &end);
}

static void
server_start(struct search *search, enum search_drive_kind kind)
{
    memset(&server, 0, sizeof(server));
    server.random.state = ++rounds;
    *search =
        (struct search){.from_us = METER_TIME_MIN, .to_us = METER_TIME_MAX + 1};
    search->drive.kind = kind;
    search->drive.value_count = 1;
}

static void
assert_all_once(const struct search *search)
{
    for (size_t i = 0; i < server.count; i++) {
        bool is_inside = server.events[i].ts_us >= search->from_us &&
                         server.events[i].ts_us < search->to_us;

        if (server.is_first[i]) {
            assert_int_equal(server.seen[i], is_inside ? 1 : 0);
        } else {
            assert_true(server.seen[i] <= 1);
        }
    }
}

static void
walk__random_histories__each_event_once(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        struct search search;
        struct search_walk walk;
        struct search_place place;
        char key[SEARCH_PLACE_SIZE];
        int pages = 0;

        server_start(&search, (enum search_drive_kind)(round % 3));
        search.drive.value_count = round % 2 == 0 ? 1 : 9;
        search.from_us = NOW - 1000 * METER_TIME_DAY;
        if (round % 4 == 0) {
            search.from_us = NOW - 5 * METER_TIME_DAY;
            search.to_us = NOW - METER_TIME_HOUR;
        }
        for (size_t i = 0; i < random_below(&server.random, 700); i++) {
            int64_t days = (int64_t)random_below(&server.random,
                                                 1 + (uint64_t)round * round);

            server_add(NOW + METER_TIME_HOUR -
                           days * METER_TIME_DAY / 4 *
                               (int64_t)random_below(&server.random, 2),
                       true);
        }
        search_walk_begin(&walk, &search, NULL, NOW);
        while (walk_page(&walk) == SEARCH_WALK_MORE) {
            assert_true(++pages < 200);
            server_add(NOW - (int64_t)random_below(&server.random,
                                                   10 * METER_TIME_DAY),
                       false);
            if (random_below(&server.random, 3) == 0) {
                /* The client goes on with a cursor. */
                search_place_write(&walk.after, key);
                assert_true(search_place_read(
                    &search, (struct meter_str){key, sizeof(key)}, &place));
                search_walk_begin(&walk, &search, &place, NOW);
            }
        }
        assert_all_once(&search);
    }
}

static void
begin__windows__newest_day_first(void **state)
{
    struct search search;
    struct search_walk walk;

    (void)state;
    server_start(&search, SEARCH_DRIVE_LEDGER);
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(walk.from_us == NOW - METER_TIME_DAY);
    assert_true(walk.after.ts_us == METER_TIME_MAX + 1);
    search.to_us = NOW - METER_TIME_HOUR;
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(walk.from_us == NOW - METER_TIME_HOUR - METER_TIME_DAY);
    search.from_us = NOW + METER_TIME_DAY;
    search.to_us = METER_TIME_MAX + 1;
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(walk.from_us == search.from_us);
    server_start(&search, SEARCH_DRIVE_VALUES);
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(walk.from_us == METER_TIME_MIN);
    search.drive.value_count = 5;
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(walk.from_us == NOW - METER_TIME_DAY);
}

static void
page__nothing_anywhere__few_windows(void **state)
{
    struct search search;
    struct search_walk walk;
    int pages = 1;

    (void)state;
    server_start(&search, SEARCH_DRIVE_RANGE);
    search_walk_begin(&walk, &search, NULL, NOW);
    while (search_walk_page(&walk, 0, &walk.after) == SEARCH_WALK_MORE) {
        pages++;
    }
    assert_true(walk.from_us == METER_TIME_MIN);
    assert_true(pages < 15);
}

static void
page__rows__grow_while_events_are_small(void **state)
{
    struct search search;
    struct search_walk walk;
    struct search_place place = {.ts_us = NOW};

    (void)state;
    server_start(&search, SEARCH_DRIVE_LEDGER);
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_int_equal(walk.rows, SEARCH_PAGE_ROWS_MIN);
    for (int i = 0; i < 8; i++) {
        place.ts_us--;
        assert_int_equal(search_walk_page(&walk, walk.rows, &place),
                         SEARCH_WALK_MORE);
    }
    assert_int_equal(walk.rows, SEARCH_PAGE_ROWS_MAX);
    for (int i = 0; i < 1000; i++) {
        place.ts_us--;
        assert_true(search_walk_row(&walk, &place, 16384));
    }
    place.ts_us--;
    assert_int_equal(search_walk_page(&walk, 1000, &place), SEARCH_WALK_MORE);
    assert_true(walk.rows * 16384 <= SEARCH_PAGE_SIZE_MAX);
}

static void
page__budget__spent_at_50000(void **state)
{
    struct search search;
    struct search_walk walk;
    struct search_place place = {.ts_us = NOW};
    int64_t scanned = 0;
    enum search_walk_next next = SEARCH_WALK_MORE;

    (void)state;
    server_start(&search, SEARCH_DRIVE_LEDGER);
    search_walk_begin(&walk, &search, NULL, NOW);
    while (next == SEARCH_WALK_MORE) {
        scanned += walk.rows;
        place.ts_us--;
        next = search_walk_page(&walk, walk.rows, &place);
    }
    assert_int_equal(next, SEARCH_WALK_SPENT);
    assert_true(scanned >= SEARCH_BUDGET_ROWS);
    assert_true(scanned < SEARCH_BUDGET_ROWS + SEARCH_PAGE_ROWS_MAX);
    assert_true(place_compare(&walk.after, &place) == 0);
}

static void
row__same_place_again__passed_over(void **state)
{
    struct search search;
    struct search_walk walk;
    struct search_place place = {.ts_us = NOW, .writer_seq = 3};

    (void)state;
    server_start(&search, SEARCH_DRIVE_VALUES);
    search_walk_begin(&walk, &search, NULL, NOW);
    assert_true(search_walk_row(&walk, &place, 1));
    assert_false(search_walk_row(&walk, &place, 1));
    place.writer_seq--;
    assert_true(search_walk_row(&walk, &place, 1));
    place.writer[15] = 1;
    assert_true(search_walk_row(&walk, &place, 1));
}

static void
place__key__there_and_back(void **state)
{
    struct search search = {.from_us = -5, .to_us = 50};
    struct search_place place = {.ts_us = -5, .writer_seq = INT64_MAX};
    struct search_place got;
    char key[SEARCH_PLACE_SIZE + 1] = {0};

    (void)state;
    memset(place.writer, 0xab, sizeof(place.writer));
    search_place_write(&place, key);
    assert_true(search_place_read(
        &search, (struct meter_str){key, SEARCH_PLACE_SIZE}, &got));
    assert_int_equal(place_compare(&place, &got), 0);
    for (size_t size = 0; size <= SEARCH_PLACE_SIZE + 1; size++) {
        assert_int_equal(
            search_place_read(&search, (struct meter_str){key, size}, &got),
            size == SEARCH_PLACE_SIZE);
    }
    place.ts_us = 51;
    search_place_write(&place, key);
    assert_false(search_place_read(
        &search, (struct meter_str){key, SEARCH_PLACE_SIZE}, &got));
    place.ts_us = -6;
    search_place_write(&place, key);
    assert_false(search_place_read(
        &search, (struct meter_str){key, SEARCH_PLACE_SIZE}, &got));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(walk__random_histories__each_event_once),
    cmocka_unit_test(begin__windows__newest_day_first),
    cmocka_unit_test(page__nothing_anywhere__few_windows),
    cmocka_unit_test(page__rows__grow_while_events_are_small),
    cmocka_unit_test(page__budget__spent_at_50000),
    cmocka_unit_test(row__same_place_again__passed_over),
    cmocka_unit_test(place__key__there_and_back),
};

RUN_TAP(tests)
