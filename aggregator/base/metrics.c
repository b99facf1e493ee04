/*
 * metrics.c - the numbers of meterd as Prometheus text.
 */

#include "base/metrics.h"

#include <inttypes.h>

struct metrics metrics;

static const struct {
    uint64_t us;
    const char *seconds;
} bounds[METRICS_BOUNDS] = {
    {1000, "0.001"}, {2000, "0.002"}, {5000, "0.005"}, {10000, "0.01"},
    {20000, "0.02"}, {50000, "0.05"}, {100000, "0.1"}, {200000, "0.2"},
    {500000, "0.5"}, {1000000, "1"},  {2000000, "2"},  {5000000, "5"},
};


void
metrics_observe(struct metrics_histogram *histogram, uint64_t us)
{
    size_t place = 0;

    while (place < METRICS_BOUNDS && us > bounds[place].us) {
        place++;
    }
    histogram->counts[place]++;
    histogram->sum_us += (int64_t)us;
}


static void
metrics_put(struct buf *out, const char *name, const char *kind,
            const char *help, int64_t value)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, kind,
               name);
    buf_put_int(out, value);
    buf_put_byte(out, '\n');
}

/* Each bucket holds those of the smaller bounds too. */
static void
metrics_put_histogram(struct buf *out, const char *name, const char *help,
                      const struct metrics_histogram *histogram)
{
    int64_t count = 0;

    buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, help, name);
    for (size_t i = 0; i < METRICS_BOUNDS; i++) {
        count += histogram->counts[i];
        buf_printf(out, "%s_bucket{le=\"%s\"} %" PRId64 "\n", name,
                   bounds[i].seconds, count);
    }
    count += histogram->counts[METRICS_BOUNDS];
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRId64 "\n", name, count);
    buf_printf(out, "%s_sum %" PRId64 ".%06" PRId64 "\n", name,
               histogram->sum_us / 1000000, histogram->sum_us % 1000000);
    buf_printf(out, "%s_count %" PRId64 "\n", name, count);
}

void
metrics_write(struct buf *out)
{
#define METRICS_COUNTER(name, help) \
    metrics_put(out, #name, "counter", help, metrics.name);
#define METRICS_GAUGE(name, help) \
    metrics_put(out, #name, "gauge", help, metrics.name);
#define METRICS_HISTOGRAM(name, help) \
    metrics_put_histogram(out, #name, help, &metrics.name);
    METRICS(METRICS_COUNTER, METRICS_GAUGE, METRICS_HISTOGRAM)
#undef METRICS_COUNTER
#undef METRICS_GAUGE
#undef METRICS_HISTOGRAM
}
