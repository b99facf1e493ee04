/*
 * replay_job.c - events of a file through the gate, to its end.
 *
 *   replay_input -> [replay_job] -> ingest -> lane -> PostgreSQL
 *                        |              \-> series
 *                        +-> tally, resume file, progress
 *
 *   STARTING -> [ready] -> WORKING: fill, submit, answer, resume file, ...
 *                             |  <-> WAITING, for standard input
 *                             v
 *             [end, signal] SETTLING: series -> ENDED
 *
 * `meterd replay` calls it. One batch at a time is at the gate. After each
 * commit the resume file says how far it has come; a replay that was killed
 * anywhere goes on from there, and what was committed after it counts as
 * duplicate, with no effect. A signal lets the batch at the gate end; a second
 * one does not wait for the series, which are flushed later from the ledger.
 */

#include "cmd/replay.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/metrics.h"
#include "meter_digest.h"
#include "meter_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_SIZE          ((size_t)64 << 10)
#define NAME_SIZE          16 /* bytes of a digest, in hexadecimal */
#define SUM_SEED           0x5245504c4159u
#define TENANT_SEED        1
#define COLUMN_SEED        2
#define READY_MS           20000
#define SETTLE_MS          600000
#define FLUSH_MS           10000 /* after a signal */
#define LOOK_MS            20
#define DOING_SIZE         64
#define REPLAY_RESUME_SIZE 1024   /* as text, with the NUL */
#define ANSWER_MS          120000 /* how long the database may keep one back */

/* The file as it was at the start. */
struct replay_file_mark {
    int64_t size;
    int64_t changed_ns;
    uint8_t head[METER_DIGEST_SIZE]; /* of its first bytes */
};

/* How far a replay has come. */
struct replay_resume {
    struct replay_file_mark file;
    uint64_t options; /* that decide how the file is read */

    /* What was committed to: its incarnation, our writer, its batches. */
    uint64_t db_epoch;
    uint8_t writer[16];
    int64_t batch;

    int64_t offset;    /* everything before this byte is done */
    int64_t line_next; /* that begins there */
    int64_t counts[METER_VERDICT_COUNT];
    int64_t rejects_size;
};

/* stateDir/backfill/NAME.resume */
struct resume_file {
    const char *name; /* of the file that is replayed, for messages */
    bool is_kept;     /* there is a resume file to write */
    bool is_resuming; /* there was one */
    char path[PATH_MAX];
    struct replay_resume resume; /* as it stands now */
};


/* ======== the resume file ==============================================

     edgemeter replay 1
     file SIZE NANOSECONDS DIGEST
     options HASH
     database EPOCH WRITER BATCH
     done OFFSET LINE REJECTS
     counts ACCEPTED DUPLICATES CONFLICTS REJECTED
     sum HASH-OF-ALL-ABOVE

   NAME is drawn from the path of the file that is replayed. What it says is
   always true: it is written, as a whole, only once everything up to its
   offset is committed. Lost or damaged, it costs time and no event: the ids
   of the file make a second run harmless.

   A resume of another file, or of another command line, is refused: to begin
   anew is for you to say. One that speaks of another database, or of more
   than this one has, is not believed: the replay starts over, which costs
   time only. */


/* ---- the file --------------------------------------------------------- */

static bool
replay_file_mark(int file, struct replay_file_mark *out)
{
    static char head[HEAD_SIZE];
    struct stat found;
    size_t size = 0;

    if (fstat(file, &found) != 0) {
        return false;
    }
    while (size < HEAD_SIZE) {
        ssize_t got = pread(file, head + size, HEAD_SIZE - size, (off_t)size);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return false;
        }
        if (got == 0) {
            break;
        }
        size += (size_t)got;
    }
    out->size = found.st_size;
    out->changed_ns =
        found.st_mtim.tv_sec * INT64_C(1000000000) + found.st_mtim.tv_nsec;
    meter_sha256(head, size, out->head);
    return true;
}

