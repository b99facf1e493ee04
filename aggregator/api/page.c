/*
 * page.c - see page.h.
 */

#include "api/page.h"

#define CHECK_SIZE      8
#define CURSOR_SIZE_MAX (CHECK_SIZE + PAGE_KEY_SIZE_MAX)

bool
page_is_argument(struct meter_str name)
{
    return meter_str_equal(name, METER_STR("limit")) ||
           meter_str_equal(name, METER_STR("cursor"));
}

void
page_init(struct page *page)
{
    meter_tuple_init(&page->question, NULL);
    page->limit = PAGE_LIMIT_DEFAULT;
    page->after = (struct meter_str){NULL, 0};
}

void
page_ask(struct page *page, struct meter_str piece)
{
    meter_tuple_str(&page->question, piece);
}

static void
cursor_check(const struct page *page, struct meter_str key,
             uint8_t check[CHECK_SIZE])
{
    uint8_t digest[METER_DIGEST_SIZE];
    struct meter_tuple tuple;

    meter_tuple_init(&tuple, NULL);
    meter_tuple_bytes(&tuple, page->asked, sizeof(page->asked));
    meter_tuple_str(&tuple, key);
    meter_tuple_final(&tuple, digest);
    memcpy(check, digest, CHECK_SIZE);
}


/* ---- reading --------------------------------------------------------- */

static int
base64url_digit(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '-' ? 62 : c == '_' ? 63 : -1;
}

/*
 * Room for 3/4 of the text is given. Every text has one value and every
 * value one text: no padding, no bits left over. False: it is none.
 */
static bool
base64url_read(struct meter_str text, uint8_t *out, size_t *size)
{
    uint32_t bits = 0;
    unsigned count = 0;

    *size = 0;
    for (size_t i = 0; i < text.size; i++) {
        int digit = base64url_digit(text.data[i]);

        if (digit < 0) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)digit) & 0xffff;
        count += 6;
        if (count >= 8) {
            count -= 8;
            out[(*size)++] = (uint8_t)(bits >> count);
        }
    }
    return count < 6 && (bits & ((1u << count) - 1)) == 0;
}

static const char *
limit_read(struct meter_str text, int64_t *limit)
{
    int64_t value = 0;

    for (size_t i = 0; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            value = 0;
            break;
        }
        value = value * 10 + (text.data[i] - '0');
        if (value > PAGE_LIMIT_MAX) {
            break;
        }
    }
    if (value < 1 || value > PAGE_LIMIT_MAX) {
        return "\"limit\" must be from 1 to 1000";
    }
    *limit = value;
    return NULL;
}

static const char *
cursor_read(struct page *page, struct meter_str text, struct arena *arena)
{
    uint8_t check[CHECK_SIZE];
    uint8_t *bytes;
    struct meter_str key;
    size_t size;

    if (text.size > METER_BASE64URL_SIZE(CURSOR_SIZE_MAX)) {
        return PAGE_ERROR_CURSOR;
    }
    bytes = arena_alloc(arena, text.size + 1);
    if (bytes == NULL) {
        return "the query is too long";
    }
    if (!base64url_read(text, bytes, &size) || size <= CHECK_SIZE) {
        return PAGE_ERROR_CURSOR;
    }
    key =
        (struct meter_str){(const char *)bytes + CHECK_SIZE, size - CHECK_SIZE};
    cursor_check(page, key, check);
    if (memcmp(check, bytes, CHECK_SIZE) != 0) {
        return PAGE_ERROR_CURSOR;
    }
    page->after = key;
    return NULL;
}

bool
page_read(struct page *page, const struct url_arguments *arguments,
          struct arena *arena, const char **error)
{
    meter_tuple_final(&page->question, page->asked);
    *error = NULL;
    for (size_t i = 0; i < arguments->count && *error == NULL; i++) {
        const struct url_argument *argument = &arguments->items[i];

        if (meter_str_equal(argument->name, METER_STR("limit"))) {
            *error = limit_read(argument->value, &page->limit);
        } else if (meter_str_equal(argument->name, METER_STR("cursor"))) {
            *error = cursor_read(page, argument->value, arena);
        }
    }
    return *error == NULL;
}


/* ---- writing --------------------------------------------------------- */

int64_t
page_row_limit(const struct page *page)
{
    return page->limit + 1;
}

int
page_row_count(const struct page *page, int rows)
{
    return rows > page->limit ? (int)page->limit : rows;
}

bool
page_cursor(const struct page *page, int rows, struct meter_str key,
            char out[PAGE_CURSOR_SIZE_MAX + 1])
{
    uint8_t bytes[CURSOR_SIZE_MAX];

    _Static_assert(PAGE_CURSOR_SIZE_MAX ==
                       METER_BASE64URL_SIZE(CURSOR_SIZE_MAX),
                   "room for the longest");
    if (rows <= page->limit) {
        return false;
    }
    CHECK(key.size > 0 && key.size <= PAGE_KEY_SIZE_MAX);
    cursor_check(page, key, bytes);
    memcpy(bytes + CHECK_SIZE, key.data, key.size);
    meter_base64url(bytes, CHECK_SIZE + key.size, out);
    return true;
}

void
page_end(const struct page *page, int rows, struct meter_str key,
         struct json_writer *json)
{
    char text[PAGE_CURSOR_SIZE_MAX + 1];

    if (page_cursor(page, rows, key, text)) {
        json_key(json, "cursor");
        json_text(json, text);
    }
}
