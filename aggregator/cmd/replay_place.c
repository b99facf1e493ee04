/*
 * replay_place.c - see replay_place.h.
 */

#include "cmd/replay_place.h"

#include "base/crash_point.h"
#include "meter_hash.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define TENANT_SEED 1
#define COLUMN_SEED 2

static bool
refuse(const struct replay_place *place, const char *why)
{
    fprintf(stderr, "meterd replay: %s: %s\n", place->name, why);
    return false;
}

static bool
fail(const struct replay_place *place)
{
    fprintf(stderr, "meterd replay: %s: %s\n", place->path, strerror(errno));
    return false;
}


/* ---- is it ours? ------------------------------------------------------ */

/* What decides how the bytes of the file are read. */
static uint64_t
options_hash(const struct replay_wish *wish)
{
    uint64_t hash = wish->is_csv;

    if (wish->tenant != NULL) {
        hash =
            meter_hash(wish->tenant, strlen(wish->tenant), hash + TENANT_SEED);
    }
    for (size_t i = 0; i < wish->text_count; i++) {
        hash = meter_hash(wish->texts[i], strlen(wish->texts[i]),
                          hash + COLUMN_SEED);
    }
    return hash;
}

static bool
resume_check(const struct replay_place *place,
             const struct replay_resume *found)
{
    const struct replay_resume *wanted = &place->resume;

    if (memcmp(&found->file, &wanted->file, sizeof(found->file)) != 0) {
        return refuse(place, "the file has changed since its replay was "
                             "interrupted; --restart begins at its first line");
    }
    if (found->options != wanted->options) {
        return refuse(place, "the interrupted replay had another --format, "
                             "--tenant or --text; --restart begins at the "
                             "first line");
    }
    return true;
}

static bool
resume_find(struct replay_place *place)
{
    struct replay_resume found;

    switch (replay_resume_read(place->path, &found)) {
    case REPLAY_RESUME_NONE: return true;
    case REPLAY_RESUME_FAILED: return fail(place);
    case REPLAY_RESUME_DAMAGED:
        fprintf(stderr, "meterd replay: %s is damaged; starting over\n",
                place->path);
        return true;
    case REPLAY_RESUME_FOUND: break;
    }
    if (!resume_check(place, &found)) {
        return false;
    }
    place->resume = found;
    place->is_resuming = true;
    return true;
}

bool
replay_place_open(struct replay_place *place, const struct replay_input *input,
                  const char *directory)
{
    const struct replay_wish *wish = input->wish;
    char path[PATH_MAX];

    *place = (struct replay_place){
        .name = input->name,
        .is_kept = input->is_regular && strcmp(wish->path, "-") != 0,
        .resume = {.line_next = 1, .options = options_hash(wish)},
    };
    if (!place->is_kept) {
        return true;
    }
    if (realpath(wish->path, path) == NULL ||
        !replay_file_mark(input->file, &place->resume.file)) {
        return refuse(place, strerror(errno));
    }
    if (!replay_resume_path(directory, path, place->path)) {
        return refuse(place, "the path of stateDir is too long");
    }
    return wish->is_restart || resume_find(place);
}


/* ---- is it true? ------------------------------------------------------ */

static void
start_over(struct replay_place *place)
{
    struct replay_resume *resume = &place->resume;

    place->is_resuming = false;
    resume->offset = 0;
    resume->line_next = 1;
    resume->rejects_size = 0;
    memset(resume->counts, 0, sizeof(resume->counts));
    if (place->is_kept) {
        unlink(place->path);
    }
}

void
replay_place_settle(struct replay_place *place, uint64_t db_epoch,
                    const uint8_t writer[16], int64_t batch)
{
    struct replay_resume *resume = &place->resume;

    if (!place->is_resuming) {
        start_over(place);
    } else if (resume->db_epoch != db_epoch || resume->batch > batch ||
               memcmp(resume->writer, writer, sizeof(resume->writer)) != 0) {
        fputs("meterd replay: the interrupted replay went to another database, "
              "or this one went back; starting over\n",
              stderr);
        start_over(place);
    }
    resume->db_epoch = db_epoch;
    memcpy(resume->writer, writer, sizeof(resume->writer));
}


/* ---- on the way ------------------------------------------------------- */

bool
replay_place_save(const struct replay_place *place)
{
    if (!place->is_kept) {
        return true;
    }
    if (!replay_resume_write(place->path, &place->resume)) {
        return fail(place);
    }
    CRASH_POINT("replay_after_resume");
    return true;
}

void
replay_place_end(const struct replay_place *place)
{
    if (place->is_kept && unlink(place->path) != 0 && errno != ENOENT) {
        (void)fail(place);
    }
}