static bool
replay_resume_path(const char *directory, const char *path, char out[PATH_MAX])
{
    uint8_t digest[METER_DIGEST_SIZE];
    char name[2 * NAME_SIZE + 1];
    int size;

    meter_sha256(path, strlen(path), digest);
    meter_hex(digest, NAME_SIZE, name);
    size = snprintf(out, PATH_MAX, "%s/%s.resume", directory, name);

    /* Another suffix has to fit, too. */
    return size > 0 && size < PATH_MAX - 8;
}


/* ---- text ------------------------------------------------------------- */

enum resume_kind { RESUME_NUMBER, RESUME_HASH, RESUME_BYTES };

/* The text: what stands before each value, and the value. */
static const struct resume_field {
    const char *before;
    enum resume_kind kind;
    size_t offset;
    size_t size; /* of bytes */
} resume_fields[] = {
#define RESUME_FIELD(kind, member)                         \
    RESUME_##kind, offsetof(struct replay_resume, member), \
        sizeof(((struct replay_resume *)NULL)->member)
    {"edgemeter replay 1\nfile ", RESUME_FIELD(NUMBER, file.size)},
    {" ", RESUME_FIELD(NUMBER, file.changed_ns)},
    {" ", RESUME_FIELD(BYTES, file.head)},
    {"\noptions ", RESUME_FIELD(HASH, options)},
    {"\ndatabase ", RESUME_FIELD(HASH, db_epoch)},
    {" ", RESUME_FIELD(BYTES, writer)},
    {" ", RESUME_FIELD(NUMBER, batch)},
    {"\ndone ", RESUME_FIELD(NUMBER, offset)},
    {" ", RESUME_FIELD(NUMBER, line_next)},
    {" ", RESUME_FIELD(NUMBER, rejects_size)},
    {"\ncounts ", RESUME_FIELD(NUMBER, counts[METER_VERDICT_ACCEPTED])},
    {" ", RESUME_FIELD(NUMBER, counts[METER_VERDICT_DUPLICATE])},
    {" ", RESUME_FIELD(NUMBER, counts[METER_VERDICT_CONFLICT])},
    {" ", RESUME_FIELD(NUMBER, counts[METER_VERDICT_REJECTED])},
#undef RESUME_FIELD
};

#define RESUME_FIELDS (sizeof(resume_fields) / sizeof(resume_fields[0]))

static size_t
replay_resume_format(const struct replay_resume *resume,
                     char out[REPLAY_RESUME_SIZE])
{
    char *at = out;

    for (size_t i = 0; i < RESUME_FIELDS; i++) {
        const struct resume_field *field = &resume_fields[i];
        const void *value = (const char *)resume + field->offset;
        char digits[2 * METER_DIGEST_SIZE + 1];

        switch (field->kind) {
        case RESUME_NUMBER:
            snprintf(digits, sizeof(digits), "%" PRId64,
                     *(const int64_t *)value);
            break;
        case RESUME_HASH:
            snprintf(digits, sizeof(digits), "%016" PRIx64,
                     *(const uint64_t *)value);
            break;
        case RESUME_BYTES: meter_hex(value, field->size, digits); break;
        }
        at += snprintf(at, REPLAY_RESUME_SIZE - (size_t)(at - out), "%s%s",
                       field->before, digits);
    }
    *at++ = '\n';
    at += snprintf(at, REPLAY_RESUME_SIZE - (size_t)(at - out),
                   "sum %016" PRIx64 "\n",
                   meter_hash(out, (size_t)(at - out), SUM_SEED));
    CHECK(at - out < REPLAY_RESUME_SIZE);
    return (size_t)(at - out);
}

/* One value; the text after it. */
static char *
resume_value_read(const struct resume_field *field, char *at, void *out)
{
    if (field->kind == RESUME_NUMBER) {
        *(int64_t *)out = strtoll(at, &at, 10);
    } else if (field->kind == RESUME_HASH) {
        *(uint64_t *)out = strtoull(at, &at, 16);
    } else {
        for (size_t i = 0; i < field->size && at[0] != '\0' && at[1] != '\0';
             i++, at += 2) {
            char pair[3] = {at[0], at[1], '\0'};

            ((uint8_t *)out)[i] = (uint8_t)strtoul(pair, NULL, 16);
        }
    }
    return at;
}

