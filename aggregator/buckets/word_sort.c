/*
 * word_sort.c - see word_sort.h.
 */

#include "buckets/word_sort.h"

#include <endian.h>

#define FEW 24 /* places that are sorted by comparing */


/* ---- words ----------------------------------------------------------- */

size_t
word_text_count(struct meter_str text)
{
    return text.size / sizeof(uint64_t) + 1;
}


uint64_t
word_of_text(struct meter_str text, size_t number)
{
    size_t from = number * sizeof(uint64_t);
    size_t left = text.size - from;
    uint64_t word = 0;

    CHECK(from <= text.size);
    if (left >= sizeof(word)) {
        memcpy(&word, text.data + from, sizeof(word));
    } else if (left > 0) {
        memcpy(&word, text.data + from, left);
    }
    return be64toh(word);
}


/* Negative ones first. */
uint64_t
word_of_int(int64_t value)
{
    return (uint64_t)value ^ UINT64_C(1) << 63;
}


/* ---- one word -------------------------------------------------------- */

static void
sort_few(struct word_place *places, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct word_place place = places[i];
        size_t at = i;

        while (at > 0 && places[at - 1].word > place.word) {
            places[at] = places[at - 1];
            at--;
        }
        places[at] = place;
    }
}


/* By one byte of the word, in as many piles as it has values. */
static void
deal(const struct word_place *from, struct word_place *to, size_t count,
     unsigned shift)
{
    size_t starts[256] = {0};
    size_t start = 0;

    for (size_t i = 0; i < count; i++) {
        starts[from[i].word >> shift & 0xff]++;
    }
    for (size_t byte = 0; byte < 256; byte++) {
        size_t size = starts[byte];

        starts[byte] = start;
        start += size;
    }
    for (size_t i = 0; i < count; i++) {
        to[starts[from[i].word >> shift & 0xff]++] = from[i];
    }
}


/* The lowest byte first; differing has a bit wherever two words differ. */
static void
sort_many(struct word_place *places, struct word_place *spare, size_t count,
          uint64_t differing)
{
    struct word_place *from = places;
    struct word_place *to = spare;

    for (unsigned shift = 0; shift < 64; shift += 8) {
        struct word_place *dealt = to;

        if ((differing >> shift & 0xff) == 0) {
            continue;
        }
        deal(from, to, count, shift);
        to = from;
        from = dealt;
    }
    if (from != places) {
        memcpy(places, from, count * sizeof(*places));
    }
}


/* ---- all of them ----------------------------------------------------- */

/* Words before this one are the same. */
static void
sort_from(struct word_place *places, struct word_place *spare, size_t count,
          const struct word_order *order, size_t number)
{
    uint64_t differing = 0;
    size_t from = 0;

    for (size_t i = 0; i < count; i++) {
        places[i].word = order->word(places[i].item, number);
        differing |= places[i].word ^ places[0].word;
    }
    if (differing != 0 && count <= FEW) {
        sort_few(places, count);
    } else if (differing != 0) {
        sort_many(places, spare, count, differing);
    }
    number++;
    for (size_t i = 1; i <= count; i++) {
        if (i < count && places[i].word == places[from].word) {
            continue;
        }
        if (i - from > 1 && number < order->count(places[from].item)) {
            sort_from(places + from, spare, i - from, order, number);
        }
        from = i;
    }
}


void
word_sort(struct word_place *places, struct word_place *spare, size_t count,
          const struct word_order *order)
{
    sort_from(places, spare, count, order, 0);
}
