/*
 * meter_outbox.h - a mapped ring file at work: append, read, ack, adopt.
 *
 *   0             identity (meter_ring.h), live words      one page
 *   4096          slots: answered requests, record not final yet
 *   behind them   cells: open deltas
 *   behind them   the record area
 *
 * Pure: works on memory that somebody mapped shared and locked. One owner
 * at a time, one thread. Everything in the map is written so that the owner
 * may die between any two instructions and the next one, of the same kernel
 * boot, finds out what was done:
 *
 *   record   bytes first, then head is release-stored: head is the truth
 *   ack      two copies, each with a turn and a check; the newer good one
 *   slot     body first, then its state
 *   cell     the half that is not read first, then the flip
 *   a record made from a slot, a cell or the loss entry: store seq = head in
 *   the entry, publish the record, free the entry
 *   counts   guard is odd while they change; recorded_head tells whether the
 *   record before head was counted; seen and open follow from the others
 *
 * Claiming is adopting: meter_outbox_open, meter_outbox_verify until it is
 * done, then meter_outbox_recover before anything is appended, then
 * meter_outbox_emit until it says 0.
 */

#ifndef METER_OUTBOX_H
#define METER_OUTBOX_H

#include "meter_cell.h"
#include "meter_ring.h"
#include "meter_slot.h"

#define METER_OUTBOX_SIZE_MIN    (256u << 10)
#define METER_OUTBOX_SIZE_MAX    (1u << 30)
#define METER_OUTBOX_LIVE_OFFSET 256
#define METER_OUTBOX_RESERVE     256 /* kept free for a LOSSNOTE */

/* In requests. seen = filtered + lost + recorded + open, always. */
struct meter_outbox_counts {
    uint64_t seen;     /* record decisions */
    uint64_t filtered; /* decided: not billed */
    uint64_t lost;     /* decided: recorded, but there was no room */
    uint64_t recorded; /* weight of all records ever published */
    uint64_t open;     /* in cells */
};

struct meter_outbox_acked {
    uint64_t seq;    /* all records up to here are durable */
    uint64_t offset; /* in the area, of record seq + 1 */
    uint64_t turn;
    uint64_t check;
};

/* Marks an entry whose record is being published; see the head comment. */
struct meter_outbox_loss {
    uint64_t seq;
    struct meter_loss loss; /* count 0: none */
};

enum meter_outbox_busy {
    METER_OUTBOX_SPARE = 0,      /* drained, no entries: free to take */
    METER_OUTBOX_BUSY = 1,       /* owned, or its owner died */
    METER_OUTBOX_FORMATTING = 2, /* drained; the identity is being written */
    METER_OUTBOX_LEAVING = 3 /* as BUSY: its owner only ends what it serves */
};

/* At METER_OUTBOX_LIVE_OFFSET; host byte order, 8-byte words. */
struct meter_outbox_live {
    uint64_t head;          /* sequence number of the next record */
    uint64_t operation;     /* last number given to a change of a cell */
    uint64_t guard;         /* odd: counts are changing */
    uint64_t recorded_head; /* head when `recorded` was last added to */
    uint64_t recorded_next; /* what `recorded` is once head has moved */
    struct meter_outbox_acked acked[2]; /* of turn t: acked[t & 1] */

    /* From here to is_changing: may change together, see meter_live.h. */
    struct meter_outbox_counts counts;      /* of this session */
    uint64_t verdicts[METER_VERDICT_COUNT]; /* requests, as meterd told */
    struct meter_outbox_counts past;        /* earlier sessions of the file */
    uint64_t past_verdicts[METER_VERDICT_COUNT];
    struct meter_outbox_loss loss;
    uint64_t torn_counted;  /* torn records that are in the loss entry */
    uint64_t is_discarding; /* slots and cells are in the loss entry */
    uint64_t is_changing;   /* `next` holds what the words above become */
    uint64_t next[25];

    uint64_t db_epoch;
    uint64_t busy;       /* enum meter_outbox_busy */
    uint64_t owner_pid;  /* for people */
    int64_t beat_us;     /* wall clock; the owner stores it every second */
    int64_t waiting_us;  /* ts of the oldest record without ack; 0: none */
    uint64_t used_bytes; /* of the area */
};

_Static_assert(METER_OUTBOX_LIVE_OFFSET + sizeof(struct meter_outbox_live) <=
                   METER_RING_HEADER_SIZE,
               "the live words fit behind the identity");

struct meter_outbox_cursor {
    uint64_t seq;
    size_t offset;
};

/* The owner's view; nothing in it has to survive. */
struct meter_outbox {
    uint8_t *map;
    size_t size;
    struct meter_ring_header header;
    struct meter_outbox_live *live;
    uint8_t *area;
    size_t area_size;

    uint64_t head; /* as in live; of a torn ring where it is torn */
    size_t head_offset;
    uint64_t acked;
    size_t acked_offset;
    uint64_t acked_turn;
    struct meter_ring_place verified; /* where meter_outbox_verify is */
    size_t used;        /* bytes from acked_offset to head_offset */
    size_t kept;        /* bytes that reserve leaves free: promised to others */
    size_t reserved_at; /* of the record being made; SIZE_MAX: none */
    size_t reserved_max; /* its body, at most */

    struct meter_slots slots;
    struct meter_cells cells;

    /* What is left to emit after a claim. */
    uint32_t emit_slots;
    uint32_t emit_cells;
};

