/*
 * sample.h - the events that every bench sends: 100 tenants, 32 dimension
 * sets each, 36-byte ids in time order (version 7) or random (version 4).
 *
 * Shapes: plain; series, with something for each kind of series; keys, with
 * a device that no other event has.
 */

#ifndef BENCH_SAMPLE_H
#define BENCH_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SAMPLE_TENANTS    100
#define SAMPLE_DIMENSIONS 32
#define SAMPLE_ORDERS     100

enum sample_ids { SAMPLE_IDS_V7, SAMPLE_IDS_RANDOM };
enum sample_shape { SAMPLE_PLAIN, SAMPLE_SERIES, SAMPLE_KEYS };

struct sample {
    uint64_t state; /* of the generator; the seed makes ids repeat */
    uint64_t clock_us;
    enum sample_ids ids;
    enum sample_shape shape; /* plain after sample_init */
    uint64_t orders;         /* of each tenant, shape series; SAMPLE_ORDERS */
};

struct sample_event {
    char event_id[37];
    char tenant[16];
    int64_t ts_us;
    char attributes[256]; /* JSON object */
};

void sample_init(struct sample *sample, enum sample_ids ids, uint64_t seed,
                 uint64_t clock_us);
void
sample_next(struct sample *sample, unsigned tenant, struct sample_event *out);

/* "plain", "series", "keys"; false: no such shape. */
bool sample_shape_parse(const char *word, enum sample_shape *out);

/* A JSON array of count events of one tenant; returns its size. */
size_t sample_body(struct sample *sample, unsigned tenant, size_t count,
                   char *out, size_t size);

#endif
