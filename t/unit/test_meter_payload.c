/* Rules that hold for the payload of every message: fields missing, twice,
 * unknown, in another order, cut short or damaged. */

#include "meter_cmocka.h"

#include "meter_golden.h"
#include "meter_msg.h"
#include "meter_random.h"

static uint8_t golden[1024];


union any_message {
    struct meter_request request;
    struct meter_response response;
    struct meter_hello hello;
    struct meter_hello_ack hello_ack;
    struct meter_result result;
    struct meter_credit credit;
    struct meter_nack nack;
};

static bool
decode_kind(int kind, struct meter_str bytes, union any_message *out)
{
    switch (kind) {
    case 0: return meter_request_decode(bytes, &out->request);
    case 1: return meter_response_decode(bytes, &out->response);
    case 2: return meter_hello_decode(bytes, &out->hello);
    case 3: return meter_hello_ack_decode(bytes, &out->hello_ack);
    case 4: return meter_result_decode(bytes, &out->result);
    case 5: return meter_credit_decode(bytes, &out->credit);
    default: return meter_nack_decode(bytes, &out->nack);
    }
}

enum { KINDS = 7 };

static const struct {
    const char *name;
    int required; /* fields that must be there: the first so many */
    int known;    /* highest number */
    int repeats;  /* the one that may repeat, 0 for none */
} kinds[KINDS] = {
    {"request", 3, 11, 11}, {"response", 2, 6, 6}, {"hello", 5, 9, 0},
    {"hello_ack", 3, 7, 0}, {"result", 1, 3, 0},   {"credit", 1, 1, 0},
    {"nack", 1, 2, 0},
};


static struct meter_str
payload_of(int kind)
{
    size_t size =
        golden_read(__FILE__, kinds[kind].name, golden, sizeof(golden));

    return (struct meter_str){(char *)golden + METER_FRAME_HEADER_SIZE,
                              size - METER_FRAME_HEADER_SIZE};
}


/* The payload without field `number`, or with it `times` times. */
static struct meter_str
with_field(struct meter_str payload, int number, int times, uint8_t *out)
{
    struct meter_field_list list;
    struct meter_field field;
    struct meter_writer writer;

    meter_writer_init(&writer, out, 2048);
    meter_field_list_init(&list, payload);
    while (meter_field_next(&list, &field)) {
        uint16_t tag = (uint16_t)(field.number |
                                  (field.critical ? METER_TAG_CRITICAL : 0));

        for (int i = 0; i < (field.number == number ? times : 1); i++) {
            meter_put_field_str(&writer, tag, field.value);
        }
    }
    assert_false(writer.failed);
    return (struct meter_str){(char *)out, writer.at};
}


static void
every_message__field_missing__bad_only_when_required(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);

        for (int number = 1; number <= kinds[kind].known; number++) {
            uint8_t data[2048];
            union any_message out;
            /* first_seq of a RESULT is required beside codes. */
            bool required =
                number <= kinds[kind].required || (kind == 4 && number == 2);

            assert_int_equal(
                decode_kind(kind, with_field(payload, number, 0, data), &out),
                !required);
        }
    }
}


static void
every_message__field_twice__bad_unless_it_may_repeat(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);

        for (int number = 1; number <= kinds[kind].known; number++) {
            uint8_t data[2048];
            union any_message out;

            assert_int_equal(
                decode_kind(kind, with_field(payload, number, 2, data), &out),
                number == kinds[kind].repeats);
        }
    }
}


static void
every_message__unknown_field__skipped_unless_critical(void **state)
{
    static const uint16_t numbers[] = {0, 40, 63, 64, 65, 0x7fff};

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);

        for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
            uint8_t data[2048];
            struct meter_writer writer;
            union any_message out;

            meter_writer_init(&writer, data, sizeof(data));
            meter_put_field_str(&writer, numbers[i], METER_STR("new"));
            meter_put_bytes(&writer, payload.data, payload.size);
            meter_put_field_str(&writer, numbers[i], METER_STR("twice"));
            assert_true(decode_kind(
                kind, (struct meter_str){(char *)data, writer.at}, &out));
            meter_put_field_str(&writer,
                                (uint16_t)(numbers[i] | METER_TAG_CRITICAL),
                                METER_STR(""));
            assert_false(decode_kind(
                kind, (struct meter_str){(char *)data, writer.at}, &out));
        }
    }
}


static void
every_message__fields_in_any_order_and_without_the_bit__same(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);
        struct meter_field_list list;
        struct meter_field fields[16];
        uint8_t data[2048];
        struct meter_writer writer;
        union any_message out;
        size_t count = 0;

        meter_field_list_init(&list, payload);
        while (meter_field_next(&list, &fields[count])) {
            count++;
        }
        meter_writer_init(&writer, data, sizeof(data));
        for (size_t i = count; i > 0; i--) {
            meter_put_field_str(&writer, fields[i - 1].number,
                                fields[i - 1].value);
        }
        assert_true(decode_kind(
            kind, (struct meter_str){(char *)data, writer.at}, &out));
    }
}


static void
every_message__cut_short__never_crashes_or_misreads(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);

        for (size_t size = 0; size < payload.size; size++) {
            char *copy = malloc(size == 0 ? 1 : size);
            union any_message out;
            struct meter_field_list list;
            struct meter_field field;
            bool between;

            memcpy(copy, payload.data, size);
            meter_field_list_init(&list, (struct meter_str){copy, size});
            while (meter_field_next(&list, &field)) {
            }
            between = meter_field_list_end(&list, 0);
            if (decode_kind(kind, (struct meter_str){copy, size}, &out)) {
                assert_true(between);
            }
            free(copy);
        }
    }
}


static void
every_message__random_bytes_changed__still_bounded(void **state)
{
    struct meter_random random = {14};

    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct meter_str payload = payload_of(kind);
        char *copy = malloc(payload.size);

        for (int round = 0; round < 20000; round++) {
            union any_message out;

            memcpy(copy, payload.data, payload.size);
            for (int i = 0; i < 3; i++) {
                copy[random_below(&random, payload.size)] =
                    (char)random_u64(&random);
            }
            if (decode_kind(kind, (struct meter_str){copy, payload.size},
                            &out) &&
                kind == 0) {
                const char *end = copy + payload.size;

                assert_true(out.request.path.data >= copy &&
                            out.request.path.data + out.request.path.size <=
                                end);
                assert_true(out.request.header_count <= METER_HEADER_COUNT_MAX);
            }
        }
        free(copy);
    }
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_message__field_missing__bad_only_when_required),
    cmocka_unit_test(every_message__field_twice__bad_unless_it_may_repeat),
    cmocka_unit_test(every_message__unknown_field__skipped_unless_critical),
    cmocka_unit_test(
        every_message__fields_in_any_order_and_without_the_bit__same),
    cmocka_unit_test(every_message__cut_short__never_crashes_or_misreads),
    cmocka_unit_test(every_message__random_bytes_changed__still_bounded),
};

RUN_TAP(tests)
