/*
 * retention_run.c - see retention_run.h.
 */

#include "maintain/retention_run.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NAME          "retention"
#define PAUSE_MS      200
#define TOLD_AFTER_MS 2000
#define DATE_SIZE     11 /* with the NUL */
#define DAYS_SIZE     32
#define REASON_SIZE   160
#define NS_PER_MS     1000000

/* One table, while it is looked at. */
struct table {
    struct retention_run *run;
    enum partition_parent parent;
    int32_t stored; /* floor */
    int32_t floor;  /* to be */
    int32_t *days;  /* first ones of what goes */
    size_t count;
    int64_t size; /* bytes of what went, or would go */
    size_t dropped;
    char reason[REASON_SIZE]; /* why it was left; "": it was not */
    int kept;                 /* days in force before */
    bool is_waiting;          /* for someone who confirms fewer days */
    size_t waiting_count;     /* partitions that would go then, besides */
    int64_t waiting_size;     /* their bytes */
};

enum table_end { TABLE_DONE, TABLE_LEFT, TABLE_FAILED };


/* ---- what is said ----------------------------------------------------- */

static const char *
date_text(int32_t day, char out[DATE_SIZE])
{
    char text[METER_TIME_TEXT_SIZE + 1];

    meter_time_format((int64_t)day * METER_TIME_DAY, text);
    snprintf(out, DATE_SIZE, "%.10s", text);
    return out;
}

/* "1 partition (12.3 MiB)". */
static void
say_partitions(size_t count, int64_t size)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double value = (double)size / 1024;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    printf("%zu partition%s (%.1f %s)", count, count == 1 ? "" : "s", value,
           units[unit]);
}

static void
say_person(const struct table *table)
{
    bool is_dry = table->run->is_dry;
    char floor[DATE_SIZE];
    char stored[DATE_SIZE];

    progress_end(&table->run->progress);
    printf("%-16s ", partition_parent_name(table->parent));
    if (table->floor == RETENTION_NO_FLOOR) {
        printf("all is kept");
    } else if (table->floor == table->stored) {
        printf("kept from %s", date_text(table->floor, floor));
    } else {
        printf("%s from %s (was %s)", is_dry ? "to be kept" : "kept",
               date_text(table->floor, floor),
               table->stored == RETENTION_NO_FLOOR
                   ? "all"
                   : date_text(table->stored, stored));
    }
    if (table->dropped > 0) {
        printf(is_dry ? ", would drop " : ", dropped ");
        say_partitions(table->dropped, table->size);
    }
    if (table->reason[0] != '\0') {
        printf("; skipped: %s", table->reason);
    }
    if (table->is_waiting) {
        char kept[DAYS_SIZE];

        snprintf(kept, sizeof(kept), "for %d days", table->kept);
        printf("; waits: it was kept %s and is to be for %d, which would "
               "drop ",
               table->kept < 0 ? "for ever" : kept,
               table->run->days[table->parent]);
        say_partitions(table->waiting_count, table->waiting_size);
        printf(" more; if that is meant: --force");
    }
    putchar('\n');
    fflush(stdout);
}

static void
say_log(const struct table *table)
{
    const char *name = partition_parent_name(table->parent);
    char floor[DATE_SIZE];

    date_text(table->floor, floor);
    if (table->dropped > 0) {
        log_info(NAME, table->run->is_dry ? "would drop" : "dropped",
                 log_str("table", name), log_str("floor", floor),
                 log_int("partitions", (int64_t)table->dropped),
                 log_int("bytes", table->size));
    }
    if (table->is_waiting) {
        log_warn(NAME,
                 "kept for as long as before; if it is to be shorter: meterd "
                 "retention --force",
                 log_str("table", name), log_int("days", table->kept),
                 log_int("configured", table->run->days[table->parent]),
                 log_int("would_drop", (int64_t)table->waiting_count),
                 log_int("bytes", table->waiting_size));
    }
    if (table->reason[0] != '\0') {
        log_warn(NAME, "skipped", log_str("table", name),
                 log_str("reason", table->reason));
    }
}

/* Once per wait, when it is a long one. */
static void
say_wait(const struct table *table, uint64_t waited_ms, bool *is_told,
         const char *what)
{
    if (*is_told || waited_ms < TOLD_AFTER_MS || table->run->is_log) {
        return;
    }
    *is_told = true;
    progress_end(&table->run->progress);
    fprintf(stderr, "%s: waits for %s\n", partition_parent_name(table->parent),
            what);
}


/* ---- waiting ---------------------------------------------------------- */