/* Whole is what we would write again to the byte, the sum included. */
static bool
replay_resume_parse(struct meter_str text, struct replay_resume *out)
{
    char copy[REPLAY_RESUME_SIZE];
    char again[REPLAY_RESUME_SIZE];
    char *at = copy;

    *out = (struct replay_resume){.offset = 0};
    if (text.size == 0 || text.size >= sizeof(copy)) {
        return false;
    }
    memcpy(copy, text.data, text.size);
    copy[text.size] = '\0';
    for (size_t i = 0; i < RESUME_FIELDS; i++) {
        const struct resume_field *field = &resume_fields[i];
        size_t size = strlen(field->before);

        if (strncmp(at, field->before, size) != 0) {
            return false;
        }
        at = resume_value_read(field, at + size, (char *)out + field->offset);
    }
    return replay_resume_format(out, again) == text.size &&
           memcmp(again, text.data, text.size) == 0;
}


/* ---- the disk --------------------------------------------------------- */

/* In place of the one before, or not at all. False: errno. */
static bool
replay_resume_write(const char *path, const struct replay_resume *resume)
{
    char text[REPLAY_RESUME_SIZE];
    char new_path[PATH_MAX];
    size_t size = replay_resume_format(resume, text);
    ssize_t done;
    bool is_good;
    int file;

    snprintf(new_path, sizeof(new_path), "%s.new", path);
    file = open(new_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) {
        return false;
    }
    done = write(file, text, size);
    if (done >= 0 && (size_t)done != size) {
        errno = ENOSPC;
    }
    is_good = done == (ssize_t)size && fdatasync(file) == 0;
    close(file);
    CRASH_POINT("replay_in_resume");
    return is_good && rename(new_path, path) == 0;
}

static bool
resume_file_refuse(const struct resume_file *file, const char *why)
{
    fprintf(stderr, "meterd replay: %s: %s\n", file->name, why);
    return false;
}

static bool
resume_file_fail(const struct resume_file *file)
{
    fprintf(stderr, "meterd replay: %s: %s\n", file->path, strerror(errno));
    return false;
}


/* ---- is it ours? ------------------------------------------------------ */

/* What decides how the bytes of the file are read. */
static uint64_t
resume_options_hash(const struct replay_options *options)
{
    uint64_t hash = options->is_csv;

    if (options->tenant != NULL) {
        hash = meter_hash(options->tenant, strlen(options->tenant),
                          hash + TENANT_SEED);
    }
    for (size_t i = 0; i < options->text_count; i++) {
        hash = meter_hash(options->texts[i], strlen(options->texts[i]),
                          hash + COLUMN_SEED);
    }
    return hash;
}

static bool
resume_file_check(const struct resume_file *file,
                  const struct replay_resume *found)
{
    const struct replay_resume *wanted = &file->resume;

    if (memcmp(&found->file, &wanted->file, sizeof(found->file)) != 0) {
        return resume_file_refuse(
            file, "the file has changed since its replay was "
                  "interrupted; --restart begins at its first line");
    }
    if (found->options != wanted->options) {
        return resume_file_refuse(
            file, "the interrupted replay had another --format, "
                  "--tenant or --text; --restart begins at the "
                  "first line");
    }
    return true;
}

/* Goes on where the resume file says, if there is one. */
static bool
resume_file_find(struct resume_file *file)
{
    int resume = open(file->path, O_RDONLY | O_CLOEXEC);
    char text[REPLAY_RESUME_SIZE];
    struct replay_resume found;
    ssize_t size;

    if (resume < 0) {
        return errno == ENOENT || resume_file_fail(file);
    }
    size = read(resume, text, sizeof(text));
    close(resume);
    if (size < 0) {
        return resume_file_fail(file);
    }
    if (!replay_resume_parse((struct meter_str){text, (size_t)size}, &found)) {
        fprintf(stderr, "meterd replay: %s is damaged; starting over\n",
                file->path);
        return true;
    }
    if (!resume_file_check(file, &found)) {
        return false;
    }
    file->resume = found;
    file->is_resuming = true;
    return true;
}

