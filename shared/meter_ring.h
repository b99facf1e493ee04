/*
 * meter_ring.h - the outbox: ring file header, records, recovery scan.
 *
 * Pure: works on bytes that somebody mapped. Records lie one behind the
 * other in the record area, 8-byte aligned, and wrap by a PAD record:
 *
 *   0 size u32 (whole record, aligned)  4 crc32c u32  8 seq u64
 *   16 kind u8  17 zero[3]  20 body_size u32  24 body
 *
 * The checksum covers everything of the record but itself; padding is zero.
 * A PAD reaches to the end of the area and carries the sequence number of
 * the record behind the wrap; where fewer than 24 bytes are left there is
 * none and the wrap is implied. Sequence numbers start at 1. A record is
 * published by a release-store of head; the scan trusts nothing: it takes
 * records from acked + 1 on while size, sequence and checksum hold.
 */

#ifndef METER_RING_H
#define METER_RING_H

#include "meter_bytes.h"
#include "meter_event.h"
#include "meter_limits.h"

#define METER_RING_MAGIC              0x474e52524d544552ull
#define METER_RING_VERSION            1
#define METER_RING_HEADER_SIZE        4096
#define METER_RING_RECORD_HEADER_SIZE 24
#define METER_RECORD_BODY_SIZE_MAX \
    (METER_RECORD_SIZE_MAX - METER_RING_RECORD_HEADER_SIZE)

enum meter_record_kind {
    METER_RECORD_PAD = 0,
    METER_RECORD_EVENT = 1,
    METER_RECORD_DELTA = 2,
    METER_RECORD_DUPNOTE = 3,
    METER_RECORD_LOSSNOTE = 4
};

/* What a ring file says of itself; checked when it is claimed. */
struct meter_ring_header {
    uint32_t version;
    uint8_t session[16];
    uint8_t boot_id[16]; /* of the kernel that wrote it */
    uint64_t file_size;
    uint64_t record_offset; /* where the record area starts */
    uint64_t record_size;   /* its size, a multiple of 8 */
    uint32_t slot_count;    /* requests in flight, see meter_outbox.h */
    uint32_t cell_count;    /* open deltas */
};

struct meter_record {
    uint64_t seq;
    uint8_t kind; /* enum meter_record_kind */
    struct meter_str body;
};

/* One attribute of a captured event, as the edge evaluated it. */
struct meter_record_attribute {
    struct meter_str name;
    struct meter_str value;
};

/* Body of EVENT and DELTA: raw values; only meterd derives keys. */
struct meter_record_event {
    struct meter_str tenant;
    struct meter_str type;
    struct meter_str event_id; /* empty: minted from session and seq */
    struct meter_str customer;
    struct meter_str resource;
    struct meter_str quantity; /* text as evaluated; DELTA: the sum */
    int64_t ts_us;
    int64_t count;
    uint32_t flags;
    struct meter_record_attribute attributes[METER_ATTRIBUTE_COUNT_MAX];
    size_t attribute_count;
};

/*
 * The encoded header is the first 128 bytes of the file and never changes;
 * the rest of its page holds the live words (head, acked):
 *
 *   0 magic u64   8 version u32  12 crc32c u32  16 session[16]
 *  32 boot_id[16]  48 file_size u64  56 record_offset u64
 *  64 record_size u64  72 slot_count u32  76 cell_count u32  80 zero[48]
 */
#define METER_RING_IDENTITY_SIZE 128
void meter_ring_header_encode(const struct meter_ring_header *,
                              struct meter_writer *);
METER_MUST_CHECK bool
meter_ring_header_decode(struct meter_str, struct meter_ring_header *);

/* Bytes a record with this body takes, aligned. */
size_t meter_record_size(size_t body_size);
/* Fails the writer: body too large, seq 0 or a kind that is none. */
void meter_record_encode(const struct meter_record *, struct meter_writer *);
/*
 * Makes a record of a body that already lies at data + 24, in place: header,
 * padding, checksum. Returns its size. seq and body_size must be in bounds.
 */
size_t meter_record_close(uint8_t *data, uint64_t seq,
                          enum meter_record_kind kind, size_t body_size);
/* A PAD of size bytes in all: 24..METER_RECORD_SIZE_MAX, a multiple of 8. */
void meter_record_pad_encode(uint64_t seq, size_t size, struct meter_writer *);
/* BAD: torn or foreign; MORE: the bytes end inside it. */
METER_MUST_CHECK enum meter_decode
meter_record_decode(const void *data, size_t size, struct meter_record *record,
                    size_t *used);

void meter_record_event_encode(const struct meter_record_event *,
                               struct meter_writer *);
METER_MUST_CHECK bool
meter_record_event_decode(struct meter_str, struct meter_record_event *);

/* Why requests could not be recorded; bits of meter_loss.reasons. */
enum meter_loss_reason {
    METER_LOSS_FULL = 1 << 0,  /* no room, or no ring at all */
    METER_LOSS_TORN = 1 << 1,  /* records that do not verify any more */
    METER_LOSS_REBOOT = 1 << 2 /* slots and cells of another boot: possibly
                                  lost, they were not written back in order */
};

/* Body of LOSSNOTE: requests that were answered and not recorded. */
struct meter_loss {
    uint64_t count;
    int64_t first_us;
    int64_t last_us;
    uint32_t reasons; /* enum meter_loss_reason */
    uint32_t turn;    /* in a ring alone, not told: see meter_losses.h */
};
void meter_loss_encode(const struct meter_loss *, struct meter_writer *);
METER_MUST_CHECK bool meter_loss_decode(struct meter_str, struct meter_loss *);

/*
 * Body of DELTA from the body that its cell holds (an event without count
 * and quantity): the sums go behind it.
 */
void meter_record_delta_encode(struct meter_str cell_body, int64_t count,
                               struct meter_decimal quantity, uint32_t flags,
                               struct meter_writer *);

/* Requests a record stands for: EVENT and DUPNOTE 1, DELTA its count. */
int64_t meter_record_weight(const struct meter_record *record);
/* Its ts, of a LOSSNOTE the first; 0: it has none. */
int64_t meter_record_ts(const struct meter_record *record);

/* Where a scan is. It begins with walked 0. */
struct meter_ring_place {
    size_t offset;     /* in the area */
    uint64_t next_seq; /* expected there */
    size_t walked;     /* bytes since the beginning */
};

/*
 * Recovery: walks the record area from the place on, wrapping at the end,
 * once around at most. Calls visit for each record that holds (PADs aside);
 * stops at the first that does not. A large area takes a while, so that a
 * call ends with the first record after `bytes`. True: call again, there is
 * more.
 */
typedef void (*meter_ring_visit_cb)(void *asker,
                                    const struct meter_record *record,
                                    size_t offset);
METER_MUST_CHECK bool
meter_ring_scan(const uint8_t *area, size_t area_size,
                struct meter_ring_place *place, size_t bytes,
                meter_ring_visit_cb visit, void *asker);

#endif