/* False: the time for waiting is used up. */
static bool
wait_a_moment(struct retention_run *run)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * NS_PER_MS};

    if (run->waited_ms >= run->wait_ms) {
        return false;
    }
    (void)nanosleep(&pause, NULL);
    run->waited_ms += PAUSE_MS;
    return true;
}

static enum table_end
left_busy(struct table *table)
{
    snprintf(table->reason, sizeof(table->reason),
             "a long transaction holds it");
    return TABLE_LEFT;
}


/* ---- steps ------------------------------------------------------------ */

static enum table_end
left_marks(struct table *table, int64_t marks)
{
    char floor[DATE_SIZE];

    snprintf(table->reason, sizeof(table->reason),
             "%s%" PRId64 " buckets before %s are still to be rolled up",
             marks >= 1000 ? "at least " : "", marks,
             date_text(table->floor, floor));
    return TABLE_LEFT;
}

static enum table_end
table_raise(struct table *table)
{
    struct retention_run *run = table->run;
    enum retention_step step;
    bool is_told = false;
    uint64_t started_ms = clock_mono_ms();
    int64_t marks;

    for (;;) {
        step = retention_store_raise(run->store, table->parent, table->floor,
                                     &marks);
        if (step == RETENTION_FAILED) {
            return TABLE_FAILED;
        }
        if (step == RETENTION_DONE && marks == 0) {
            return TABLE_DONE;
        }
        say_wait(table, clock_mono_ms() - started_ms, &is_told,
                 marks > 0 ? "rollups" : "a long transaction");
        if (!wait_a_moment(run)) {
            return marks > 0 ? left_marks(table, marks) : left_busy(table);
        }
    }
}

/* Behind it no transaction writes below the floor any more. */
static enum table_end
writers_pass(struct table *table, struct retention_writer **writers,
             size_t *count)
{
    enum retention_step step;

    while ((step = retention_store_pass(table->run->store, writers, count)) ==
           RETENTION_BUSY) {
        if (!wait_a_moment(table->run)) {
            return left_busy(table);
        }
    }
    return step == RETENTION_DONE ? TABLE_DONE : TABLE_FAILED;
}

/* The series are made from the ledger: they need it until they have it. */
static enum table_end
table_flushed(struct table *table)
{
    struct retention_run *run = table->run;
    struct retention_writer *writers = NULL;
    uint64_t started_ms = clock_mono_ms();
    bool is_told = false;
    size_t unflushed = 0;
    size_t count = 0;
    enum table_end end = writers_pass(table, &writers, &count);

    while (end == TABLE_DONE) {
        if (!retention_store_unflushed(run->store, writers, count,
                                       &unflushed)) {
            end = TABLE_FAILED;
        } else if (unflushed == 0) {
            break;
        } else if (!wait_a_moment(run)) {
            snprintf(table->reason, sizeof(table->reason),
                     "not flushed: the series lack events of %zu writer%s",
                     unflushed, unflushed == 1 ? "" : "s");
            end = TABLE_LEFT;
        } else {
            say_wait(table, clock_mono_ms() - started_ms, &is_told,
                     "the series to have all events");
        }
    }
    free(writers);
    return end;
}

static enum table_end
table_drop(struct table *table)
{
    struct retention_run *run = table->run;
    enum retention_step step;
    int64_t size;

    for (size_t i = 0; i < table->count; i++) {
        if (!retention_store_size(run->store, table->parent, table->days[i],
                                  &size)) {
            return TABLE_FAILED;
        }
        CRASH_POINT("retention_drop");
        while ((step = retention_store_drop(run->store, table->parent,
                                            table->days[i])) ==
               RETENTION_BUSY) {
            if (!wait_a_moment(run)) {
                return left_busy(table);
            }
        }
        if (step == RETENTION_FAILED) {
            return TABLE_FAILED;
        }
        table->dropped++;
        table->size += size;
        progress_add(&run->progress, 1);
    }
    return TABLE_DONE;
}


/* ---- a table ---------------------------------------------------------- */

/* What would go besides if the days of the configuration were in force. */
static bool
table_waiting(struct table *table, struct retention_plan plan)
{
    struct retention_run *run = table->run;
    int32_t *days = NULL;
    size_t count;
    int64_t size;
    bool is_good;

    plan.days = run->days[table->parent];
    is_good = retention_store_below(
        run->store, table->parent,
        retention_plan_floor(table->parent, &plan, run->clock.now_us), &days,
        &count);
    for (size_t i = table->count; is_good && i < count; i++) {
        is_good =
            retention_store_size(run->store, table->parent, days[i], &size);
        table->waiting_count++;
        table->waiting_size += is_good ? size : 0;
    }
    free(days);
    return is_good;
}

