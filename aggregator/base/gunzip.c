/*
 * gunzip.c - a gzip body, inflated step by step and never past a bound.
 *
 *   api/unpack -> [gunzip_step, gunzip_step, ...] -> gunzip_take -> buf
 *
 * zlib knows one member; here is what lies between and behind members, and
 * where the output ends. The buffer grows with what has come out, up to one
 * byte more than is allowed: that byte says that there was too much.
 */

#include "base/gunzip.h"

#include "base/memory.h"

#include <stdlib.h>
#include <zlib.h>

#define WINDOW_BITS_GZIP (15 + 16) /* gzip alone, no zlib header */

struct gunzip {
    z_stream stream;
    struct meter_str rest; /* not given to zlib yet */
    struct buf out;
    size_t size_max;
    bool is_between; /* behind a member: the end, or one more */
    const char *error;
};

struct gunzip *
gunzip_create(struct meter_str packed, size_t size_max)
{
    struct gunzip *gunzip = memory_alloc(sizeof(*gunzip));

    if (inflateInit2(&gunzip->stream, WINDOW_BITS_GZIP) != Z_OK) {
        free(gunzip);
        return NULL;
    }
    gunzip->rest = packed;
    gunzip->size_max = size_max;
    buf_init(&gunzip->out, size_max + 1);
    return gunzip;
}

void
gunzip_destroy(struct gunzip *gunzip)
{
    if (gunzip == NULL) {
        return;
    }
    inflateEnd(&gunzip->stream);
    buf_fini(&gunzip->out);
    free(gunzip);
}

const char *
gunzip_error(const struct gunzip *gunzip)
{
    return gunzip->error;
}

void
gunzip_take(struct gunzip *gunzip, struct buf *out)
{
    size_t size_max = out->size_max;

    buf_fit(&gunzip->out);
    buf_fini(out);
    *out = gunzip->out;
    out->size_max = size_max;
    buf_init(&gunzip->out, gunzip->size_max + 1);
}

static enum gunzip_result
gunzip_fail(struct gunzip *gunzip, const char *error)
{
    gunzip->error = error;
    return GUNZIP_BAD;
}

/* Up to room bytes more behind what is there. */
static enum gunzip_result
gunzip_inflate(struct gunzip *gunzip, size_t room)
{
    z_stream *stream = &gunzip->stream;
    char *out = buf_reserve(&gunzip->out, room);
    int code;

    if (out == NULL) {
        return GUNZIP_NO_MEMORY;
    }
    stream->next_out = (Bytef *)out;
    stream->avail_out = (uInt)room;
    code = inflate(stream, Z_NO_FLUSH);
    buf_commit(&gunzip->out, room - stream->avail_out);
    if (gunzip->out.size > gunzip->size_max) {
        return GUNZIP_LARGE;
    }
    switch (code) {
    case Z_OK:
    case Z_BUF_ERROR: return GUNZIP_MORE; /* it wants input or room */
    case Z_STREAM_END: gunzip->is_between = true; return GUNZIP_MORE;
    case Z_MEM_ERROR: return GUNZIP_NO_MEMORY;
    default: return gunzip_fail(gunzip, "the body is not gzip, or damaged");
    }
}

/* Behind a member: another one, or DONE. */
static enum gunzip_result
gunzip_between(struct gunzip *gunzip)
{
    z_stream *stream = &gunzip->stream;

    if (stream->avail_in == 0 && gunzip->rest.size == 0) {
        return GUNZIP_DONE;
    }
    if (stream->avail_in > 0 && stream->next_in[0] != 0x1f) {
        return gunzip_fail(gunzip, "there are bytes behind the gzip body");
    }
    if (stream->avail_in > 0) {
        CHECK(inflateReset(stream) == Z_OK);
        gunzip->is_between = false;
    }
    return GUNZIP_MORE;
}

/* The bytes of one step. */
static void
gunzip_feed(struct gunzip *gunzip)
{
    size_t size = gunzip->rest.size;

    if (size > GUNZIP_STEP_IN) {
        size = GUNZIP_STEP_IN;
    }
    gunzip->stream.next_in = (Bytef *)(uintptr_t)gunzip->rest.data;
    gunzip->stream.avail_in = (uInt)size;
    gunzip->rest.data += size;
    gunzip->rest.size -= size;
}

/* All that was fed is used up, and nothing is left inside zlib. */
static bool
gunzip_is_hungry(const struct gunzip *gunzip)
{
    if (gunzip->stream.avail_in > 0) {
        return false;
    }
    return gunzip->is_between ? gunzip->rest.size > 0
                              : gunzip->stream.avail_out > 0;
}

enum gunzip_result
gunzip_step(struct gunzip *gunzip)
{
    size_t end = gunzip->out.size + GUNZIP_STEP_OUT;
    enum gunzip_result result = GUNZIP_MORE;

    if (end > gunzip->size_max + 1) {
        end = gunzip->size_max + 1;
    }
    if (gunzip->stream.avail_in == 0 && gunzip->rest.size > 0) {
        gunzip_feed(gunzip);
    }
    do {
        result = gunzip->is_between
                     ? gunzip_between(gunzip)
                     : gunzip_inflate(gunzip, end - gunzip->out.size);
    } while (result == GUNZIP_MORE && !gunzip_is_hungry(gunzip) &&
             gunzip->out.size < end);
    if (result == GUNZIP_MORE && gunzip_is_hungry(gunzip) &&
        gunzip->rest.size == 0) {
        return gunzip_fail(gunzip, "the gzip body is cut off");
    }
    return result;
}
