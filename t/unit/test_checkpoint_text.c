/*
 * test_checkpoint_text.c - lines of a checkpoint: exactly ours, or refused.
 */

#include "meter_cmocka.h"

#include "maintain/checkpoint_text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define KEY \
    "\"0000000000000000000000000000000000000000000000000000000000000000\""
#define TIME "\"updated_at\":\"2026-09-01T12:00:00.000000Z\""
#define HEADER(version, writers)                                    \
    "{\"format\":\"edgemeter-checkpoint\",\"version\":" version     \
    ",\"created_at\":\"2026-09-01T12:00:00.000000Z\",\"schema\":4," \
    "\"salt_sha256\":" KEY ",\"incarnation\":\"\",\"writers\":{" writers "}}"
#define COUNTER(value)                                 \
    "{\"tenant\":\"a\",\"counter\":\"c\",\"key\":" KEY \
    ",\"dimensions\":\"{}\",\"value\":" value "," TIME "}"
#define ENTITY(place) \
    "{\"tenant\":\"a\",\"owner\":\"c\",\"entity\":\"1\"," place "," TIME "}"
#define USAGE(values, status)                                                  \
    "{\"tenant\":\"a\",\"usage\":[" values "],\"status\":\"" status "\"," TIME \
    "}"
#define WRITER "00000000-0000-0000-0000-00000000000"

static const struct {
    const char *text;
    enum checkpoint_line line;
} cases[] = {
    {COUNTER("\"1\""), CHECKPOINT_LINE_ROW},
    {COUNTER("\"0\""), CHECKPOINT_LINE_ROW},
    {COUNTER("\"9223372036854775807\""), CHECKPOINT_LINE_ROW},
    {COUNTER("\"-9223372036854775808\""), CHECKPOINT_LINE_ROW},
    {COUNTER("\"9223372036854775808\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"-9223372036854775809\""), CHECKPOINT_LINE_BAD},
    {COUNTER("1"), CHECKPOINT_LINE_BAD},
    {COUNTER("null"), CHECKPOINT_LINE_BAD},
    {COUNTER("\"01\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"-0\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"-01\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"+1\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"-\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"1.0\""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"1 \""), CHECKPOINT_LINE_BAD},
    {COUNTER("\"1\",\"more\":1"), CHECKPOINT_LINE_BAD},
    {COUNTER("\"1\"") " ", CHECKPOINT_LINE_BAD},
    {COUNTER("\"1\"") "{}", CHECKPOINT_LINE_BAD},
    {"{\"tenant\":\"\",\"counter\":\"c\",\"key\":" KEY
     ",\"dimensions\":\"{}\",\"value\":\"1\"," TIME "}",
     CHECKPOINT_LINE_BAD},
    {"{\"tenant\":\"a\",\"counter\":\"c\",\"key\":null,"
     "\"dimensions\":null,\"value\":\"1\"," TIME "}",
     CHECKPOINT_LINE_BAD},
    {"{\"tenant\":\"a\",\"counter\":\"c\",\"key\":\"00\","
     "\"dimensions\":\"{}\",\"value\":\"1\"," TIME "}",
     CHECKPOINT_LINE_BAD},
    {"{\"tenant\":\"a\",\"counter\":\"c\",\"key\":" KEY
     ",\"dimensions\":\"{}\",\"value\":\"1\","
     "\"updated_at\":\"2026-09-01T12:00:00Z\"}",
     CHECKPOINT_LINE_BAD},
    {ENTITY("\"key\":" KEY ",\"dimensions\":\"{}\""), CHECKPOINT_LINE_ROW},
    {ENTITY("\"key\":null,\"dimensions\":null"), CHECKPOINT_LINE_ROW},
    {ENTITY("\"key\":null,\"dimensions\":\"{}\""), CHECKPOINT_LINE_BAD},
    {ENTITY("\"key\":" KEY ",\"dimensions\":null"), CHECKPOINT_LINE_BAD},
    {USAGE("\"0\",\"0\",\"1\"", "active"), CHECKPOINT_LINE_ROW},
    {USAGE("\"0\",\"0\",\"1\"", "decommissioned"), CHECKPOINT_LINE_ROW},
    {USAGE("\"0\",\"0\",\"-1\"", "active"), CHECKPOINT_LINE_BAD},
    {USAGE("\"0\",\"0\"", "active"), CHECKPOINT_LINE_BAD},
    {USAGE("\"0\",\"0\",\"0\",\"0\"", "active"), CHECKPOINT_LINE_BAD},
    {USAGE("0,0,0", "active"), CHECKPOINT_LINE_BAD},
    {USAGE("\"0\",\"0\",\"1\"", "asleep"), CHECKPOINT_LINE_BAD},
    {HEADER("1", ""), CHECKPOINT_LINE_HEADER},
    {HEADER("1", "\"" WRITER "a\":\"1\""), CHECKPOINT_LINE_HEADER},
    {HEADER("1", "\"" WRITER "b\":\"1\",\"" WRITER "a\":\"1\""),
     CHECKPOINT_LINE_HEADER},
    {HEADER("1", "\"" WRITER "a\":\"1\",\"" WRITER "a\":\"1\""),
     CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "a\":\"0\""), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "a\":\"-1\""), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "a\":1"), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "A\":\"1\""), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "\":\"1\""), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"" WRITER "aa\":\"1\""), CHECKPOINT_LINE_BAD},
    {HEADER("1", "\"00000000000000000000000000000000000a\":\"1\""),
     CHECKPOINT_LINE_BAD},
    {HEADER("2", ""), CHECKPOINT_LINE_VERSION},
    {HEADER("0", ""), CHECKPOINT_LINE_VERSION},
    {HEADER("1.0", ""), CHECKPOINT_LINE_BAD},
    {HEADER("\"1\"", ""), CHECKPOINT_LINE_BAD},
    {"{\"rows\":\"0\",\"sha256\":" KEY "}", CHECKPOINT_LINE_TRAILER},
    {"{\"rows\":0,\"sha256\":" KEY "}", CHECKPOINT_LINE_BAD},
    {"{\"rows\":\"0\",\"sha256\":\"\"}", CHECKPOINT_LINE_BAD},
    {"{\"rows\":\"0\"}", CHECKPOINT_LINE_BAD},
    {"", CHECKPOINT_LINE_BAD},
    {"{}", CHECKPOINT_LINE_BAD},
    {"[]", CHECKPOINT_LINE_BAD},
    {"1", CHECKPOINT_LINE_BAD},
    {"{\"format\":\"other\",\"version\":1}", CHECKPOINT_LINE_BAD},
};

