/*
 * session_input.h - bytes of one connection into requests. Pure.
 *
 *   socket -> [session_input] -> session -> api
 *
 *   FRAME --whole REQUEST--> BODY --body_size bytes--> READY --next--> FRAME
 *     |                        |
 *     +------------------------+--> ENDED: bad bytes, or another protocol
 *
 * Any chunking gives the same requests. A request borrows its head from
 * the frame's bytes, which stay where they are until session_input_next.
 * Room is bounded: one frame and one read ahead of it, and one body of at
 * most METER_BODY_SIZE_MAX.
 */

#ifndef EDGE_SESSION_INPUT_H
#define EDGE_SESSION_INPUT_H

#include "base/buf.h"
#include "meter_msg.h"

#define SESSION_READ_SIZE 16384

enum session_input_state {
    SESSION_INPUT_FRAME, /* waits for a whole frame */
    SESSION_INPUT_BODY,  /* waits for the rest of a request's body */
    SESSION_INPUT_READY, /* holds a whole request until `next` */
    SESSION_INPUT_ENDED  /* takes no more bytes */
};

enum session_event {
    SESSION_EVENT_MORE,        /* give me more bytes */
    SESSION_EVENT_HEAD,        /* a head came, its body has to be read */
    SESSION_EVENT_REQUEST,     /* request and body are whole */
    SESSION_EVENT_HELLO,       /* the first frame; its bytes stay */
    SESSION_EVENT_MUX,         /* likewise */
    SESSION_EVENT_TOO_LARGE,   /* the body would pass the limit: 413 */
    SESSION_EVENT_UNSUPPORTED, /* a known type that has no place here */
    SESSION_EVENT_BAD,         /* error says why; close */
    SESSION_EVENT_NO_MEMORY    /* close */
};

struct session_input {
    enum session_input_state state;
    struct buf bytes;     /* a frame, then what was read behind it */
    size_t request_bytes; /* of `bytes`, that belong to the request */
    struct buf body;      /* the caller may take its bytes when READY */
    size_t body_left;
    struct meter_request request; /* borrows from bytes; BODY and READY */
    uint8_t type;                 /* UNSUPPORTED: of the frame */
    const char *error;            /* BAD: fixed sentence */
    uint64_t skipped;             /* frames of unknown types passed over */
    bool is_used; /* a request came: no other protocol any more */
};

void session_input_init(struct session_input *input);
void session_input_fini(struct session_input *input);

/*
 * Where the next bytes go: in FRAME behind what is there, in BODY straight
 * into the body. False: out of memory. Not in READY or ENDED.
 */
MUST_CHECK bool
session_input_room(struct session_input *input, char **data, size_t *size);
/* size bytes were written into the room. */
void session_input_wrote(struct session_input *input, size_t size);

/*
 * What the bytes so far mean. Call again after HEAD; after MORE only when
 * bytes were added; after REQUEST only behind session_input_next. The
 * other events end the input.
 */
enum session_event session_input_step(struct session_input *input);

/* The request is answered: forget it, go on with what is behind it. */
void session_input_next(struct session_input *input);

/* Bytes that came while a request was READY, to go behind all others. */
MUST_CHECK bool
session_input_append(struct session_input *input, struct meter_str bytes);

/* True between two requests with nothing begun. */
bool session_input_is_empty(const struct session_input *input);

#endif
