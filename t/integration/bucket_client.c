/*
 * bucket_client.c - a million instants and their buckets, as a binary COPY.
 *
 *   93-buckets.t -> [bucket_client FILE] -> COPY -> compared in SQL
 *
 * A row: the instant, then the start of its bucket of each level. Instants
 * are of year 1 to 9999; a third lies near the epoch, a third on or beside
 * the edge of a bucket.
 */

#include "meter_level.h"
#include "pg/param.h"

#include <stdio.h>

#define INSTANTS 1000000
#define COPY_MAX (256u << 20)

/* splitmix64: the same instants in each run. */
static uint64_t
next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}


static int64_t
instant(int i, uint64_t *state)
{
    uint64_t any = next(state);
    int64_t ts_us =
        METER_TIME_MIN +
        (int64_t)(any % (uint64_t)(METER_TIME_MAX - METER_TIME_MIN));

    if (i % 3 == 1) {
        return ts_us % (30 * METER_TIME_DAY) - 15 * METER_TIME_DAY;
    }
    if (i % 3 == 2) {
        enum meter_level level = (enum meter_level)(any % METER_LEVEL_COUNT);
        int64_t edge_us = meter_level_bucket(level, ts_us);

        return edge_us > METER_TIME_MIN ? edge_us - i % 2 : edge_us;
    }
    return ts_us;
}


int
main(int argc, char **argv)
{
    FILE *file = argc == 2 ? fopen(argv[1], "wb") : NULL;
    uint64_t state = 1;
    struct buf out;

    if (file == NULL) {
        fprintf(stderr, "usage: bucket_client FILE\n");
        return 1;
    }
    buf_init(&out, COPY_MAX);
    pg_copy_begin(&out);
    for (int i = 0; i < INSTANTS; i++) {
        int64_t ts_us = instant(i, &state);

        pg_copy_row(&out, 1 + METER_LEVEL_COUNT);
        pg_put_time(&out, ts_us);
        for (int level = 0; level < METER_LEVEL_COUNT; level++) {
            pg_put_time(&out, meter_level_bucket(level, ts_us));
        }
    }
    pg_copy_end(&out);

    bool failed = out.failed || fwrite(out.data, 1, out.size, file) != out.size;

    failed |= fclose(file) != 0;
    buf_fini(&out);
    return failed;
}
