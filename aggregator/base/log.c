/*
 * log.c - JSON log lines, and how often one is worth a line.
 *
 *   everything -> [log] -> stderr, or the file of log.path
 *
 * A line is built whole and written with one write(2), so lines of several
 * processes on one file do not mix. A file takes the place of stderr, in one
 * step: no line falls between two files, and what libraries and children
 * have to say comes along. struct log_limit bounds lines a second; struct
 * log_repeat keeps a lasting condition to a line a minute.
 */

#include "base/log.h"

#include "base/clock.h"
#include "base/json_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define LOG_LINE_SIZE_MAX 16384
#define LOG_FILE_MODE     0640

static enum log_level log_level_now = LOG_INFO;

static const char *log_person; /* NULL: JSON */

static const char *const log_level_names[] = {
    [LOG_ERROR] = "error",
    [LOG_WARN] = "warn",
    [LOG_INFO] = "info",
    [LOG_DEBUG] = "debug",
};

void
log_level_set(enum log_level level)
{
    log_level_now = level;
}

void
log_for_person(const char *name)
{
    log_person = name;
}

bool
log_file_open(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY,
                  LOG_FILE_MODE);
    bool ok;
    int reason;

    if (fd < 0) {
        return false;
    }
    ok = dup2(fd, STDERR_FILENO) == STDERR_FILENO;
    reason = errno;
    close(fd);
    errno = reason;
    return ok;
}

bool
log_enabled(enum log_level level)
{
    return level <= log_level_now;
}

static void
log_put_field(struct json_writer *json, const struct log_field *field)
{
    struct meter_str value = field->str;

    json_key(json, field->name);
    switch (field->kind) {
    case LOG_KIND_STR:
        if (value.size > LOG_VALUE_SIZE_MAX) {
            value.size = LOG_VALUE_SIZE_MAX;
        }
        json_string(json, value);
        break;
    case LOG_KIND_INT: json_int(json, field->number); break;
    case LOG_KIND_BOOL: json_bool(json, field->number != 0); break;
    }
}

/* Bytes that could steer a terminal become '?'; C1 controls are c2 80..9f. */
static void
log_put_plain(struct buf *line, struct meter_str text)
{
    while (text.size > 0 && text.data[text.size - 1] == '\n') {
        text.size--;
    }
    for (size_t i = 0; i < text.size; i++) {
        unsigned char byte = (unsigned char)text.data[i];

        if (byte == '\n') {
            buf_put_text(line, "\n  ");
        } else {
            bool is_c1 = i > 0 && (unsigned char)text.data[i - 1] == 0xc2 &&
                         byte >= 0x80 && byte < 0xa0;
            bool steers =
                (byte < 0x20 && byte != '\t') || byte == 0x7f || is_c1;

            buf_put_byte(line, steers ? '?' : byte);
        }
    }
}

static void
log_build_plain(struct buf *line, const char *message,
                const struct log_field *fields, size_t count)
{
    buf_printf(line, "%s: %s", log_person, message);
    for (size_t i = 0; i < count; i++) {
        buf_printf(line, "\n  %s: ", fields[i].name);
        switch (fields[i].kind) {
        case LOG_KIND_STR: log_put_plain(line, fields[i].str); break;
        case LOG_KIND_INT: buf_put_int(line, fields[i].number); break;
        case LOG_KIND_BOOL:
            buf_put_text(line, fields[i].number != 0 ? "yes" : "no");
            break;
        }
    }
    buf_put_byte(line, '\n');
}

static void
log_build(struct buf *line, enum log_level level, const char *subsystem,
          const char *message, const struct log_field *fields, size_t count)
{
    struct json_writer json;

    if (log_person != NULL) {
        log_build_plain(line, message, fields, count);
        return;
    }
    json_writer_init(&json, line);
    json_object_begin(&json);
    json_key(&json, "time");
    json_time(&json, clock_wall_us());
    json_key(&json, "level");
    json_text(&json, log_level_names[level]);
    json_key(&json, "subsystem");
    json_text(&json, subsystem);
    json_key(&json, "message");
    json_text(&json, message);
    for (size_t i = 0; i < count; i++) {
        log_put_field(&json, &fields[i]);
    }
    json_object_end(&json);
    buf_put_byte(line, '\n');
}

void
log_write(enum log_level level, const char *subsystem, const char *message,
          const struct log_field *fields, size_t count)
{
    struct buf line;
    ssize_t written;

    buf_init(&line, LOG_LINE_SIZE_MAX);
    log_build(&line, level, subsystem, message, fields, count);
    if (line.failed) { /* too long: better said without its fields */
        buf_reset(&line);
        log_build(&line, level, subsystem, message, NULL, 0);
    }
    if (!line.failed) {
        written = write(STDERR_FILENO, line.data, line.size);
        (void)written; /* there is nowhere to report a lost log line */
    }
    buf_fini(&line);
}


/* ---- so many lines a second ------------------------------------------ */

int64_t
log_limit_turn(struct log_limit *limit, uint64_t now_ms)
{
    int64_t suppressed = limit->suppressed;

    if (now_ms / 1000 == limit->second) {
        return 0;
    }
    *limit = (struct log_limit){.second = now_ms / 1000};
    return suppressed;
}

bool
log_limit_take(struct log_limit *limit, int64_t lines_max)
{
    if (limit->lines >= lines_max) {
        limit->suppressed++;
        return false;
    }
    limit->lines++;
    return true;
}


/* ---- a lasting condition --------------------------------------------- */

bool
log_repeat_is_due(struct log_repeat *repeat, const char *reason,
                  uint64_t now_ms)
{
    const char *text = reason[0] == '\0' ? "no reason is known" : reason;
    size_t place = LOG_REPEAT_MAX;

    for (size_t i = 0; i < LOG_REPEAT_MAX; i++) {
        const char *known = repeat->of[i].reason;
        bool is_old = known[0] == '\0' ||
                      now_ms - repeat->of[i].at_ms >= LOG_REPEAT_EVERY_MS;

        if (!is_old && strncmp(known, text, LOG_REPEAT_SIZE_MAX - 1) == 0) {
            return false;
        }
        place = is_old ? i : place;
    }
    if (place == LOG_REPEAT_MAX) {
        return false;
    }
    snprintf(repeat->of[place].reason, LOG_REPEAT_SIZE_MAX, "%s", text);
    repeat->of[place].at_ms = now_ms;
    return true;
}


void
log_repeat_forget(struct log_repeat *repeat)
{
    memset(repeat, 0, sizeof(*repeat));
}
