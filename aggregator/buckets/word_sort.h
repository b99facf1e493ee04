/*
 * word_sort.h - sorts by long keys with much in common. Pure.
 *
 *   key -> words of eight bytes, compared as numbers -> [word_sort]
 *
 * Keys such as the names of one tenant differ late. They are looked at word by
 * word, and never again from the front; within a word, places are dealt out by
 * byte, without a comparison. Equal ones stay in the order they came in.
 */

#ifndef BUCKETS_WORD_SORT_H
#define BUCKETS_WORD_SORT_H

#include "base/check.h"

/* Something to be sorted. */
struct word_place {
    uint64_t word; /* the one that is looked at */
    const void *item;
    uint32_t index; /* for the caller */
};

/*
 * Words of an item, in the order of its key. Items that are the same up to a
 * word both have a next one, or are equal.
 */
struct word_order {
    size_t (*count)(const void *item);
    uint64_t (*word)(const void *item, size_t number);
};

/* spare has as much room as places. */
void word_sort(struct word_place *places, struct word_place *spare,
               size_t count, const struct word_order *order);

/*
 * Words of a text without NUL, bytewise and shorter first. A NUL ends the last
 * one: no text goes on where another has ended.
 */
size_t word_text_count(struct meter_str text);
uint64_t word_of_text(struct meter_str text, size_t number);
/* The word of a number. */
uint64_t word_of_int(int64_t value);

#endif