/* What is stored, what is to be, and what goes then. */
static bool
table_look(struct table *table)
{
    struct retention_run *run = table->run;
    struct retention_plan plan = {.ceiling = INT32_MAX};

    if (!retention_store_floor(run->store, table->parent, &table->stored,
                               &table->kept)) {
        return false;
    }
    plan.days = retention_plan_days(run->days[table->parent], table->kept,
                                    run->is_forced, &table->is_waiting);
    if (table->parent > PARTITION_SERIES) {
        plan.ceiling = run->floors[table->parent - 1];
    }
    plan.stored = table->stored;
    table->floor =
        retention_plan_floor(table->parent, &plan, run->clock.now_us);
    return retention_store_below(run->store, table->parent, table->floor,
                                 &table->days, &table->count) &&
           (!table->is_waiting || table_waiting(table, plan));
}

/* Marks that are there now may be gone when it comes to it. */
static enum table_end
table_tell(struct table *table)
{
    int64_t marks;
    int64_t size;

    if (!retention_store_marks(table->run->store, table->parent, table->floor,
                               &marks)) {
        return TABLE_FAILED;
    }
    for (size_t i = 0; i < table->count; i++) {
        if (!retention_store_size(table->run->store, table->parent,
                                  table->days[i], &size)) {
            return TABLE_FAILED;
        }
        table->size += size;
    }
    table->dropped = table->count;
    if (marks > 0 && table->floor != table->stored) {
        (void)left_marks(table, marks);
    }
    return TABLE_DONE;
}

/* The floor stays; what lies below it goes all the same. */
static enum table_end
table_stay(struct table *table)
{
    int span = partition_span(table->parent);

    table->floor = table->stored;
    while (table->count > 0 &&
           table->days[table->count - 1] + span > table->floor) {
        table->count--;
    }
    return TABLE_LEFT;
}

static enum table_end
table_floor(struct table *table)
{
    enum table_end end;

    if (retention_plan_is_jump(table->parent, table->stored, table->floor) &&
        !table->run->is_forced) {
        char floor[DATE_SIZE];

        snprintf(table->reason, sizeof(table->reason),
                 "%d days would go at once, all before %s; if that is meant: "
                 "--force",
                 table->floor - table->stored, date_text(table->floor, floor));
        return table_stay(table);
    }
    if (table->floor == table->stored || table->run->is_dry) {
        return TABLE_DONE;
    }
    end = table_raise(table);
    if (end != TABLE_DONE) {
        (void)table_stay(table);
        return end;
    }
    CRASH_POINT("retention_raised");
    return TABLE_DONE;
}

static enum table_end
table_work(struct table *table)
{
    int days = table->run->days[table->parent];
    enum table_end raised = TABLE_FAILED;
    enum table_end end = TABLE_DONE;

    if (table->run->is_dry || table->is_waiting ||
        retention_store_keep(table->run->store, table->parent, days)) {
        raised = table_floor(table);
    }
    if (raised == TABLE_FAILED) {
        return raised;
    }
    if (table->run->is_dry) {
        end = table_tell(table);
        return end == TABLE_DONE ? raised : end;
    }
    if (table->parent == PARTITION_EVENT && table->count > 0) {
        end = table_flushed(table);
    }
    if (end == TABLE_DONE) {
        end = table_drop(table);
    }
    return end == TABLE_DONE ? raised : end;
}

static bool
table_run(struct retention_run *run, enum partition_parent parent)
{
    struct table table = {.run = run, .parent = parent};
    enum table_end end = TABLE_FAILED;

    if (table_look(&table)) {
        progress_start(&run->progress, partition_parent_name(parent),
                       "partitions", (int64_t)table.count);
        run->progress.is_silent = run->is_log;
        end = table_work(&table);
        if (run->is_log) {
            say_log(&table);
        } else {
            say_person(&table);
        }
    }
    progress_end(&run->progress);
    run->floors[parent] = table.floor;
    run->dropped += (int64_t)table.dropped;
    run->skipped += end != TABLE_DONE;
    run->waiting += table.is_waiting;
    free(table.days);
    return end != TABLE_FAILED;
}


bool
retention_run(struct retention_run *run)
{
    bool is_good = true;

    for (size_t i = 0; is_good && i < PARTITION_PARENTS; i++) {
        is_good = table_run(run, retention_order[i]);
    }
    if (run->is_log) {
        printf("dropped %" PRId64 " skipped %" PRId64 " waiting %" PRId64 "\n",
               run->dropped, run->skipped, run->waiting);
    }
    return is_good && run->skipped == 0 && run->waiting == 0;
}
