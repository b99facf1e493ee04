/*
 * options_print.c - options shown: values as text, the table for people.
 */

#include "config/options.h"

#include "config/scalar.h"
#include "meter_time.h"

static const char *const type_names[] = {
    [OPTION_DATABASE] = "connection string", [OPTION_PATH] = "absolute path",
    [OPTION_LISTEN] = "unix:PATH",           [OPTION_NODE] = "name",
    [OPTION_BOOL] = "true or false",         [OPTION_INTEGER] = "integer",
    [OPTION_DURATION] = "duration",          [OPTION_SKEW] = "duration or none",
    [OPTION_DAYS] = "days or forever",       [OPTION_WORD] = "word",
    [OPTION_USERS] = "list of names",
};


static const void *
field_of(const struct option_row *row, const struct config *config)
{
    return (const char *)config + row->offset;
}

static const char *
text_of(const struct option_row *row, const struct config *config)
{
    return *(const char *const *)field_of(row, config);
}

static bool
users_equal(const struct config_users *a, const struct config_users *b)
{
    if (a->count != b->count) {
        return false;
    }
    for (size_t i = 0; i < a->count; i++) {
        if (strcmp(a->names[i], b->names[i]) != 0) {
            return false;
        }
    }
    return true;
}

bool
options_equal(const struct option_row *row, const struct config *a,
              const struct config *b)
{
    const void *field_a = field_of(row, a);
    const void *field_b = field_of(row, b);
    const char *text_a;
    const char *text_b;

    switch (row->type) {
    case OPTION_BOOL: return *(const bool *)field_a == *(const bool *)field_b;
    case OPTION_INTEGER:
    case OPTION_DURATION:
    case OPTION_SKEW:
    case OPTION_DAYS:
    case OPTION_WORD:
        return *(const int64_t *)field_a == *(const int64_t *)field_b;
    case OPTION_USERS: return users_equal(field_a, field_b);
    case OPTION_DATABASE:
    case OPTION_PATH:
    case OPTION_LISTEN:
    case OPTION_NODE: break;
    }
    text_a = text_of(row, a);
    text_b = text_of(row, b);
    return text_a == text_b ||
           (text_a != NULL && text_b != NULL && strcmp(text_a, text_b) == 0);
}

static void
format_number(const struct option_row *row, int64_t value, struct buf *out)
{
    char text[SCALAR_DURATION_TEXT_SIZE + 1];

    if (value == CONFIG_NONE && row->type == OPTION_SKEW) {
        buf_put_text(out, "none");
    } else if (value == CONFIG_NONE && row->type == OPTION_DAYS) {
        buf_put_text(out, "forever");
    } else if (row->type == OPTION_DAYS) {
        buf_put_int(out, value);
        buf_put_byte(out, 'd');
    } else if (row->type == OPTION_WORD) {
        buf_put_text(out, row->words[value]);
    } else if (row->type == OPTION_INTEGER) {
        buf_put_int(out, value);
    } else {
        scalar_duration_format(value, text);
        buf_put_text(out, text);
    }
}

static void
format_users(const struct config_users *users, struct buf *out)
{
    buf_put_byte(out, '[');
    for (size_t i = 0; i < users->count; i++) {
        buf_put_text(out, i == 0 ? "" : ", ");
        buf_put_text(out, users->names[i]);
    }
    buf_put_byte(out, ']');
}

void
options_format(const struct option_row *row, const struct config *config,
               struct buf *out)
{
    const void *field = field_of(row, config);
    const char *text;

    switch (row->type) {
    case OPTION_BOOL:
        buf_put_text(out, *(const bool *)field ? "true" : "false");
        return;
    case OPTION_INTEGER:
    case OPTION_DURATION:
    case OPTION_SKEW:
    case OPTION_DAYS:
    case OPTION_WORD: format_number(row, *(const int64_t *)field, out); return;
    case OPTION_USERS: format_users(field, out); return;
    case OPTION_DATABASE:
    case OPTION_PATH:
    case OPTION_LISTEN:
    case OPTION_NODE: break;
    }
    text = text_of(row, config);
    if (text == NULL) {
        return;
    }
    if (row->flags & OPTION_SECRET) {
        buf_put_text(out, "(set)");
        return;
    }
    buf_put_text(out, row->type == OPTION_LISTEN ? "unix:" : "");
    buf_put_text(out, text);
}


/* "1 to 64", "0s to 366d", "error, warn, info, debug"; else nothing. */
static void
range_print(const struct option_row *row, FILE *out)
{
    char least[SCALAR_DURATION_TEXT_SIZE + 1];
    char most[SCALAR_DURATION_TEXT_SIZE + 1];

    switch (row->type) {
    case OPTION_INTEGER:
        fprintf(out, "%lld to %lld", (long long)row->min, (long long)row->max);
        return;
    case OPTION_DAYS:
        fprintf(out, "%lldd to %lldd", (long long)row->min,
                (long long)row->max);
        return;
    case OPTION_DURATION:
    case OPTION_SKEW:
        scalar_duration_format(row->min, least);
        scalar_duration_format(row->max, most);
        fprintf(out, "%s to %s", least, most);
        return;
    case OPTION_WORD:
        for (size_t i = 0; row->words[i] != NULL; i++) {
            fprintf(out, "%s%s", i == 0 ? "" : ", ", row->words[i]);
        }
        return;
    default: fputs("-", out); return;
    }
}

static void
row_print_text(const struct option_row *row, FILE *out)
{
    fprintf(out, "%s\n    type: %s\n    default: %s\n    range: ", row->name,
            type_names[row->type],
            row->fallback != NULL ? row->fallback : "none");
    range_print(row, out);
    fprintf(out, "\n    applied: %s\n    %s\n",
            row->flags & OPTION_RELOAD ? "on reload" : "at start", row->help);
}

static void
row_print_markdown(const struct option_row *row, FILE *out)
{
    fprintf(out, "### `%s`\n\n%s\n\n", row->name, row->help);
    fprintf(out, "| type | default | range | applied |\n"
                 "| --- | --- | --- | --- |\n");
    fprintf(out, "| %s | ", type_names[row->type]);
    if (row->fallback != NULL) {
        fprintf(out, "`%s` | ", row->fallback);
    } else {
        fputs("none | ", out);
    }
    range_print(row, out);
    fprintf(out, " | %s |\n\n",
            row->flags & OPTION_RELOAD ? "on reload" : "at start");
}

static const char markdown_head[] =
    "# Options\n"
    "\n"
    "Every scalar option of meterd, from the table that also parses them;\n"
    "`meterd check --print-options --markdown` prints this page. The rules\n"
    "(`events`, `counters`, `usage`, `meters`, `series`) are described in\n"
    "[configuration.md](configuration.md).\n"
    "\n"
    "A name with a dot is a key inside a section: `limits.queueEvents` is\n"
    "written `limits: { queueEvents: 500000 }`. A duration is an integer\n"
    "and one of `ms`, `s`, `m`, `h`, `d`. \"on reload\" means that SIGHUP\n"
    "applies it; \"at start\" means that it takes a restart.\n"
    "\n";

void
options_print(bool markdown, FILE *out)
{
    size_t count;
    const struct option_row *rows = options_table(&count);

    if (markdown) {
        fputs(markdown_head, out);
    }
    for (size_t i = 0; i < count; i++) {
        if (markdown) {
            row_print_markdown(&rows[i], out);
        } else {
            row_print_text(&rows[i], out);
        }
    }
}
