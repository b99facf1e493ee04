/*
 * test_word_sort.c - sorting by words against plain comparisons.
 */

#include "meter_cmocka.h"

#include "buckets/bucket_batch.c"
#include "meter_random.h"

#define PLACES_MAX 600
#define TEXT_MAX   40

/* A text and a number. */
struct item {
    struct meter_str text;
    int64_t value;
    char bytes[TEXT_MAX];
};

static struct item items[PLACES_MAX];
static struct word_place places[PLACES_MAX];
static struct word_place spare[PLACES_MAX];
static struct word_place expected[PLACES_MAX];

static size_t
item_count(const void *at)
{
    const struct item *item = at;

    return word_text_count(item->text) + 1;
}


static uint64_t
item_word(const void *at, size_t number)
{
    const struct item *item = at;

    return number < word_text_count(item->text)
               ? word_of_text(item->text, number)
               : word_of_int(item->value);
}


static const struct word_order order = {item_count, item_word};

static int
compare(const void *left, const void *right)
{
    const struct word_place *a = left;
    const struct word_place *b = right;
    const struct item *item_a = a->item;
    const struct item *item_b = b->item;
    int step = meter_str_compare(item_a->text, item_b->text);

    if (step == 0) {
        step =
            (item_a->value > item_b->value) - (item_a->value < item_b->value);
    }
    return step != 0 ? step : (a->index > b->index) - (a->index < b->index);
}


static void
assert_sorted(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        items[i].text.data = items[i].bytes;
        places[i] = (struct word_place){0, &items[i], (uint32_t)i};
        expected[i] = places[i];
    }
    if (count > 0) {
        qsort(expected, count, sizeof(expected[0]), compare);
    }
    word_sort(places, spare, count, &order);
    for (size_t i = 0; i < count; i++) {
        assert_ptr_equal(places[i].item, expected[i].item);
        assert_int_equal(places[i].index, expected[i].index);
    }
}


static void
sort__random_texts__as_compared(void **state)
{
    struct meter_random random = {17};

    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t count = random_below(&random, round % 2 ? 40 : PLACES_MAX + 1);
        size_t common = random_below(&random, 3) * 9;
        /* Few letters: many are equal, or the beginning of another. */
        size_t letters = 1 + random_below(&random, 4);

        for (size_t i = 0; i < count; i++) {
            size_t size = common + random_below(&random, TEXT_MAX + 1 - common);

            items[i].text.size = random_below(&random, 2) ? size : common;
            memset(items[i].bytes, 'p', common);
            for (size_t b = common; b < size; b++) {
                items[i].bytes[b] =
                    "a\xffz\x01"[random_below(&random, letters)];
            }
            items[i].value = (int64_t)random_below(&random, 5) - 2;
        }
        assert_sorted(count);
    }
}


static void
sort__numbers__negative_first(void **state)
{
    static const int64_t values[] = {INT64_MAX, -1, 0, INT64_MIN, 1,
                                     1 << 30,   -2, 0, -1};

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        items[i].text.size = 0;
        items[i].value = values[i];
    }
    assert_sorted(sizeof(values) / sizeof(values[0]));
    assert_sorted(0);
    assert_sorted(1);
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sort__random_texts__as_compared),
    cmocka_unit_test(sort__numbers__negative_first),
};

RUN_TAP(tests)
