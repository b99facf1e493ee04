/*
 * table.c - see table.h.
 */

#include "api/table.h"

#define LINK_SIZE_MAX (64u << 10)

bool
table_form(struct api_call *call, enum accept_form *form)
{
    *form = accept_choose(call->request->accept);
    if (*form != ACCEPT_NEITHER) {
        return true;
    }
    call_answer_error(call, 406, 0,
                      "the answer is application/json or text/csv");
    return false;
}

/* "cursor" and "cursor=...", also with escapes in the name. */
static bool
is_cursor(struct meter_str pair, struct arena *arena)
{
    struct url_arguments *arguments = arena_alloc(arena, sizeof(*arguments));
    const char *error;

    return arguments == NULL ||
           (url_arguments_read(pair, arena, arguments, &error) &&
            arguments->count == 1 &&
            meter_str_equal(arguments->items[0].name, METER_STR("cursor")));
}

static void
link_put(struct buf *out, struct meter_str text)
{
    static const char kept[] = "-._~!$'()*+,;=:@/?%";

    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];

        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            (c >= '0' && c <= '9') || (c != '\0' && strchr(kept, c) != NULL)) {
            buf_put_byte(out, (uint8_t)c);
        } else {
            buf_printf(out, "%%%02X", (unsigned)(uint8_t)c);
        }
    }
}

void
table_link(struct meter_str args, const char *cursor, struct buf *out)
{
    struct arena arena;
    const char *between = "";

    arena_init(&arena, 8192, 1u << 20);
    buf_put_text(out, "<?");
    while (args.size > 0) {
        const char *end = memchr(args.data, '&', args.size);
        size_t size = end == NULL ? args.size : (size_t)(end - args.data);
        struct meter_str pair = {args.data, size};

        if (size > 0 && !is_cursor(pair, &arena)) {
            buf_put_text(out, between);
            link_put(out, pair);
            between = "&";
        }
        size = end == NULL ? size : size + 1;
        args.data += size;
        args.size -= size;
        arena_reset(&arena);
    }
    buf_printf(out, "%scursor=%s>; rel=\"next\"", between, cursor);
    arena_fini(&arena);
}

void
table_answer(struct api_call *call, const char *cursor)
{
    struct meter_response head = {
        .status = 200,
        .content_type = METER_STR("text/csv; charset=utf-8"),
    };
    struct buf link;

    buf_init(&link, LINK_SIZE_MAX);
    if (cursor != NULL) {
        table_link(call->request->args, cursor, &link);
        head.headers[0] =
            (struct meter_header){METER_STR("link"), buf_str(&link)};
        head.header_count = 1;
        if (link.failed) {
            call_answer_unavailable(call);
            buf_fini(&link);
            return;
        }
    }
    call_answer_full(call, &head);
    buf_fini(&link);
}
