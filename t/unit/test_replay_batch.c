/*
 * test_replay_batch.c - records to bodies, verdicts back to lines.
 */

#include "meter_cmocka.h"

#include "cmd/replay_input.c"

#define COUNT_MAX 4

struct place {
    struct meter_str text;
    size_t at;
    struct replay_source *source;
    struct replay_batch batch;
    struct replay_tally tally;
    struct buf body;
};

static ssize_t
read_cb(void *asker, char *out, size_t size)
{
    struct place *place = asker;
    size_t left = place->text.size - place->at;

    size = size < left ? size : left;
    memcpy(out, place->text.data + place->at, size);
    place->at += size;
    return (ssize_t)size;
}

static void
place_open(struct place *place, const char *text)
{
    *place = (struct place){.text = str_of(text)};
    place->source = replay_source_create(false, read_cb, place);
    assert_non_null(place->source);
    replay_batch_init(&place->batch, COUNT_MAX);
    replay_tally_init(&place->tally, NULL);
    place->tally.told = TALLY_TOLD_MAX + 1; /* nothing is told */
    buf_init(&place->body, 1u << 20);
}

static void
place_close(struct place *place)
{
    replay_source_destroy(place->source);
    replay_batch_fini(&place->batch);
    replay_tally_fini(&place->tally);
    buf_fini(&place->body);
}

static void
assert_body(struct place *place, const char *expected)
{
    buf_reset(&place->body);
    assert_true(replay_batch_next(&place->batch, &place->body));
    buf_put_byte(&place->body, 0);
    assert_string_equal(place->body.data, expected);
}

static void
answer_done(struct place *place, const enum meter_verdict *verdicts,
            size_t count)
{
    struct ingest_result results[COUNT_MAX] = {0};
    const struct ingest_answer answer = {
        .outcome = INGEST_DONE, .results = results, .count = count};

    for (size_t i = 0; i < count; i++) {
        results[i].verdict = verdicts[i];
    }
    replay_batch_answered(&place->batch, &answer, &place->tally);
}

static void
answer_bad(struct place *place)
{
    const struct ingest_answer answer = {.outcome = INGEST_BAD,
                                         .error = "too much"};

    replay_batch_answered(&place->batch, &answer, &place->tally);
}

static void
assert_counts(const struct place *place, int accepted, int duplicate,
              int conflict, int rejected)
{
    const int64_t *counts = place->tally.counts;

    assert_int_equal(counts[METER_VERDICT_ACCEPTED], accepted);
    assert_int_equal(counts[METER_VERDICT_DUPLICATE], duplicate);
    assert_int_equal(counts[METER_VERDICT_CONFLICT], conflict);
    assert_int_equal(counts[METER_VERDICT_REJECTED], rejected);
}

static void
batch__of_good_and_broken_lines__sends_the_good_ones(void **state)
{
    static const enum meter_verdict verdicts[] = {METER_VERDICT_CONFLICT,
                                                  METER_VERDICT_ACCEPTED};
    struct place place;

    (void)state;
    place_open(&place, "{\"a\":1}\n{\"b\"\n  {\"c\":\"}\"} \n{}}\n{\"d\":4}\n");
    assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                     REPLAY_RECORD);
    assert_int_equal(place.batch.count, 4);
    assert_int_equal(place.batch.offset_next, 30);
    assert_int_equal(place.batch.line_next, 5);
    assert_body(&place, "[{\"a\":1},{\"c\":\"}\"}]");
    answer_done(&place, verdicts, 2);
    assert_counts(&place, 1, 0, 1, 2);
    assert_false(replay_batch_next(&place.batch, &place.body));

    assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                     REPLAY_END);
    assert_body(&place, "[{\"d\":4}]");
    answer_done(&place, verdicts + 1, 1);
    assert_counts(&place, 2, 0, 1, 2);
    assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                     REPLAY_END);
    assert_int_equal(place.batch.count, 0);
    assert_false(replay_batch_next(&place.batch, &place.body));
    place_close(&place);
}

static void
batch__of_broken_lines_only__is_an_empty_list(void **state)
{
    static const char *const lines[] = {"x",      "[]",         "{",
                                        "{}{}",   "{},{}",      "{]",
                                        "\"{}\"", "{\"a\":\"}", "{\"a\":[}"};

    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct place place;

        place_open(&place, lines[i]);
        assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                         REPLAY_END);
        if (strcmp(lines[i], "{\"a\":[}") != 0) { /* the gate's to judge */
            assert_body(&place, "[]");
            answer_done(&place, NULL, 0);
            assert_counts(&place, 0, 0, 0, 1);
        }
        place_close(&place);
    }
}

static void
body__that_is_refused__goes_one_by_one(void **state)
{
    static const enum meter_verdict accepted[] = {METER_VERDICT_ACCEPTED};
    struct place place;

    (void)state;
    place_open(&place, "{\"a\":1}\nx\n{\"b\":2}\n{\"c\":3}\n{\"d\":4}\n{}\n");
    assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                     REPLAY_RECORD);
    assert_body(&place, "[{\"a\":1},{\"b\":2},{\"c\":3}]");
    answer_bad(&place);
    assert_counts(&place, 0, 0, 0, 0);
    assert_body(&place, "[{\"a\":1}]");
    answer_done(&place, accepted, 1);
    assert_body(&place, "[]");
    answer_done(&place, NULL, 0);
    assert_body(&place, "[{\"b\":2}]");
    answer_bad(&place);
    assert_body(&place, "[{\"c\":3}]");
    answer_done(&place, accepted, 1);
    assert_false(replay_batch_next(&place.batch, &place.body));
    assert_counts(&place, 2, 0, 0, 2);

    /* the next batch goes whole again */
    assert_int_equal(replay_batch_fill(&place.batch, place.source, NULL),
                     REPLAY_END);
    assert_body(&place, "[{\"d\":4},{}]");
    place_close(&place);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch__of_good_and_broken_lines__sends_the_good_ones),
        cmocka_unit_test(batch__of_broken_lines_only__is_an_empty_list),
        cmocka_unit_test(body__that_is_refused__goes_one_by_one),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