static bool
resume_file_open(struct resume_file *file, const struct replay_input *input,
                 const char *directory)
{
    const struct replay_options *options = input->options;
    char path[PATH_MAX];

    *file = (struct resume_file){
        .name = input->name,
        .is_kept = input->is_regular && strcmp(options->path, "-") != 0,
        .resume = {.line_next = 1, .options = resume_options_hash(options)},
    };
    if (!file->is_kept) {
        return true;
    }
    if (realpath(options->path, path) == NULL ||
        !replay_file_mark(input->file, &file->resume.file)) {
        return resume_file_refuse(file, strerror(errno));
    }
    if (!replay_resume_path(directory, path, file->path)) {
        return resume_file_refuse(file, "the path of stateDir is too long");
    }
    return options->is_restart || resume_file_find(file);
}


/* ---- is it true? ------------------------------------------------------ */

static void
resume_file_restart(struct resume_file *file)
{
    struct replay_resume *resume = &file->resume;

    file->is_resuming = false;
    resume->offset = 0;
    resume->line_next = 1;
    resume->rejects_size = 0;
    memset(resume->counts, 0, sizeof(resume->counts));
    if (file->is_kept) {
        unlink(file->path);
    }
}

static void
resume_file_settle(struct resume_file *file, uint64_t db_epoch,
                   const uint8_t writer[16], int64_t batch)
{
    struct replay_resume *resume = &file->resume;

    if (!file->is_resuming) {
        resume_file_restart(file);
    } else if (resume->db_epoch != db_epoch || resume->batch > batch ||
               memcmp(resume->writer, writer, sizeof(resume->writer)) != 0) {
        fputs("meterd replay: the interrupted replay went to another database, "
              "or this one went back; starting over\n",
              stderr);
        resume_file_restart(file);
    }
    resume->db_epoch = db_epoch;
    memcpy(resume->writer, writer, sizeof(resume->writer));
}


/* ---- on the way ------------------------------------------------------- */

static bool
resume_file_save(const struct resume_file *file)
{
    if (!file->is_kept) {
        return true;
    }
    if (!replay_resume_write(file->path, &file->resume)) {
        return resume_file_fail(file);
    }
    CRASH_POINT("replay_after_resume");
    return true;
}

static void
resume_file_end(const struct resume_file *file)
{
    if (file->is_kept && unlink(file->path) != 0 && errno != ENOENT) {
        (void)resume_file_fail(file);
    }
}


/* ======== the job ====================================================== */

enum job_state {
    JOB_STARTING, /* for lane and partitions */
    JOB_WORKING,  /* for an answer, or the next turn */
    JOB_WAITING,  /* for something to read */
    JOB_SETTLING, /* for the series */
    JOB_ENDED
};

enum { SIGNAL_INT, SIGNAL_TERM, SIGNAL_COUNT };

struct replay_job {
    const struct replay_options *options;
    struct replay_input input;
    struct replay_tally tally;
    enum job_state state;
    bool failed;
    bool is_interrupted;

    struct resume_file file;

    struct progress progress;
    char doing[DOING_SIZE];
    int64_t events; /* of this run */
    uint64_t started_ms;
    uint64_t settle_by_ms;

    uv_loop_t loop;
    uv_timer_t turn; /* the next step */
    uv_timer_t limit;
    uv_poll_t readable;
    bool has_readable;
    uv_signal_t signals[SIGNAL_COUNT];
    struct replay_ingest own;
};

static void job_turn_cb(uv_timer_t *timer);
static void job_settle_cb(uv_timer_t *timer);


/* ---- ends ------------------------------------------------------------- */