static void
line__of_any_kind__is_told_from_others(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct checkpoint_found found;
        struct arena arena;

        arena_init(&arena, 1024, 1 << 20);
        if (checkpoint_line_read(str_of(cases[i].text), &arena, &found) !=
            cases[i].line) {
            fail_msg("case %zu: %s", i, cases[i].text);
        }
        arena_fini(&arena);
    }
}

/* Put again, what was read gives the same line. */
static void
line__that_was_read__is_written_the_same(void **state)
{
    struct checkpoint_found found;
    struct arena arena;
    struct buf out;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        arena_init(&arena, 1024, 1 << 20);
        buf_init(&out, 4096);
        switch (checkpoint_line_read(str_of(cases[i].text), &arena, &found)) {
        case CHECKPOINT_LINE_ROW: checkpoint_put_row(&out, &found.row); break;
        case CHECKPOINT_LINE_TRAILER:
            checkpoint_put_trailer(&out, &found.trailer);
            break;
        case CHECKPOINT_LINE_HEADER:
            if (found.header.writer_count < 2) { /* those get sorted */
                checkpoint_put_header(&out, &found.header);
            }
            break;
        default: break;
        }
        if (out.size > 0) {
            assert_int_equal(out.size, strlen(cases[i].text) + 1);
            assert_memory_equal(out.data, cases[i].text, out.size - 1);
            assert_int_equal(out.data[out.size - 1], '\n');
        }
        buf_fini(&out);
        arena_fini(&arena);
    }
}

static void
writers__in_any_order__are_sorted(void **state)
{
    struct checkpoint_found found;
    struct arena arena;

    (void)state;
    arena_init(&arena, 1024, 1 << 20);
    assert_int_equal(
        checkpoint_line_read(
            str_of(HEADER("1", "\"" WRITER "b\":\"2\",\"" WRITER "a\":\"1\"")),
            &arena, &found),
        CHECKPOINT_LINE_HEADER);
    assert_int_equal(found.header.writer_count, 2);
    assert_int_equal(found.header.writers[0].writer[15], 10);
    assert_int_equal(found.header.writers[0].last, 1);
    assert_int_equal(found.header.writers[1].last, 2);
    arena_fini(&arena);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(line__of_any_kind__is_told_from_others),
        cmocka_unit_test(line__that_was_read__is_written_the_same),
        cmocka_unit_test(writers__in_any_order__are_sorted),
    };

    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
