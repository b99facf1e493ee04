/*
 * session_input.c - see session_input.h.
 *
 * The body of a request is read straight into its own buffer, except for
 * what came in one read with the head; those bytes are moved once.
 */

#include "edge/session_input.h"

#define FRAME_BYTES_MAX \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + 2 * SESSION_READ_SIZE)
#define KEEP_ROOM_MAX (64u << 10) /* larger buffers are not kept idle */
#define BODY_READ_MAX (256u << 10)

void
session_input_init(struct session_input *input)
{
    *input = (struct session_input){.state = SESSION_INPUT_FRAME};
    buf_init(&input->bytes, FRAME_BYTES_MAX);
    buf_init(&input->body, METER_BODY_SIZE_MAX);
}

void
session_input_fini(struct session_input *input)
{
    buf_fini(&input->bytes);
    buf_fini(&input->body);
    input->state = SESSION_INPUT_ENDED;
}

bool
session_input_room(struct session_input *input, char **data, size_t *size)
{
    struct buf *into = &input->bytes;

    CHECK(input->state == SESSION_INPUT_FRAME ||
          input->state == SESSION_INPUT_BODY);
    *size = SESSION_READ_SIZE;
    if (input->state == SESSION_INPUT_BODY) {
        into = &input->body;
        *size =
            input->body_left < BODY_READ_MAX ? input->body_left : BODY_READ_MAX;
    }
    *data = buf_reserve(into, *size);
    return *data != NULL;
}

void
session_input_wrote(struct session_input *input, size_t size)
{
    if (input->state == SESSION_INPUT_BODY) {
        CHECK(size <= input->body_left);
        buf_commit(&input->body, size);
        input->body_left -= size;
        return;
    }
    CHECK(input->state == SESSION_INPUT_FRAME);
    buf_commit(&input->bytes, size);
}

static enum session_event
session_input_end(struct session_input *input, enum session_event event,
                  const char *error)
{
    input->state = SESSION_INPUT_ENDED;
    input->error = error;
    return event;
}

/* The head is decoded: moves what is there of the body behind it. */
static enum session_event
session_input_head(struct session_input *input, size_t frame_size)
{
    size_t behind = input->bytes.size - frame_size;
    size_t body_size, taken;

    if (input->request.body_size > METER_BODY_SIZE_MAX) {
        return session_input_end(input, SESSION_EVENT_TOO_LARGE,
                                 "body is too large");
    }
    body_size = (size_t)input->request.body_size;
    taken = behind < body_size ? behind : body_size;
    buf_reset(&input->body);
    buf_put(&input->body, input->bytes.data + frame_size, taken);
    if (input->body.failed) {
        return session_input_end(input, SESSION_EVENT_NO_MEMORY,
                                 "out of memory");
    }
    input->request_bytes = frame_size + taken;
    input->body_left = body_size - taken;
    input->state = SESSION_INPUT_BODY;
    return SESSION_EVENT_HEAD;
}

/* One whole frame of any type. */
static enum session_event
session_input_frame(struct session_input *input,
                    const struct meter_frame *frame, size_t frame_size)
{
    input->type = frame->type;
    if (frame->type == METER_FRAME_HELLO && !input->is_used) {
        return session_input_end(input, SESSION_EVENT_HELLO, NULL);
    }
    if (frame->type == METER_FRAME_MUX && !input->is_used) {
        return session_input_end(input, SESSION_EVENT_MUX, NULL);
    }
    if (frame->type == METER_FRAME_REQUEST) {
        input->is_used = true;
        if (!meter_request_decode(frame->payload, &input->request)) {
            return session_input_end(input, SESSION_EVENT_BAD,
                                     "request cannot be decoded");
        }
        return session_input_head(input, frame_size);
    }
    if (frame->type >= METER_FRAME_HELLO && frame->type <= METER_FRAME_CANCEL) {
        return session_input_end(input, SESSION_EVENT_UNSUPPORTED,
                                 "frame type is not served");
    }
    if ((frame->flags & METER_FRAME_CRITICAL) != 0) {
        return session_input_end(input, SESSION_EVENT_BAD,
                                 "unknown critical frame type");
    }
    input->skipped++;
    buf_consume(&input->bytes, frame_size);
    return SESSION_EVENT_MORE;
}

static enum session_event
session_input_step_frame(struct session_input *input)
{
    enum meter_frame_error error = METER_FRAME_OK;
    struct meter_frame frame;
    size_t used = 0, need = 0;

    while (input->bytes.size > 0) {
        enum session_event event;

        switch (meter_frame_decode(input->bytes.data, input->bytes.size, &frame,
                                   &used, &need, &error)) {
        case METER_DECODE_MORE: return SESSION_EVENT_MORE;
        case METER_DECODE_BAD:
            return session_input_end(input, SESSION_EVENT_BAD,
                                     meter_frame_error_text(error));
        case METER_DECODE_OK: break;
        }
        event = session_input_frame(input, &frame, used);
        if (event != SESSION_EVENT_MORE) {
            return event;
        }
    }
    return SESSION_EVENT_MORE;
}

enum session_event
session_input_step(struct session_input *input)
{
    switch (input->state) {
    case SESSION_INPUT_FRAME: return session_input_step_frame(input);
    case SESSION_INPUT_BODY:
        if (input->body_left > 0) {
            return SESSION_EVENT_MORE;
        }
        input->state = SESSION_INPUT_READY;
        return SESSION_EVENT_REQUEST;
    case SESSION_INPUT_READY:
    case SESSION_INPUT_ENDED: break;
    }
    CHECK(false);
    return SESSION_EVENT_BAD;
}

void
session_input_next(struct session_input *input)
{
    CHECK(input->state == SESSION_INPUT_READY);
    buf_consume(&input->bytes, input->request_bytes);
    input->request_bytes = 0;
    if (input->bytes.size == 0 && input->bytes.room > KEEP_ROOM_MAX) {
        buf_fini(&input->bytes);
        buf_init(&input->bytes, FRAME_BYTES_MAX);
    }
    if (input->body.room > KEEP_ROOM_MAX) {
        buf_fini(&input->body);
        buf_init(&input->body, METER_BODY_SIZE_MAX);
    }
    buf_reset(&input->body);
    input->state = SESSION_INPUT_FRAME;
}

bool
session_input_append(struct session_input *input, struct meter_str bytes)
{
    CHECK(input->state == SESSION_INPUT_FRAME);
    CHECK(bytes.size <= SESSION_READ_SIZE);
    buf_put_str(&input->bytes, bytes);
    return !input->bytes.failed;
}

bool
session_input_is_empty(const struct session_input *input)
{
    return input->state == SESSION_INPUT_FRAME && input->bytes.size == 0;
}