static void
job_fail(struct replay_job *job, const char *why)
{
    if (job->state == JOB_ENDED) {
        return;
    }
    progress_end(&job->progress);
    fprintf(stderr, "meterd replay: %s\n", why);
    job->failed = true;
    job->state = JOB_ENDED;
    uv_stop(&job->loop);
}

/* Already told. */
static void
job_give_up(struct replay_job *job)
{
    job->failed = true;
    job->state = JOB_ENDED;
    uv_stop(&job->loop);
}

/* All is committed that will be: the series follow. */
static void
job_settle(struct replay_job *job)
{
    job->state = JOB_SETTLING;
    job->settle_by_ms =
        clock_mono_ms() + (job->is_interrupted ? FLUSH_MS : SETTLE_MS);
    uv_timer_start(&job->turn, job_settle_cb, 0, LOOK_MS);
}

static void
job_settle_cb(uv_timer_t *timer)
{
    struct replay_job *job = timer->data;
    struct series_engine *series = job->own.series;
    bool is_done;

    if (job->is_interrupted) {
        series_engine_drain(series);
        is_done = series_engine_is_idle(series);
    } else {
        series_engine_settle(series);
        is_done = series_engine_is_settled(series);
    }
    if (!is_done && clock_mono_ms() >= job->settle_by_ms) {
        progress_end(&job->progress);
        fputs("meterd replay: series are not complete yet; a running meterd "
              "completes them\n",
              stderr);
        is_done = true;
    }
    if (is_done) {
        job->state = JOB_ENDED;
        uv_stop(&job->loop);
    }
    progress_add(&job->progress, 0);
}


/* ---- batches ---------------------------------------------------------- */

static void
job_doing_set(struct replay_job *job)
{
    uint64_t gone_ms = clock_mono_ms() - job->started_ms;

    snprintf(job->doing, sizeof(job->doing), "%lld events, %.0f/s",
             (long long)job->events,
             gone_ms == 0 ? 0.0 : (double)job->events * 1000 / (double)gone_ms);
}

/* So many transactions of this writer are committed, or more. */
static int64_t
job_batch(const struct replay_job *job)
{
    return job->own.batch + metrics.edgemeter_batches_committed_total -
           job->own.batches_before;
}

/* Everything up to here is committed. False: told. */
static bool
job_resume_save(struct replay_job *job)
{
    struct replay_resume *resume = &job->file.resume;

    resume->offset = job->input.batch.offset_next;
    resume->line_next = job->input.batch.line_next;
    resume->batch = job_batch(job);
    resume->rejects_size = job->tally.rejects_size;
    memcpy(resume->counts, job->tally.counts, sizeof(resume->counts));
    return resume_file_save(&job->file);
}

/* All lines of the batch have their verdicts. */
static void
job_batch_done(struct replay_job *job)
{
    int64_t before = job->file.resume.offset;

    CRASH_POINT("replay_after_batch");
    if (!replay_tally_flush(&job->tally) || !job_resume_save(job)) {
        job_give_up(job);
        return;
    }
    job->events += (int64_t)job->input.batch.count;
    job_doing_set(job);
    progress_add(&job->progress, job->file.resume.offset - before);
}

static void
job_answer_cb(void *asker, const struct ingest_answer *answer)
{
    struct replay_job *job = asker;
    struct replay_batch *batch = &job->input.batch;

    if (job->state == JOB_ENDED) {
        return;
    }
    if (answer->outcome != INGEST_DONE && answer->outcome != INGEST_BAD) {
        job_fail(job, "no answer from the database, or no memory; run it "
                      "again to go on");
        return;
    }
    replay_batch_answered(batch, answer, &job->tally);
    if (batch->from == batch->count) {
        job_batch_done(job);
    }
    if (job->state == JOB_WORKING) {
        uv_timer_start(&job->turn, job_turn_cb, 0, 0);
    }
}

