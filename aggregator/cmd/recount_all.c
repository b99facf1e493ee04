/*
 * recount_all.c - see recount_all.h.
 */

#include "cmd/recount_all.h"

#include "cmd/recount_text.h"
#include "maintain/index_recount.h"
#include "maintain/series_recount.h"
#include "meter_time.h"

#include <stdio.h>

static void
say_unfit(const char *command, const struct recount_outcome *outcome)
{
    if (outcome->unfit > 0) {
        fprintf(stderr,
                "meterd %s: %lld events do not fit the rules given and count "
                "for nothing\n",
                command, (long long)outcome->unfit);
    }
}

static void
say_floor(const char *command, const char *what,
          const struct recount_outcome *outcome)
{
    char floor[METER_TIME_TEXT_SIZE + 1];

    if (outcome->floor_us != INT64_MIN) {
        meter_time_format(outcome->floor_us, floor);
        fprintf(stderr,
                "meterd %s: %s before %.10s are left out: retention has "
                "removed events\n",
                command, what, floor);
    }
}

static void
series_notes(const char *command, const struct recount_outcome *outcome)
{
    say_unfit(command, outcome);
    if (outcome->strangers > 0) {
        fprintf(stderr,
                "meterd %s: %lld dimension sets of series, or versions of "
                "them, that the rules do not have are left as they are\n",
                command, (long long)outcome->strangers);
    }
    say_floor(command, "buckets of series", outcome);
}

static void
index_notes(const char *command, const struct recount_outcome *outcome)
{
    say_unfit(command, outcome);
    if (outcome->strangers > 0) {
        fprintf(stderr,
                "meterd %s: %lld entries of attributes that the rules do not "
                "index are left as they are\n",
                command, (long long)outcome->strangers);
    }
    say_floor(command, "days of the index", outcome);
}

static void
add(struct recount_outcome *sum, const struct recount_outcome *one)
{
    sum->tenants = one->tenants > sum->tenants ? one->tenants : sum->tenants;
    sum->events = one->events > sum->events ? one->events : sum->events;
    sum->rebuilt += one->rebuilt;
    sum->differences += one->differences;
    sum->left += one->left;
    sum->whole_us =
        one->whole_us > sum->whole_us ? one->whole_us : sum->whole_us;
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        sum->is_left_out[i] = sum->is_left_out[i] || one->is_left_out[i];
    }
}

static bool
wants_tenants(const struct recount_wish *wish)
{
    for (int i = 0; i < PROJECTION_COUNT; i++) {
        if (wish->is_wanted[i]) {
            return true;
        }
    }
    return false;
}

/* Buckets first: where they may not be recomputed nothing is. */
static enum recount_end
series_run(const struct recount_options *options,
           const struct recount_wish *wish, struct recount_outcome *sum)
{
    struct recount_outcome one;
    enum recount_end end;

    if (!options->is_wanted[PROJECTION_SERIES] ||
        wish->config->catalog->series_count == 0) {
        return RECOUNT_DONE;
    }
    end = series_recount_run(wish, options->to_us, &one);
    add(sum, &one);
    if (end == RECOUNT_DONE) {
        series_notes(wish->command, &one);
        sum->is_left_out[PROJECTION_SERIES] |= one.floor_us != INT64_MIN;
    }
    return end;
}

static enum recount_end
tenants_run(const struct recount_wish *wish, struct recount_outcome *sum)
{
    struct recount_outcome one;
    enum recount_end end;

    if (!wants_tenants(wish)) {
        return RECOUNT_DONE;
    }
    end = recount_run(wish, &one);
    add(sum, &one);
    if (end == RECOUNT_DONE) {
        recount_output_notes(wish->command, &one);
    }
    return end;
}

static enum recount_end
index_run(const struct recount_options *options,
          const struct recount_wish *wish, struct recount_outcome *sum)
{
    struct recount_outcome one;
    enum recount_end end;

    if (!options->is_wanted[PROJECTION_INDEX]) {
        return RECOUNT_DONE;
    }
    end = index_recount_run(wish, &one);
    add(sum, &one);
    if (end == RECOUNT_DONE) {
        index_notes(wish->command, &one);
        sum->is_left_out[PROJECTION_INDEX] |= one.floor_us != INT64_MIN;
    }
    return end;
}

enum recount_end
recount_all_run(const struct recount_options *options,
                const struct recount_wish *wish, struct recount_outcome *out)
{
    enum recount_end end;

    *out =
        (struct recount_outcome){.floor_us = INT64_MIN, .whole_us = INT64_MIN};
    end = series_run(options, wish, out);
    if (end == RECOUNT_DONE) {
        end = tenants_run(wish, out);
    }
    if (end == RECOUNT_DONE) {
        end = index_run(options, wish, out);
    }
    return end;
}
