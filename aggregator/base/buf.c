/*
 * buf.c - growing byte buffer with a stated maximum and a sticky `failed`.
 *
 * Writers put, put, put and check once. What is past the maximum, or past the
 * memory, frees the buffer: later puts do nothing.
 */

#include "base/buf.h"

#include "meter_event.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define BUF_ROOM_MIN 256

void
buf_init(struct buf *buf, size_t size_max)
{
    *buf = (struct buf){.size_max = size_max};
}

void
buf_fini(struct buf *buf)
{
    free(buf->data);
    buf->data = NULL;
    buf->size = 0;
    buf->room = 0;
}

void
buf_reset(struct buf *buf)
{
    buf->size = 0;
    buf->failed = false;
}

static void
buf_fail(struct buf *buf)
{
    buf_fini(buf);
    buf->failed = true;
}

char *
buf_reserve(struct buf *buf, size_t size)
{
    size_t room;
    char *data;

    if (buf->failed) {
        return NULL;
    }
    if (size <= buf->room - buf->size) {
        return buf->data + buf->size;
    }
    if (size > buf->size_max - buf->size) {
        buf_fail(buf);
        return NULL;
    }
    room = buf->room < BUF_ROOM_MIN ? BUF_ROOM_MIN : buf->room * 2;
    if (room < buf->size + size) {
        room = buf->size + size;
    }
    if (room > buf->size_max) {
        room = buf->size_max;
    }
    data = realloc(buf->data, room);
    if (data == NULL) {
        buf_fail(buf);
        return NULL;
    }
    buf->data = data;
    buf->room = room;
    return buf->data + buf->size;
}

void
buf_commit(struct buf *buf, size_t size)
{
    CHECK(!buf->failed && size <= buf->room - buf->size);
    buf->size += size;
}

void
buf_fit(struct buf *buf)
{
    char *data = NULL;

    if (buf->size == 0) {
        buf_fini(buf);
        return;
    }
    data = realloc(buf->data, buf->size);
    if (data != NULL) {
        buf->data = data;
        buf->room = buf->size;
    }
}

void
buf_consume(struct buf *buf, size_t size)
{
    CHECK(size <= buf->size);
    buf->size -= size;
    if (buf->size > 0 && size > 0) {
        memmove(buf->data, buf->data + size, buf->size);
    }
}

void
buf_put(struct buf *buf, const void *data, size_t size)
{
    char *to;

    if (size == 0) {
        return;
    }
    to = buf_reserve(buf, size);
    if (to != NULL) {
        memcpy(to, data, size);
        buf->size += size;
    }
}

void
buf_put_byte(struct buf *buf, uint8_t byte)
{
    buf_put(buf, &byte, 1);
}

void
buf_put_text(struct buf *buf, const char *text)
{
    buf_put(buf, text, strlen(text));
}

void
buf_put_str(struct buf *buf, struct meter_str str)
{
    buf_put(buf, str.data, str.size);
}

void
buf_put_int(struct buf *buf, int64_t value)
{
    char digits[24];
    size_t at = sizeof(digits);
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;

    do {
        digits[--at] = (char)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (value < 0) {
        digits[--at] = '-';
    }
    buf_put(buf, digits + at, sizeof(digits) - at);
}

void
buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_list again;
    int size;
    char *to;

    va_start(args, format);
    va_copy(again, args);
    size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    CHECK(size >= 0);
    to = buf_reserve(buf, (size_t)size + 1);
    if (to != NULL) {
        vsnprintf(to, (size_t)size + 1, format, again);
        buf->size += (size_t)size;
    }
    va_end(again);
}

/* Controls, line ends and changes of direction. */
static bool
steers_terminal(const uint8_t *at, size_t size)
{
    if (size == 1) {
        return at[0] < 0x20 || at[0] == 0x7f;
    }
    if (size == 2) {
        return at[0] == 0xc2 && at[1] < 0xa0;
    }
    return size == 3 && at[0] == 0xe2 &&
           ((at[1] == 0x80 && at[2] >= 0xa8 && at[2] <= 0xae) ||
            (at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9));
}

void
buf_put_printable(struct buf *out, struct meter_str text)
{
    const uint8_t *from = (const uint8_t *)text.data;
    size_t left = text.size;

    while (left > 0) {
        size_t size = meter_utf8_size(from, left);

        if (size == 0 || steers_terminal(from, size)) {
            buf_put_byte(out, '?');
            size = size == 0 ? 1 : size;
        } else {
            buf_put(out, from, size);
        }
        from += size;
        left -= size;
    }
}