/* True: the batch has something for the gate, which has it now. */
static bool
job_batch_submit(struct replay_job *job)
{
    const struct ingest_input input = replay_ingest_input(job->options);
    struct buf body;

    buf_init(&body, METER_BODY_SIZE_MAX);
    if (!replay_batch_next(&job->input.batch, &body)) {
        return false;
    }
    if (body.failed) {
        job_fail(job, "out of memory");
        return true;
    }
    ingest_submit(job->own.ingest, &input, &body, job_answer_cb, job);
    return true;
}

static void
job_readable_cb(uv_poll_t *poll, int status, int events)
{
    struct replay_job *job = poll->data;

    (void)status; /* whatever it is, read tells */
    (void)events;
    uv_poll_stop(poll);
    if (job->state == JOB_WAITING) {
        job->state = JOB_WORKING;
        uv_timer_start(&job->turn, job_turn_cb, 0, 0);
    }
}

static void
job_batch_read(struct replay_job *job)
{
    enum replay_next next = replay_input_fill(&job->input);

    if (next == REPLAY_FAILED) {
        job_give_up(job);
    } else if (job->input.batch.count > 0) {
        (void)job_batch_submit(job);
    } else if (next == REPLAY_END) {
        job_settle(job);
    } else {
        CHECK(next == REPLAY_AGAIN && job->has_readable);
        job->state = JOB_WAITING;
        uv_poll_start(&job->readable, UV_READABLE, job_readable_cb);
    }
}

/* A batch that is at the gate in pieces goes there whole, signal or not. */
static void
job_turn_cb(uv_timer_t *timer)
{
    struct replay_job *job = timer->data;

    if (job_batch_submit(job)) {
        return;
    }
    if (job->is_interrupted) {
        job_settle(job);
    } else {
        job_batch_read(job);
    }
}


/* ---- the loop --------------------------------------------------------- */

/* At the first line, or where the interrupted replay was. False: told. */
static bool
job_resume_take(struct replay_job *job)
{
    struct resume_file *file = &job->file;
    const struct replay_resume *resume = &file->resume;

    resume_file_settle(file, job->own.db_epoch, lane_writer(job->own.lane),
                       job->own.batch);
    memcpy(job->tally.counts, resume->counts, sizeof(resume->counts));
    if (!replay_tally_open(&job->tally, resume->rejects_size,
                           job->input.file)) {
        return false;
    }
    if (!file->is_resuming) {
        return true;
    }
    fprintf(stderr, "meterd replay: going on at line %lld, byte %lld of %lld\n",
            (long long)resume->line_next, (long long)resume->offset,
            (long long)job->input.size);
    return replay_input_move(&job->input, resume->offset, resume->line_next);
}

static void
job_ready_cb(void *owner)
{
    struct replay_job *job = owner;

    if (job->state != JOB_STARTING) {
        return;
    }
    uv_timer_stop(&job->limit);
    if (!job_resume_take(job)) {
        job_give_up(job);
        return;
    }
    job->state = JOB_WORKING;
    job->started_ms = clock_mono_ms();
    job_doing_set(job);
    progress_start(&job->progress, job->doing, NULL, job->input.size);
    job->progress.done = job->file.resume.offset;
    job->progress.skipped = job->file.resume.offset;
    uv_timer_start(&job->turn, job_turn_cb, 0, 0);
}

static void
job_failed_cb(void *owner, const char *why)
{
    job_fail(owner, why);
}

static void
job_limit_cb(uv_timer_t *timer)
{
    job_fail(timer->data, "the database cannot be reached");
}

static void
job_signal_cb(uv_signal_t *handle, int number)
{
    struct replay_job *job = handle->data;
    bool is_second = job->is_interrupted;

    (void)number;
    job->is_interrupted = true;
    if (job->state == JOB_STARTING || is_second) {
        job->state = JOB_ENDED;
        uv_stop(&job->loop);
    } else if (job->state == JOB_WAITING) {
        uv_poll_stop(&job->readable);
        job_settle(job);
    } else if (job->state == JOB_SETTLING) {
        job_settle(job);
    }
}

