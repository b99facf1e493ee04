/*
 * fuzz_frame.c - frame decoder: however the bytes are cut, same frames.
 *
 * Oracle: decoding the whole stream and decoding it byte group by byte
 * group give the same sequence of frames and the same end; a decoded frame
 * encodes to the bytes it came from; an answer of BAD or OK never changes
 * when more bytes come.
 *
 * The first byte is the size of the groups; bit 7 of it makes checksums
 * right first, so that the rest of the decoder is reached too.
 */

#include "fuzz_check.h"

#include "meter_frame.h"
#include "meter_hash.h"

enum { FRAMES_MAX = 64 };

struct outcome {
    size_t offsets[FRAMES_MAX]; /* where each frame started */
    size_t count;
    enum meter_decode last;
    enum meter_frame_error error;
    size_t end; /* where decoding stopped */
};


/* Walks the stream as a lenient reader would and repairs checksums. */
static void
repair(uint8_t *data, size_t size)
{
    size_t at = 0;

    while (size - at >= METER_FRAME_HEADER_SIZE) {
        uint8_t *header = data + at;
        size_t payload = (size_t)header[8] | (size_t)header[9] << 8 |
                         (size_t)header[10] << 16 | (size_t)header[11] << 24;
        size_t whole = METER_FRAME_HEADER_SIZE + payload;
        uint32_t crc;

        if (whole > size - at) {
            return;
        }
        memset(header + 12, 0, 4);
        crc = meter_crc32c_table(0, header, whole);
        for (int i = 0; i < 4; i++) {
            header[12 + i] = (uint8_t)(crc >> 8 * i);
        }
        at += whole;
    }
}


static void
check_again(const struct meter_frame *frame, const uint8_t *from, size_t used)
{
    uint8_t *again = malloc(used);
    struct meter_writer writer;

    FUZZ_CHECK(again != NULL);
    meter_writer_init(&writer, again, used);
    meter_frame_encode(frame, &writer);
    FUZZ_CHECK(!writer.failed && writer.at == used);
    FUZZ_CHECK(memcmp(again, from, used) == 0);
    free(again);
}


/* step bytes become visible at a time. */
static void
decode_stream(const uint8_t *data, size_t size, size_t step,
              struct outcome *out)
{
    size_t seen = step < size ? step : size;

    memset(out, 0, sizeof(*out));
    while (out->count < FRAMES_MAX) {
        struct meter_frame frame;
        size_t used = 0, need = 0;

        out->last = meter_frame_decode(data + out->end, seen - out->end, &frame,
                                       &used, &need, &out->error);
        if (out->last == METER_DECODE_MORE) {
            FUZZ_CHECK(need > seen - out->end);
            FUZZ_CHECK(need <= METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX);
            if (seen == size) {
                return;
            }
            seen = size - seen < step ? size : seen + step;
            continue;
        }
        if (out->last == METER_DECODE_BAD) {
            FUZZ_CHECK(out->error != METER_FRAME_OK);
            return;
        }
        FUZZ_CHECK(used >= METER_FRAME_HEADER_SIZE);
        FUZZ_CHECK(used <= seen - out->end);
        check_again(&frame, data + out->end, used);
        out->offsets[out->count++] = out->end;
        out->end += used;
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole, pieces;
    uint8_t *copy;
    size_t step;

    if (size < 1) {
        return 0;
    }
    step = 1 + (data[0] & 0x7f);
    copy = malloc(size);
    FUZZ_CHECK(copy != NULL);
    memcpy(copy, data + 1, size - 1);
    if (data[0] & 0x80) {
        repair(copy, size - 1);
    }
    decode_stream(copy, size - 1, size, &whole);
    decode_stream(copy, size - 1, step, &pieces);
    FUZZ_CHECK(whole.count == pieces.count);
    FUZZ_CHECK(whole.last == pieces.last);
    FUZZ_CHECK(whole.error == pieces.error);
    FUZZ_CHECK(whole.end == pieces.end);
    FUZZ_CHECK(memcmp(whole.offsets, pieces.offsets, sizeof(whole.offsets)) ==
               0);
    free(copy);
    return 0;
}
