/*
 * config_error.c - bounded list of configuration errors, see the header.
 */

#include "config/config_error.h"

#include <stdarg.h>

static void
text_make_printable(char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char byte = (unsigned char)*text;

        if (byte < 0x20 || byte == 0x7f) {
            *text = '?';
        }
    }
}

/* A text cut in the middle of a UTF-8 character loses that character. */
static void
text_trim_utf8(char *text, size_t size)
{
    size_t at = size;

    while (at > 0 && ((unsigned char)text[at - 1] & 0xc0) == 0x80) {
        at--;
    }
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0) {
        text[at - 1] = '\0';
    }
}

void
config_errors_clear(struct config_errors *errors)
{
    errors->count = 0;
    errors->suppressed = 0;
}

void
config_errors_add(struct config_errors *errors, const char *file, unsigned line,
                  unsigned column, const char *format, ...)
{
    struct config_error *error;
    size_t file_size = strlen(file);
    va_list arguments;
    int wanted;

    if (errors->count == CONFIG_ERRORS_MAX) {
        errors->suppressed++;
        return;
    }
    error = &errors->items[errors->count++];
    if (file_size > CONFIG_ERROR_FILE_SIZE_MAX) {
        file += file_size - CONFIG_ERROR_FILE_SIZE_MAX;
    }
    snprintf(error->file, sizeof(error->file), "%s", file);
    error->line = line;
    error->column = column;

    va_start(arguments, format);
    wanted = vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
    if (wanted < 0) {
        error->text[0] = '\0';
    } else if ((size_t)wanted > CONFIG_ERROR_TEXT_SIZE_MAX) {
        text_trim_utf8(error->text, CONFIG_ERROR_TEXT_SIZE_MAX);
    }
    text_make_printable(error->file);
    text_make_printable(error->text);
}

static bool
error_is_after(const struct config_error *a, const struct config_error *b)
{
    if (a->line != b->line) {
        return a->line > b->line;
    }
    return a->column > b->column;
}

/* Insertion, stable: at most CONFIG_ERRORS_MAX items. */
static void
errors_sort_run(struct config_error *items, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct config_error moved = items[i];
        size_t at = i;

        while (at > 0 && error_is_after(&items[at - 1], &moved)) {
            items[at] = items[at - 1];
            at--;
        }
        items[at] = moved;
    }
}

/* Moves the errors of the file at `from` together, keeping their order. */
static size_t
errors_gather_file(struct config_errors *errors, size_t from)
{
    size_t end = from + 1;

    for (size_t i = from + 1; i < errors->count; i++) {
        struct config_error moved = errors->items[i];

        if (strcmp(moved.file, errors->items[from].file) != 0) {
            continue;
        }
        memmove(&errors->items[end + 1], &errors->items[end],
                (i - end) * sizeof(moved));
        errors->items[end++] = moved;
    }
    return end;
}

void
config_errors_sort(struct config_errors *errors)
{
    size_t from = 0;

    while (from < errors->count) {
        size_t end = errors_gather_file(errors, from);

        errors_sort_run(&errors->items[from], end - from);
        from = end;
    }
}

void
config_errors_print(const struct config_errors *errors, FILE *out)
{
    for (size_t i = 0; i < errors->count; i++) {
        const struct config_error *error = &errors->items[i];

        if (error->file[0] != '\0') {
            fprintf(out, "%s:", error->file);
        }
        if (error->line != 0) {
            fprintf(out, "%u:%u:", error->line, error->column);
        }
        fprintf(out, "%s%s\n", error->file[0] != '\0' ? " " : "", error->text);
    }
    if (errors->suppressed > 0) {
        fprintf(out, "and %zu more\n", errors->suppressed);
    }
}
