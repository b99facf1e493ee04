/*
 * replay_input.c - see replay_input.h.
 *
 * A pipe or a terminal is only read when something is there: the loop that
 * has to keep the writer alive never waits for it.
 */

#include "cmd/replay_input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BLOCK ((size_t)16 << 10)
#define ARENA_MAX   ((size_t)1 << 20)

static bool
fail(const struct replay_input *input, const char *why)
{
    fprintf(stderr, "meterd replay: %s: %s\n", input->name, why);
    return false;
}

static ssize_t
read_cb(void *asker, char *out, size_t size)
{
    const struct replay_input *input = asker;
    struct pollfd wanted = {.fd = input->file, .events = POLLIN};
    ssize_t got;

    if (!input->is_regular && poll(&wanted, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    do {
        got = read(input->file, out, size);
    } while (got < 0 && errno == EINTR);
    return got;
}

void
replay_input_wait(const struct replay_input *input)
{
    struct pollfd wanted = {.fd = input->file, .events = POLLIN};

    (void)poll(&wanted, 1, -1);
}

static bool
file_open(struct replay_input *input)
{
    struct stat found;

    if (strcmp(input->wish->path, "-") == 0) {
        input->name = "standard input";
        input->file = STDIN_FILENO;
    } else {
        input->file = open(input->wish->path, O_RDONLY | O_CLOEXEC);
    }
    if (input->file < 0 || fstat(input->file, &found) != 0) {
        return fail(input, strerror(errno));
    }
    if (S_ISDIR(found.st_mode)) {
        return fail(input, strerror(EISDIR));
    }
    input->is_regular = S_ISREG(found.st_mode);
    input->size = input->is_regular ? found.st_size : 0;
    return true;
}

/* The first record of CSV. */
static bool
header_read(struct replay_input *input)
{
    const struct replay_wish *wish = input->wish;
    struct replay_record record;
    const char *error = NULL;
    enum replay_next next;

    while ((next = replay_source_next(input->source, &record)) ==
           REPLAY_AGAIN) {
        replay_input_wait(input);
    }
    if (next == REPLAY_FAILED) {
        return fail(input, strerror(errno));
    }
    if (next == REPLAY_END) {
        return fail(input, "there is no header line");
    }
    if (record.error != NULL) {
        return fail(input, record.error);
    }
    input->csv = replay_csv_create(record.text, wish->texts, wish->text_count,
                                   &input->arena, &error);
    return input->csv != NULL || fail(input, error);
}

/* No more than the gate takes at once. */
static size_t
batch_count_max(const struct config *config)
{
    int64_t most = METER_BATCH_EVENTS_MAX;

    most =
        config->limits.batch_events < most ? config->limits.batch_events : most;
    most =
        config->limits.queue_events < most ? config->limits.queue_events : most;
    return (size_t)most;
}

bool
replay_input_open(struct replay_input *input, const struct replay_wish *wish)
{
    *input =
        (struct replay_input){.wish = wish, .name = wish->path, .file = -1};
    arena_init(&input->arena, ARENA_BLOCK, ARENA_MAX);
    if (!replay_batch_init(&input->batch, batch_count_max(wish->config))) {
        return fail(input, "out of memory");
    }
    if (!file_open(input)) {
        return false;
    }
    input->source = replay_source_create(wish->is_csv, read_cb, input);
    if (input->source == NULL) {
        return fail(input, "out of memory");
    }
    return !wish->is_csv || header_read(input);
}

void
replay_input_close(struct replay_input *input)
{
    replay_csv_destroy(input->csv);
    replay_source_destroy(input->source);
    replay_batch_fini(&input->batch);
    arena_fini(&input->arena);
    if (input->file > STDIN_FILENO) {
        close(input->file);
    }
}

bool
replay_input_move(struct replay_input *input, int64_t offset, int64_t line)
{
    if (lseek(input->file, offset, SEEK_SET) != offset) {
        return fail(input, strerror(errno));
    }
    replay_source_moved(input->source, offset, line);
    return true;
}

enum replay_next
replay_input_fill(struct replay_input *input)
{
    enum replay_next next =
        replay_batch_fill(&input->batch, input->source, input->csv);

    if (next == REPLAY_FAILED) {
        (void)fail(input, strerror(errno));
    }
    return next;
}