static void
job_loop_open(struct replay_job *job)
{
    static const int numbers[SIGNAL_COUNT] = {SIGINT, SIGTERM};

    CHECK(uv_loop_init(&job->loop) == 0);
    CHECK(uv_timer_init(&job->loop, &job->turn) == 0);
    CHECK(uv_timer_init(&job->loop, &job->limit) == 0);
    job->turn.data = job;
    job->limit.data = job;
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(uv_signal_init(&job->loop, &job->signals[i]) == 0);
        job->signals[i].data = job;
        CHECK(uv_signal_start(&job->signals[i], job_signal_cb, numbers[i]) ==
              0);
    }
    job->has_readable =
        !job->input.is_regular &&
        uv_poll_init(&job->loop, &job->readable, job->input.file) == 0;
    job->readable.data = job;
}

static void
job_loop_close(struct replay_job *job)
{
    job->state = JOB_ENDED;
    replay_ingest_stop(&job->own);
    uv_close((uv_handle_t *)&job->turn, NULL);
    uv_close((uv_handle_t *)&job->limit, NULL);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        uv_close((uv_handle_t *)&job->signals[i], NULL);
    }
    if (job->has_readable) {
        uv_close((uv_handle_t *)&job->readable, NULL);
    }
    while (uv_run(&job->loop, UV_RUN_DEFAULT) != 0) {
        continue;
    }
    CHECK(uv_loop_close(&job->loop) == 0);
}

static void
job_loop_run(struct replay_job *job)
{
    job_loop_open(job);
    if (!replay_ingest_start(&job->own, &job->loop)) {
        job_fail(job, "cannot start");
    } else {
        uv_timer_start(&job->limit, job_limit_cb, READY_MS, 0);
        uv_run(&job->loop, UV_RUN_DEFAULT);
    }
    progress_end(&job->progress);
    job_loop_close(job);
}


/* ---- all of it -------------------------------------------------------- */

/* False: told. */
static bool
job_open(struct replay_job *job)
{
    static const struct replay_ingest_options own = {
        .command = "replay",
        .name = "backfill",
        .answer_timeout_ms = ANSWER_MS,
        .has_series = true,
        .on_ready = job_ready_cb,
        .on_failed = job_failed_cb,
    };

    return replay_input_open(&job->input, job->options) &&
           replay_ingest_lock(&job->own, &own, job->options->config, job) &&
           resume_file_open(&job->file, &job->input, job->own.directory);
}

/* How to go on after an end that was none. */
static void
job_unfinished_tell(const struct replay_job *job)
{
    if (job->file.is_kept) {
        fprintf(stderr,
                "meterd replay: %s before line %lld, byte %lld of %lld; the "
                "same command goes on there\n",
                job->is_interrupted ? "interrupted" : "ended",
                (long long)job->file.resume.line_next,
                (long long)job->file.resume.offset, (long long)job->input.size);
    } else {
        fprintf(stderr,
                "meterd replay: %s before line %lld; sending everything "
                "again does no harm\n",
                job->is_interrupted ? "interrupted" : "ended",
                (long long)job->file.resume.line_next);
    }
}

static int
job_end(struct replay_job *job)
{
    replay_tally_tell(&job->tally, "replayed");
    if (job->failed || job->is_interrupted) {
        job_unfinished_tell(job);
        return REPLAY_EXIT_FAILED;
    }
    CRASH_POINT("replay_before_end");
    resume_file_end(&job->file);
    return replay_tally_is_clean(&job->tally) ? REPLAY_EXIT_CLEAN
                                              : REPLAY_EXIT_SOME;
}

int
replay_job_run(const struct replay_options *options)
{
    struct replay_job *job = memory_alloc(sizeof(*job));
    int status = REPLAY_EXIT_FAILED;

    job->options = options;
    job->own.lock = -1;
    replay_tally_init(&job->tally, options->rejects);
    job->tally.progress = &job->progress;
    if (job_open(job)) {
        job_loop_run(job);
        status = job_end(job);
    }
    replay_ingest_unlock(&job->own);
    replay_tally_fini(&job->tally);
    replay_input_close(&job->input);
    free(job);
    return status;
}
