/*
 * fuzz_ring.c - recovery scan of a damaged ring.
 *
 * The input lays records into an area as a worker does, wrapping, and then
 * damages bytes of it. Oracle: the scan visits exactly the records in front
 * of the first one that is no longer what was written, or that a reference
 * reader written against docs/protocol.md alone still takes. Encoded ring
 * headers and raw bytes are tried too.
 *
 *   u8 area size, u8 start, u8 count, u8 body size each,
 *   then (u16 offset, u8 xor) up to the end
 */

#include "fuzz_check.h"

#include "meter_hash.h"
#include "meter_ring.h"

enum { AREA_MAX = 2048 + 256, RECORDS_MAX = 256, STEP = 100 };

struct found {
    size_t offset;
    uint64_t seq;
    size_t body_size;
};

struct found_list {
    struct found items[RECORDS_MAX];
    size_t count;
};


static uint32_t
read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}


/* The rules of docs/protocol.md, spelled out without the codec. */
static bool
reference_record(const uint8_t *at, size_t left, uint64_t seq, size_t *size,
                 size_t *body_size)
{
    uint8_t copy[4096];
    uint64_t written;

    if (left < 24) {
        return false;
    }
    *size = read_u32(at);
    *body_size = read_u32(at + 20);
    written = read_u32(at + 8) | (uint64_t)read_u32(at + 12) << 32;
    if (*size > left || *size > sizeof(copy) || *size < 24 || *size % 8 != 0 ||
        *body_size > *size - 24 || *size - 24 - *body_size > 7 ||
        written != seq || at[16] > 4 || at[17] || at[18] || at[19]) {
        return false;
    }
    for (size_t i = 24 + *body_size; i < *size; i++) {
        if (at[i] != 0) {
            return false;
        }
    }
    memcpy(copy, at, 4);
    memcpy(copy + 4, at + 8, *size - 8);
    return meter_crc32c_table(0, copy, *size - 4) == read_u32(at + 4);
}


static void
reference_scan(const uint8_t *area, size_t area_size, size_t offset,
               uint64_t seq, struct found_list *out)
{
    size_t budget = area_size;

    out->count = 0;
    while (budget > 0) {
        size_t left = area_size - offset, size, body_size;

        if (left < 24) {
            if (left > budget) {
                return;
            }
            budget -= left;
            offset = 0;
            continue;
        }
        if (!reference_record(area + offset, left, seq, &size, &body_size) ||
            size > budget) {
            return;
        }
        budget -= size;
        if (area[offset + 16] == METER_RECORD_PAD) {
            if (size != left) {
                return;
            }
            offset = 0;
            continue;
        }
        FUZZ_CHECK(out->count < RECORDS_MAX);
        out->items[out->count++] = (struct found){offset, seq++, body_size};
        offset += size;
    }
}


static void
visit(void *asker, const struct meter_record *record, size_t offset)
{
    struct found_list *found = asker;

    FUZZ_CHECK(found->count < RECORDS_MAX);
    found->items[found->count++] =
        (struct found){offset, record->seq, record->body.size};
}


/* Each step walks what it may, and one record or PAD more at most. */
static void
scan(const uint8_t *area, size_t area_size, size_t offset, uint64_t seq,
     struct found_list *found)
{
    struct meter_ring_place place = {.offset = offset, .next_seq = seq};
    size_t walked = 0;

    found->count = 0;
    while (meter_ring_scan(area, area_size, &place, STEP, visit, found)) {
        FUZZ_CHECK(place.walked >= walked + STEP);
        FUZZ_CHECK(place.walked < walked + STEP + METER_RECORD_SIZE_MAX);
        walked = place.walked;
    }
    FUZZ_CHECK(place.next_seq - seq == found->count);
}


static void
check_scan(const uint8_t *area, size_t area_size, size_t offset, uint64_t seq)
{
    static struct found_list found, expected;

    scan(area, area_size, offset, seq, &found);
    reference_scan(area, area_size, offset, seq, &expected);
    FUZZ_CHECK(found.count == expected.count);
    for (size_t i = 0; i < found.count; i++) {
        FUZZ_CHECK(found.items[i].offset == expected.items[i].offset);
        FUZZ_CHECK(found.items[i].seq == expected.items[i].seq);
        FUZZ_CHECK(found.items[i].body_size == expected.items[i].body_size);
    }
}


