/*
 * gzip_fixture.h - gzip bodies to inflate.
 */

#ifndef GZIP_FIXTURE_H
#define GZIP_FIXTURE_H

#include "meter_cmocka.h"

#include "base/gunzip.h"
#include "meter_random.h"

#include <zlib.h>

/* One member more at the end of out. */
static inline void
gzip_put(struct buf *out, const void *data, size_t size, int level)
{
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)data,
                       .avail_in = (uInt)size};
    size_t room;
    char *to;

    assert_int_equal(
        deflateInit2(&stream, level, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY),
        Z_OK);
    room = deflateBound(&stream, (uLong)size);
    to = buf_reserve(out, room);
    assert_non_null(to);
    stream.next_out = (Bytef *)to;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    buf_commit(out, room - stream.avail_out);
    deflateEnd(&stream);
}

/* Bytes that hardly shrink, the same ones each time. */
static inline char *
noise(size_t size)
{
    struct meter_random random = {1};
    char *bytes = malloc(size + 1);

    for (size_t i = 0; i < size; i++) {
        bytes[i] = (char)random_u64(&random);
    }
    return bytes;
}

#endif