/* What a claimer found; all zero for a file that was released in order. */
struct meter_outbox_report {
    bool other_boot;         /* written under another kernel boot */
    uint64_t torn_records;   /* published, but do not verify: lost */
    uint32_t answered_slots; /* to be emitted as recovered events */
    uint32_t dropped_slots;  /* reserved, never answered */
    uint32_t open_cells;     /* to be emitted as deltas */
    uint64_t lost_requests;  /* of another boot: slots and cells discarded */
};

/* Where things lie in a file of this size. False: size out of bounds. */
METER_MUST_CHECK bool
meter_outbox_layout(uint64_t file_size, struct meter_ring_header *header);

/* Bytes of private memory that open needs, 16-byte aligned. */
size_t meter_outbox_scratch_size(const struct meter_ring_header *header);

/*
 * Writes a new, empty ring into a map of zeros, owned: BUSY. In a file that
 * is UNFINISHED a meter_outbox_renew is brought to its end: past counts and
 * the loss entry stay. False: size out of bounds.
 */
METER_MUST_CHECK bool
meter_outbox_format(void *map, size_t size, const uint8_t session[16],
                    const uint8_t boot_id[16]);

enum meter_outbox_open {
    METER_OUTBOX_OK,
    METER_OUTBOX_UNFINISHED, /* all zeros, or its identity was being written:
                                nothing is in it, format it */
    METER_OUTBOX_FOREIGN,    /* not a ring file, or it is damaged: leave it */
    METER_OUTBOX_VERSION     /* of another version: leave it alone */
};
/* Finds acked. When not OK only map and size are set. */
METER_MUST_CHECK enum meter_outbox_open
meter_outbox_open(struct meter_outbox *outbox, void *map, size_t size,
                  void *scratch);

/*
 * Finds head, from acked on; records that do not verify are counted as torn.
 * A full ring has a gigabyte to read, maybe from a disk, so that one call
 * looks at about `bytes` of it. True: call again. Until it is false nothing
 * else may be done with the outbox; the file stays what it was, for whoever
 * claims it if we die.
 */
METER_MUST_CHECK bool
meter_outbox_verify(struct meter_outbox *outbox, size_t bytes,
                    struct meter_outbox_report *report);

/*
 * Settles what a dead owner left: marks, counts, slots, cells. After another
 * boot slots and cells are discarded into the loss entry. A torn ring must
 * not be appended to: meter_outbox_is_torn.
 */
void
meter_outbox_recover(struct meter_outbox *outbox, const uint8_t boot_id[16],
                     int64_t now_us, struct meter_outbox_report *report);
/* Emits recovered slots and cells while there is room; returns what is left. */
uint32_t meter_outbox_emit(struct meter_outbox *outbox);
/* True: drain what verifies, then renew; the rest is in the loss entry. */
bool meter_outbox_is_torn(const struct meter_outbox *outbox);

/*
 * Nothing to send, no slot, no cell, no loss to report. A torn ring keeps
 * these for the session after it: there it means nothing to send.
 */
bool meter_outbox_is_drained(const struct meter_outbox *outbox);

/*
 * A drained ring goes on under a new session; its counts become past, what
 * was recorded and got no verdict becomes lost there. What was left to emit
 * still is.
 */
void meter_outbox_renew(struct meter_outbox *outbox, const uint8_t session[16],
                        const uint8_t boot_id[16]);

/*
 * A record is made in place: reserve gives room for a body of at most
 * body_max bytes, NULL when there is none; commit publishes it and returns
 * its sequence number (0: nothing was reserved). weight is in requests;
 * is_seen: they become seen now (a delta's were: they leave `open`).
 * entry: the seq word of the slot or cell it is made from, which is freed
 * behind it, or NULL.
 */
uint8_t *meter_outbox_reserve(struct meter_outbox *outbox, size_t body_max);
uint64_t meter_outbox_commit(struct meter_outbox *outbox,
                             enum meter_record_kind kind, size_t body_size,
                             uint64_t weight, bool is_seen, uint64_t *entry);
/* Room for `count` more records of the largest size. */
bool meter_outbox_has_room(const struct meter_outbox *outbox, size_t count);

/*
 * Decisions that make no record. With a slot: `filtered` behind freeing it,
 * `lost` in front, so that dying in between bills nothing that was filtered
 * and hides no loss.
 */
void meter_outbox_filtered(struct meter_outbox *outbox);
void meter_outbox_lost(struct meter_outbox *outbox, uint64_t count,
                       enum meter_loss_reason reason, int64_t now_us);
/* Puts the loss into a record. False: nothing to tell, or no room. */
bool meter_outbox_tell_loss(struct meter_outbox *outbox);

/* Reading, from the cursor's record on; PADs are passed over. */
void meter_outbox_cursor(const struct meter_outbox *outbox,
                         struct meter_outbox_cursor *cursor);
/* The whole record as bytes. False: the cursor is at head. */
METER_MUST_CHECK bool
meter_outbox_next(const struct meter_outbox *outbox,
                  struct meter_outbox_cursor *cursor, struct meter_str *bytes);

/* Everything up to here is durable: its room is free. Never past head - 1. */
void meter_outbox_ack(struct meter_outbox *outbox, uint64_t upto);

/*
 * meterd knows less than was acked: the database went back. Records that
 * are still in the area become unacked again. Returns the first sequence
 * number that can be sent again; last + 1 when nothing is missing.
 */
uint64_t meter_outbox_rewind(struct meter_outbox *outbox, uint64_t last);

/*
 * A consistent copy of the live words, while another process writes. False:
 * its owner died, or stopped, counting; a change it had begun is in the copy.
 */
METER_MUST_CHECK bool
meter_outbox_snapshot(const void *page, struct meter_outbox_live *out);

#endif