/* Lays count records; returns where each one lies. */
static void
lay(uint8_t *area, size_t area_size, size_t offset, uint64_t seq,
    const uint8_t *sizes, size_t count, struct found_list *out)
{
    static const char body[256] = "captured bytes";
    size_t walked = 0;

    out->count = 0;
    for (size_t i = 0; i < count; i++) {
        size_t size = meter_record_size(sizes[i]);
        size_t left = area_size - offset;
        size_t skipped = size > left ? left : 0;
        struct meter_record record = {
            seq, METER_RECORD_EVENT, {body, sizes[i]}};
        struct meter_writer writer;

        if (walked + skipped + size > area_size) {
            return;
        }
        meter_writer_init(&writer, area + offset, left);
        if (skipped >= METER_RING_RECORD_HEADER_SIZE) {
            meter_record_pad_encode(seq, skipped, &writer);
        }
        if (size > left) {
            offset = 0;
            meter_writer_init(&writer, area, area_size);
        }
        meter_record_encode(&record, &writer);
        FUZZ_CHECK(!writer.failed);
        out->items[out->count++] = (struct found){offset, seq++, sizes[i]};
        offset += size;
        walked += skipped + size;
    }
}


/* How many records are byte for byte as they were laid, from the front. */
static size_t
intact_prefix(const uint8_t *before, const uint8_t *after,
              const struct found_list *laid)
{
    size_t count = 0;

    while (count < laid->count) {
        const struct found *item = &laid->items[count];

        if (memcmp(before + item->offset, after + item->offset,
                   meter_record_size(item->body_size)) != 0) {
            break;
        }
        count++;
    }
    return count;
}


static void
check_damaged(const uint8_t *data, size_t size)
{
    static _Alignas(8) uint8_t before[AREA_MAX], after[AREA_MAX];
    static struct found_list laid, found;
    size_t area_size = 256 + (size_t)data[0] * 8;
    size_t offset = (size_t)data[1] * 8 % area_size;
    size_t count = data[2];
    uint64_t seq = 1000;
    bool damaged = false;

    data += 3;
    size -= 3;
    if (count > size) {
        count = size;
    }
    memset(before, 0, area_size);
    lay(before, area_size, offset, seq, data, count, &laid);
    check_scan(before, area_size, offset, seq);
    memcpy(after, before, area_size);
    for (size_t at = count; size - at >= 3; at += 3) {
        size_t where = (data[at] | (size_t)data[at + 1] << 8) % area_size;

        after[where] ^= data[at + 2];
        damaged = true;
    }
    check_scan(after, area_size, offset, seq);
    scan(after, area_size, offset, seq, &found);
    if (!damaged) {
        FUZZ_CHECK(found.count == laid.count);
    }
    /* Whatever is whole in front of a wrap is always given back. */
    for (size_t i = 0; i < intact_prefix(before, after, &laid); i++) {
        if (laid.items[i].offset < offset) {
            break; /* the PAD in front of the wrap may be damaged */
        }
        FUZZ_CHECK(i < found.count);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct meter_ring_header header;

    if (size < 4) {
        return 0;
    }
    if (data[0] != 0xff) {
        check_damaged(data, size < 1024 ? size : 1024);
        return 0;
    }
    /* Raw bytes as an area, and as a header that must encode again. */
    data++;
    size--;
    if (size <= AREA_MAX) {
        check_scan(data, size, 0, 1);
    }
    if (meter_ring_header_decode((struct meter_str){(const char *)data, size},
                                 &header)) {
        uint8_t again[METER_RING_IDENTITY_SIZE];
        struct meter_writer writer;

        meter_writer_init(&writer, again, sizeof(again));
        meter_ring_header_encode(&header, &writer);
        FUZZ_CHECK(!writer.failed);
        FUZZ_CHECK(header.record_offset + header.record_size <=
                   header.file_size);
    }
    return 0;
}
