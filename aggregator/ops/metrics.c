/*
 * metrics.c - the numbers of meterd as Prometheus text.
 */

#include "ops/metrics.h"

struct metrics metrics;

static void
metrics_put(struct buf *out, const char *name, const char *kind,
            const char *help, int64_t value)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s ", name, help, name, kind,
               name);
    buf_put_int(out, value);
    buf_put_byte(out, '\n');
}

void
metrics_write(struct buf *out)
{
#define METRICS_COUNTER(name, help) \
    metrics_put(out, #name, "counter", help, metrics.name);
#define METRICS_GAUGE(name, help) \
    metrics_put(out, #name, "gauge", help, metrics.name);
    METRICS(METRICS_COUNTER, METRICS_GAUGE)
#undef METRICS_COUNTER
#undef METRICS_GAUGE
}
