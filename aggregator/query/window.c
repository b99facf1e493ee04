/*
 * window.c - see window.h.
 */

#include "query/window.h"

#include "query/planner.h"

/* Start of the window that holds the instant. */
static int64_t
window_start(int64_t interval_us, int64_t ts_us)
{
    int64_t origin_us = planner_origin(interval_us);

    return meter_time_bucket(ts_us - origin_us, interval_us) + origin_us;
}

int64_t
windows_count(int64_t interval_us, int64_t from_us, int64_t to_us)
{
    CHECK(from_us < to_us);
    return (window_start(interval_us, to_us - 1) -
            window_start(interval_us, from_us)) /
               interval_us +
           1;
}

static bool
windows_alloc(size_t count, struct arena *arena, struct windows *out)
{
    out->count = 0;
    out->bounds_us =
        arena_alloc(arena, (count + 1) * sizeof(out->bounds_us[0]));
    out->is_partial =
        arena_zalloc(arena, (count + 1) * sizeof(out->is_partial[0]));
    return out->bounds_us != NULL && out->is_partial != NULL;
}

bool
windows_make(int64_t interval_us, int64_t from_us, int64_t to_us,
             struct arena *arena, struct windows *out)
{
    int64_t count = windows_count(interval_us, from_us, to_us);
    int64_t start_us = window_start(interval_us, from_us);

    CHECK(count <= WINDOWS_MAX);
    if (!windows_alloc((size_t)count, arena, out)) {
        return false;
    }
    out->count = (size_t)count;
    for (int64_t i = 0; i <= count; i++) {
        out->bounds_us[i] = start_us + i * interval_us;
    }
    return true;
}

bool
windows_take(const int64_t *bounds_us, size_t count, int64_t from_us,
             int64_t to_us, struct arena *arena, struct windows *out)
{
    size_t kept = 0;

    if (!windows_alloc(count, arena, out)) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (kept > 0 && (bounds_us[i] <= out->bounds_us[kept - 1] ||
                         out->bounds_us[kept - 1] >= to_us)) {
            continue;
        }
        if (kept == 1 && bounds_us[i] <= from_us) {
            kept = 0; /* that window ends before the range */
        }
        out->bounds_us[kept++] = bounds_us[i];
    }
    if (kept < 2 || out->bounds_us[0] > from_us ||
        out->bounds_us[kept - 1] < to_us) {
        return false;
    }
    out->count = kept - 1;
    return true;
}

/* The first window that ends after the instant. */
static size_t
window_after(const struct windows *windows, int64_t ts_us)
{
    size_t low = 0;
    size_t high = windows->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (windows->bounds_us[middle + 1] > ts_us) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void
windows_judge(struct windows *windows, int64_t from_us, int64_t to_us,
              int64_t mark_us, const struct window_dirt *dirt,
              size_t dirt_count)
{
    for (size_t i = 0; i < windows->count; i++) {
        int64_t end_us = windows->bounds_us[i + 1];

        windows->is_partial[i] = windows->bounds_us[i] < from_us ||
                                 end_us > to_us || end_us > mark_us;
    }
    for (size_t d = 0; d < dirt_count; d++) {
        int64_t start_us = dirt[d].bucket_us;
        int64_t end_us = start_us + meter_level_size_us(dirt[d].level);

        for (size_t i = window_after(windows, start_us);
             i < windows->count && windows->bounds_us[i] < end_us; i++) {
            windows->is_partial[i] = true;
        }
    }
}
