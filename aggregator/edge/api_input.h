/*
 * api_input.h - bytes of one connection into requests. Pure.
 *
 *   socket -> [api_input] -> api_conn -> api
 *
 *   FRAME --whole REQUEST--> BODY --body_size bytes--> READY --next--> FRAME
 *     |                        |
 *     +------------------------+--> ENDED: bad bytes, or another protocol
 *
 * Any chunking gives the same requests. A request borrows its head from
 * the frame's bytes, which stay where they are until api_input_next.
 * Room is bounded: one frame and one read ahead of it, and one body of at
 * most METER_BODY_SIZE_MAX.
 */

#ifndef EDGE_API_INPUT_H
#define EDGE_API_INPUT_H

#include "base/buf.h"
#include "meter_msg.h"

#define API_READ_SIZE 16384

enum api_input_state {
    API_INPUT_FRAME, /* waits for a whole frame */
    API_INPUT_BODY,  /* waits for the rest of a request's body */
    API_INPUT_READY, /* holds a whole request until `next` */
    API_INPUT_ENDED  /* takes no more bytes */
};

enum api_event {
    API_EVENT_MORE,        /* give me more bytes */
    API_EVENT_HEAD,        /* a head came, its body has to be read */
    API_EVENT_REQUEST,     /* request and body are whole */
    API_EVENT_HELLO,       /* the first frame; its bytes stay */
    API_EVENT_MUX,         /* likewise */
    API_EVENT_TOO_LARGE,   /* the body would pass the limit: 413 */
    API_EVENT_UNSUPPORTED, /* a known type that has no place here */
    API_EVENT_BAD,         /* error says why; close */
    API_EVENT_NO_MEMORY    /* close */
};

struct api_input {
    enum api_input_state state;
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

void api_input_init(struct api_input *input);
void api_input_fini(struct api_input *input);

/*
 * Where the next bytes go: in FRAME behind what is there, in BODY straight
 * into the body. False: out of memory. Not in READY or ENDED.
 */
MUST_CHECK bool
api_input_room(struct api_input *input, char **data, size_t *size);
/* size bytes were written into the room. */
void api_input_wrote(struct api_input *input, size_t size);

/*
 * What the bytes so far mean. Call again after HEAD; after MORE only when
 * bytes were added; after REQUEST only behind api_input_next. The
 * other events end the input.
 */
enum api_event api_input_step(struct api_input *input);

/* The request is answered: forget it, go on with what is behind it. */
void api_input_next(struct api_input *input);

/* Bytes that came while a request was READY, to go behind all others. */
MUST_CHECK bool
api_input_append(struct api_input *input, struct meter_str bytes);

/* True between two requests with nothing begun. */
bool api_input_is_empty(const struct api_input *input);

#endif
