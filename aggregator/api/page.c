/*
 * page.c - limit and cursor of an answer, and its form.
 *
 * Handlers of lists call this: page_read before they ask the database,
 * page_cursor or page_end after it, table_answer for CSV. The most specific
 * range of Accept decides about a form, as RFC 9110 says; JSON wins a tie,
 * and where there is no header.
 */

#include "api/call.h"
#include "api/page.h"


#include <strings.h>

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
        member_text(json, "cursor", text);
    }
}


/* How closely a range names a form, and how much it is wanted. */
struct accept_range {
    int specific; /* 0: not named; then *, type/ * and type/subtype */
    int weight;   /* thousandths */
};

static struct meter_str
accept_trim(struct meter_str text)
{
    while (text.size > 0 && (text.data[0] == ' ' || text.data[0] == '\t')) {
        text.data++;
        text.size--;
    }
    while (text.size > 0 && (text.data[text.size - 1] == ' ' ||
                             text.data[text.size - 1] == '\t')) {
        text.size--;
    }
    return text;
}

/* What stands before the separator; *rest is what stands after it. */
static struct meter_str
accept_cut(struct meter_str text, char separator, struct meter_str *rest)
{
    const char *at =
        text.size == 0 ? NULL : memchr(text.data, separator, text.size);
    size_t size = at == NULL ? text.size : (size_t)(at - text.data);

    *rest = at == NULL ? (struct meter_str){NULL, 0}
                       : (struct meter_str){at + 1, text.size - size - 1};
    return accept_trim((struct meter_str){text.data, size});
}

static bool
accept_is(struct meter_str text, const char *word)
{
    return text.size == strlen(word) &&
           strncasecmp(text.data, word, text.size) == 0;
}

/* "0.5" and the like in thousandths; -1: no weight. */
static int
accept_weight_read(struct meter_str text)
{
    static const int digit_weight[] = {100, 10, 1};
    int weight;

    if (text.size == 0 || text.size > 5 ||
        (text.data[0] != '0' && text.data[0] != '1') ||
        (text.size > 1 && text.data[1] != '.')) {
        return -1;
    }
    weight = 1000 * (text.data[0] - '0');
    for (size_t i = 2; i < text.size; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') {
            return -1;
        }
        weight += digit_weight[i - 2] * (text.data[i] - '0');
    }
    return weight > 1000 ? -1 : weight;
}

/* The weight among a range's parameters. */
static int
accept_parameters_read(struct meter_str parameters)
{
    int weight = 1000;

    while (parameters.data != NULL) {
        struct meter_str value;
        struct meter_str parameter = accept_cut(parameters, ';', &parameters);
        struct meter_str name = accept_cut(parameter, '=', &value);

        if (accept_is(name, "q")) {
            weight = accept_weight_read(accept_trim(value));
        }
    }
    return weight;
}

static void
accept_range_note(struct accept_range *range, int specific, int weight)
{
    if (specific > range->specific) {
        *range = (struct accept_range){specific, weight};
    }
}

static enum accept_form
accept_choose(struct meter_str header)
{
    struct accept_range json = {0, 0};
    struct accept_range csv = {0, 0};
    bool is_said = false;

    while (header.data != NULL) {
        struct meter_str parameters;
        struct meter_str item = accept_cut(header, ',', &header);
        struct meter_str range = accept_cut(item, ';', &parameters);
        int weight = accept_parameters_read(parameters);

        if (range.size == 0 || weight < 0) {
            continue;
        }
        is_said = true;
        if (accept_is(range, "application/json")) {
            accept_range_note(&json, 3, weight);
        } else if (accept_is(range, "text/csv")) {
            accept_range_note(&csv, 3, weight);
        } else if (accept_is(range, "application/*")) {
            accept_range_note(&json, 2, weight);
        } else if (accept_is(range, "text/*")) {
            accept_range_note(&csv, 2, weight);
        } else if (accept_is(range, "*/*")) {
            accept_range_note(&json, 1, weight);
            accept_range_note(&csv, 1, weight);
        }
    }
    if (!is_said) {
        return ACCEPT_JSON;
    }
    if (json.weight == 0 && csv.weight == 0) {
        return ACCEPT_NEITHER;
    }
    return csv.weight > json.weight ? ACCEPT_CSV : ACCEPT_JSON;
}


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
link_is_cursor(struct meter_str pair, struct arena *arena)
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

static void
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

        if (size > 0 && !link_is_cursor(pair, &arena)) {
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
