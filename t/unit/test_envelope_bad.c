/*
 * Every kind of bad event among good ones: it is rejected with its reason,
 * and its neighbours do not notice.
 */

#include "envelope_fixture.h"

#include "bad_events.h"
#include "meter_random.h"

/* Valid in different ways; the id says which position it has. */
static void
put_good(struct buf *body, size_t position)
{
    static const char *const forms[] = {
        "{\"event_id\":\"good-%zu\",\"type\":\"api.request\","
        "\"ts\":\"2024-03-01T12:00:00Z\",\"attributes\":{\"route\":\"/a\"}}",
        " {\"attributes\":{\"route\":{\"x\":[1,2,{}]},\"k\":\"\\u00e9 {[\"},"
        "\"event_id\":\"good-%zu\",\"ts\":1700000000,"
        "\"type\":\"api.request\"}\n",
        "{\"event_id\":\"good-%zu\",\"type\":\"api.request\",\"ts\":"
        "1700000000123,\"quantity\":\"-3.000000001\",\"customer\":"
        "\"c\xc3\xa9\","
        "\"tenant\":\"acme\",\"attributes\":{\"route\":\"\\\"]}\\\\\"}}",
        "{\"event_id\":\"good-%zu\",\"type\":\"api.request\",\"ts\":-1.5e3,"
        "\"quantity\":1e28,\"resource\":null,\"source\":\"gw\","
        "\"attributes\":{\"route\":false,\"n\":12345678901234567890.5}}",
    };

    switch (position % 4) {
    case 0: buf_printf(body, forms[0], position); break;
    case 1: buf_printf(body, forms[1], position); break;
    case 2: buf_printf(body, forms[2], position); break;
    default: buf_printf(body, forms[3], position); break;
    }
}

/* Which of the bad kinds stands at each position; -1: a good event. */
static void
scatter(const struct bad_events *bad, int *kinds, size_t count, uint64_t seed)
{
    struct meter_random random = {seed};

    for (size_t i = 0; i < count; i++) {
        kinds[i] = -1;
    }
    for (size_t i = 0; i < bad->count; i++) {
        size_t position;

        if (bad->items[i].breaks_outline) {
            continue;
        }
        do {
            position = random_below(&random, count);
        } while (kinds[position] >= 0);
        kinds[position] = (int)i;
    }
}

static void
assert_answer(const struct envelope *one, const struct bad_event *kind,
              size_t position)
{
    char id[300];

    if (kind == NULL) {
        if (one->error != NULL) {
            fail_msg("good event %zu: %s", position, one->error);
        }
        snprintf(id, sizeof(id), "good-%zu", position);
        assert_str(one->event.event_id, id);
        return;
    }
    assert_contains(one->error, kind->reason, kind->name);
    snprintf(id, sizeof(id), "\"event_id\":\"bad-%s\"", kind->name);
    if (memmem(kind->element.data, kind->element.size, id, strlen(id))) {
        snprintf(id, sizeof(id), "bad-%s", kind->name);
        if (one->id_seen.data == NULL) {
            fail_msg("%s has no id", kind->name);
        }
        assert_str(one->id_seen, id);
    }
}

static void
list__every_bad_kind_among_5000__is_rejected_alone(void **state)
{
    static int kinds[METER_BATCH_EVENTS_MAX];
    struct fixture *f = *state;
    struct bad_events bad;
    size_t intact = 0;

    bad_events_load(&bad);
    for (size_t i = 0; i < bad.count; i++) {
        intact += !bad.items[i].breaks_outline;
    }
    assert_true(intact >= 70);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct buf body;

        scatter(&bad, kinds, METER_BATCH_EVENTS_MAX, seed);
        buf_init(&body, METER_BODY_SIZE_MAX);
        buf_put_text(&body, seed % 2 ? "[" : "{\"events\":[");
        for (size_t i = 0; i < METER_BATCH_EVENTS_MAX; i++) {
            if (i > 0) {
                buf_put_byte(&body, ',');
            }
            if (kinds[i] < 0) {
                put_good(&body, i);
            } else {
                buf_put_str(&body, buf_str(&bad.items[kinds[i]].element));
            }
        }
        buf_put_text(&body, seed % 2 ? "]" : "]}");
        assert_false(body.failed);
        arena_reset(&f->arena);
        if (read_body(f, buf_str(&body)) != ENVELOPE_LIST) {
            fail_msg("seed %d: %s", (int)seed, f->error);
        }
        assert_int_equal(f->count, METER_BATCH_EVENTS_MAX);
        for (size_t i = 0; i < METER_BATCH_EVENTS_MAX; i++) {
            assert_answer(&f->list[i],
                          kinds[i] < 0 ? NULL : &bad.items[kinds[i]], i);
        }
        buf_fini(&body);
    }
    bad_events_free(&bad);
}

static void
list__kinds_that_break_the_outline__refuse_the_body(void **state)
{
    struct fixture *f = *state;
    struct bad_events bad;

    bad_events_load(&bad);
    for (size_t i = 0; i < bad.count; i++) {
        struct buf body;

        if (!bad.items[i].breaks_outline) {
            continue;
        }
        buf_init(&body, 1 << 20);
        buf_put_text(&body, "[");
        put_good(&body, 0);
        buf_put_text(&body, ",");
        buf_put_str(&body, buf_str(&bad.items[i].element));
        buf_put_text(&body, ",");
        put_good(&body, 0);
        buf_put_text(&body, "]");
        if (read_body(f, buf_str(&body)) != ENVELOPE_BAD) {
            fail_msg("%s is taken", bad.items[i].name);
        }
        assert_contains(f->error, bad.items[i].reason, bad.items[i].name);
        buf_fini(&body);
    }
    bad_events_free(&bad);
}

/* One object as the whole body: the same reason. */
static void
single__every_bad_object__has_the_same_reason(void **state)
{
    struct fixture *f = *state;
    struct bad_events bad;

    bad_events_load(&bad);
    for (size_t i = 0; i < bad.count; i++) {
        const struct bad_event *kind = &bad.items[i];

        if (kind->breaks_outline || kind->element.data[0] != '{') {
            continue;
        }
        arena_reset(&f->arena);
        if (read_body(f, buf_str(&kind->element)) != ENVELOPE_SINGLE) {
            fail_msg("%s: %s", kind->name, f->error);
        }
        assert_int_equal(f->count, 1);
        assert_answer(&f->list[0], kind, 0);
    }
    bad_events_free(&bad);
}

static const struct CMUnitTest tests[] = {
    TEST(list__every_bad_kind_among_5000__is_rejected_alone),
    TEST(list__kinds_that_break_the_outline__refuse_the_body),
    TEST(single__every_bad_object__has_the_same_reason),
};

RUN_TAP(tests)
