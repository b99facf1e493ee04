/*
 * api_input.c - see api_input.h.
 *
 * The body of a request is read straight into its own buffer, except for
 * what came in one read with the head; those bytes are moved once.
 */

#include "edge/api_input.h"

#define FRAME_BYTES_MAX \
    (METER_FRAME_HEADER_SIZE + METER_FRAME_SIZE_MAX + 2 * API_READ_SIZE)
#define KEEP_ROOM_MAX (64u << 10) /* larger buffers are not kept idle */
#define BODY_READ_MAX (256u << 10)

void
api_input_init(struct api_input *input)
{
    *input = (struct api_input){.state = API_INPUT_FRAME};
    buf_init(&input->bytes, FRAME_BYTES_MAX);
    buf_init(&input->body, METER_BODY_SIZE_MAX);
}

void
api_input_fini(struct api_input *input)
{
    buf_fini(&input->bytes);
    buf_fini(&input->body);
    input->state = API_INPUT_ENDED;
}

bool
api_input_room(struct api_input *input, char **data, size_t *size)
{
    struct buf *into = &input->bytes;

    CHECK(input->state == API_INPUT_FRAME || input->state == API_INPUT_BODY);
    *size = API_READ_SIZE;
    if (input->state == API_INPUT_BODY) {
        into = &input->body;
        *size =
            input->body_left < BODY_READ_MAX ? input->body_left : BODY_READ_MAX;
    }
    *data = buf_reserve(into, *size);
    return *data != NULL;
}

void
api_input_wrote(struct api_input *input, size_t size)
{
    if (input->state == API_INPUT_BODY) {
        CHECK(size <= input->body_left);
        buf_commit(&input->body, size);
        input->body_left -= size;
        return;
    }
    CHECK(input->state == API_INPUT_FRAME);
    buf_commit(&input->bytes, size);
}

static enum api_event
api_input_end(struct api_input *input, enum api_event event, const char *error)
{
    input->state = API_INPUT_ENDED;
    input->error = error;
    return event;
}

/* The head is decoded: moves what is there of the body behind it. */
static enum api_event
api_input_head(struct api_input *input, size_t frame_size)
{
    size_t behind = input->bytes.size - frame_size;
    size_t body_size, taken;

    if (input->request.body_size > METER_BODY_SIZE_MAX) {
        return api_input_end(input, API_EVENT_TOO_LARGE, "body is too large");
    }
    body_size = (size_t)input->request.body_size;
    taken = behind < body_size ? behind : body_size;
    buf_reset(&input->body);
    buf_put(&input->body, input->bytes.data + frame_size, taken);
    if (input->body.failed) {
        return api_input_end(input, API_EVENT_NO_MEMORY, "out of memory");
    }
    input->request_bytes = frame_size + taken;
    input->body_left = body_size - taken;
    input->state = API_INPUT_BODY;
    return API_EVENT_HEAD;
}

/* One whole frame of any type. */
static enum api_event
api_input_frame(struct api_input *input, const struct meter_frame *frame,
                size_t frame_size)
{
    input->type = frame->type;
    if (frame->type == METER_FRAME_HELLO && !input->is_used) {
        return api_input_end(input, API_EVENT_HELLO, NULL);
    }
    if (frame->type == METER_FRAME_MUX && !input->is_used) {
        return api_input_end(input, API_EVENT_MUX, NULL);
    }
    if (frame->type == METER_FRAME_REQUEST) {
        input->is_used = true;
        if (!meter_request_decode(frame->payload, &input->request)) {
            return api_input_end(input, API_EVENT_BAD,
                                 "request cannot be decoded");
        }
        return api_input_head(input, frame_size);
    }
    if (frame->type >= METER_FRAME_HELLO && frame->type <= METER_FRAME_CANCEL) {
        return api_input_end(input, API_EVENT_UNSUPPORTED,
                             "frame type is not served");
    }
    if ((frame->flags & METER_FRAME_CRITICAL) != 0) {
        return api_input_end(input, API_EVENT_BAD,
                             "unknown critical frame type");
    }
    input->skipped++;
    buf_consume(&input->bytes, frame_size);
    return API_EVENT_MORE;
}

static enum api_event
api_input_step_frame(struct api_input *input)
{
    enum meter_frame_error error = METER_FRAME_OK;
    struct meter_frame frame;
    size_t used = 0, need = 0;

    while (input->bytes.size > 0) {
        enum api_event event;

        switch (meter_frame_decode(input->bytes.data, input->bytes.size, &frame,
                                   &used, &need, &error)) {
        case METER_DECODE_MORE: return API_EVENT_MORE;
        case METER_DECODE_BAD:
            return api_input_end(input, API_EVENT_BAD,
                                 meter_frame_error_text(error));
        case METER_DECODE_OK: break;
        }
        event = api_input_frame(input, &frame, used);
        if (event != API_EVENT_MORE) {
            return event;
        }
    }
    return API_EVENT_MORE;
}

enum api_event
api_input_step(struct api_input *input)
{
    switch (input->state) {
    case API_INPUT_FRAME: return api_input_step_frame(input);
    case API_INPUT_BODY:
        if (input->body_left > 0) {
            return API_EVENT_MORE;
        }
        input->state = API_INPUT_READY;
        return API_EVENT_REQUEST;
    case API_INPUT_READY:
    case API_INPUT_ENDED: break;
    }
    CHECK(false);
    return API_EVENT_BAD;
}

void
api_input_next(struct api_input *input)
{
    CHECK(input->state == API_INPUT_READY);
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
    input->state = API_INPUT_FRAME;
}

bool
api_input_append(struct api_input *input, struct meter_str bytes)
{
    CHECK(input->state == API_INPUT_FRAME);
    CHECK(bytes.size <= API_READ_SIZE);
    buf_put_str(&input->bytes, bytes);
    return !input->bytes.failed;
}

bool
api_input_is_empty(const struct api_input *input)
{
    return input->state == API_INPUT_FRAME && input->bytes.size == 0;
}
