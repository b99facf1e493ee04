/*
 * poison.c - see poison.h.
 *
 *   state_dir/poison, host byte order, one page:
 *   magic  state  {set, seq, session} for each place
 *   {crashes, turn, seq, session} for each entry
 *
 * Stores into a shared map outlive the process whatever it dies of; nothing
 * is ever synced, since after a power loss there is nobody to poison.
 */

#include "ingest/poison.h"

#include "base/log.h"
#include "meter_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC            UINT64_C(0x3154434550535553)
#define HANDLER_STACK    ((size_t)16 << 10)
#define TEST_TEXT_PARSE  "METERD_TEST_POISON"
#define TEST_TEXT_COMMIT "METERD_TEST_POISON_COMMIT"

enum file_state {
    FILE_ENDED = 0,   /* in order, or never used */
    FILE_RUNNING = 1, /* and after SIGKILL or power loss */
    FILE_CRASHED = 2
};

struct mark {
    _Atomic uint64_t set;
    uint64_t seq;
    uint8_t session[16];
};

struct entry {
    uint64_t crashes; /* 0: free */
    uint64_t turn;    /* of the last crash: the oldest goes first */
    uint64_t seq;
    uint8_t session[16];
};

struct page {
    uint64_t magic;
    _Atomic uint64_t state; /* enum file_state */
    struct mark marks[POISON_PLACES];
    struct entry entries[POISON_ENTRIES_MAX];
};

struct poison {
    struct page *page;
    bool has_entries; /* they change at the start only */
    bool is_cautious;
    size_t caution_left; /* records */
    uint64_t caution_until_ms;
    bool is_watched;
};

static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
#define SIGNAL_COUNT (sizeof(signals) / sizeof(signals[0]))

/* The process has one; the handler has no other way to it. */
static struct page *watched;
static struct sigaction handlers_before[SIGNAL_COUNT];
static char handler_stack[HANDLER_STACK];

bool poison_test_armed;
static const char *test_texts[POISON_PLACES];


/* ---- the file --------------------------------------------------------- */

static bool
file_is_ours(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
           info.st_uid == geteuid();
}

/* Room for the whole page is there, so that no store can meet SIGBUS. */
static struct page *
file_map(const char *path)
{
    int fd =
        open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY, 0600);
    void *map = MAP_FAILED;
    int error;

    if (fd < 0) {
        return NULL;
    }
    errno = EPERM;
    if (file_is_ours(fd)) {
        error = posix_fallocate(fd, 0, sizeof(struct page));
        errno = error;
        if (error == 0) {
            map = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE,
                       MAP_SHARED, fd, 0);
        }
    }
    error = errno;
    close(fd);
    errno = error;
    return map == MAP_FAILED ? NULL : map;
}

/* The entry of a record; else the one to put it into. */
static struct entry *
entry_take(struct page *page, const struct mark *mark, uint64_t *turn)
{
    struct entry *oldest = &page->entries[0];

    *turn = 0;
    for (size_t i = 0; i < POISON_ENTRIES_MAX; i++) {
        struct entry *entry = &page->entries[i];

        *turn = entry->turn > *turn ? entry->turn : *turn;
        oldest = entry->turn < oldest->turn ? entry : oldest;
    }
    for (size_t i = 0; i < POISON_ENTRIES_MAX; i++) {
        struct entry *entry = &page->entries[i];

        if (entry->crashes > 0 && entry->seq == mark->seq &&
            memcmp(entry->session, mark->session, 16) == 0) {
            return entry;
        }
    }
    oldest->crashes = 0;
    oldest->seq = mark->seq;
    memcpy(oldest->session, mark->session, 16);
    return oldest;
}

/* The process before died with this record in hand. */
static void
page_accuse(struct page *page, const struct mark *mark)
{
    char session[33];
    uint64_t turn;
    struct entry *entry = entry_take(page, mark, &turn);

    entry->turn = turn + 1;
    entry->crashes++;
    meter_hex(mark->session, 16, session);
    log_error("ingest", "a record was in hand when meterd crashed",
              log_str("session", session), log_int("seq", (int64_t)mark->seq),
              log_int("crashes", (int64_t)entry->crashes));
}

static void
page_take_over(struct page *page)
{
    struct mark *marks = page->marks;

    if (page->magic != MAGIC) {
        memset(page, 0, sizeof(*page));
        page->magic = MAGIC;
    }
    if (page->state == FILE_CRASHED) {
        if (marks[POISON_READ].set != 0) {
            page_accuse(page, &marks[POISON_READ]);
        } else if (marks[POISON_STORE].set != 0) {
            page_accuse(page, &marks[POISON_STORE]);
        }
    }
    marks[POISON_READ].set = 0;
    marks[POISON_STORE].set = 0;
}

struct poison *
poison_open(const char *state_dir, uint64_t now_ms)
{
    struct poison *poison = calloc(1, sizeof(*poison));
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/poison", state_dir);

    if (poison == NULL || size < 0 || (size_t)size >= sizeof(path)) {
        errno = poison == NULL ? ENOMEM : ENAMETOOLONG;
    } else {
        poison->page = file_map(path);
    }
    if (poison == NULL || poison->page == NULL) {
        log_warn("ingest", "records that crash meterd will not be set aside",
                 log_str("path", path), log_str("error", strerror(errno)));
        free(poison);
        return NULL;
    }
    page_take_over(poison->page);
    for (size_t i = 0; i < POISON_ENTRIES_MAX; i++) {
        poison->has_entries |= poison->page->entries[i].crashes > 0;
    }
    if (poison->page->state == FILE_CRASHED) {
        log_warn("ingest", "meterd crashed before: records are stored one by "
                           "one for a while");
        poison->is_cautious = true;
        poison->caution_left = POISON_CAUTION_RECORDS;
        poison->caution_until_ms = now_ms + POISON_CAUTION_MS;
    }
    poison->page->state = FILE_RUNNING;
    return poison;
}

void
poison_close(struct poison *poison)
{
    if (poison == NULL) {
        return;
    }
    if (poison->is_watched) {
        for (size_t i = 0; i < SIGNAL_COUNT; i++) {
            sigaction(signals[i], &handlers_before[i], NULL);
        }
        watched = NULL;
    }
    poison->page->state = FILE_ENDED;
    munmap(poison->page, sizeof(*poison->page));
    free(poison);
}


/* ---- the note of a signal --------------------------------------------- */

/*
 * Back to what was there before. A fault happens again by itself when the
 * handler returns; a signal that was sent has to be sent again.
 */
static void
crash_handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    watched->state = FILE_CRASHED;
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        if (signals[i] == number) {
            sigaction(number, &handlers_before[i], NULL);
        }
    }
    if (info->si_code <= 0) {
        raise(number);
    }
}

/* A stack of its own: the ordinary one may be what has run out. */
static void
handler_stack_set(void)
{
    stack_t now;
    stack_t mine = {.ss_sp = handler_stack, .ss_size = sizeof(handler_stack)};

    if (sigaltstack(NULL, &now) == 0 && (now.ss_flags & SS_DISABLE) != 0) {
        CHECK(sigaltstack(&mine, NULL) == 0);
    }
}

void
poison_watch(struct poison *poison)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};

    CHECK(watched == NULL);
    watched = poison->page;
    poison->is_watched = true;
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = crash_handler;
    handler_stack_set();
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(sigaction(signals[i], &action, &handlers_before[i]) == 0);
    }
}


/* ---- marks ------------------------------------------------------------ */

void
poison_mark(struct poison *poison, enum poison_place place,
            const uint8_t session[16], uint64_t seq)
{
    struct mark *mark = &poison->page->marks[place];

    atomic_store_explicit(&mark->set, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    mark->seq = seq;
    memcpy(mark->session, session, 16);
    atomic_store_explicit(&mark->set, 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

void
poison_clear(struct poison *poison, enum poison_place place)
{
    atomic_store_explicit(&poison->page->marks[place].set, 0,
                          memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

uint64_t
poison_crashes(const struct poison *poison, const uint8_t session[16],
               uint64_t seq)
{
    if (!poison->has_entries) {
        return 0;
    }
    for (size_t i = 0; i < POISON_ENTRIES_MAX; i++) {
        const struct entry *entry = &poison->page->entries[i];

        if (entry->crashes > 0 && entry->seq == seq &&
            memcmp(entry->session, session, 16) == 0) {
            return entry->crashes;
        }
    }
    return 0;
}

bool
poison_is_cautious(const struct poison *poison)
{
    return poison->is_cautious;
}

void
poison_passed(struct poison *poison, size_t count, uint64_t now_ms)
{
    if (!poison->is_cautious) {
        return;
    }
    poison->caution_left -=
        count < poison->caution_left ? count : poison->caution_left;
    if (poison->caution_left == 0 || now_ms >= poison->caution_until_ms) {
        poison->is_cautious = false;
        poison_clear(poison, POISON_STORE);
        log_info("ingest", "records are stored together again");
    }
}


/* ---- tests ------------------------------------------------------------ */

/* Before main: the environment does not change later. */
__attribute__((constructor)) static void
test_arm(void)
{
    test_texts[POISON_READ] = getenv(TEST_TEXT_PARSE);
    test_texts[POISON_STORE] = getenv(TEST_TEXT_COMMIT);
    for (size_t i = 0; i < POISON_PLACES; i++) {
        if (test_texts[i] != NULL && *test_texts[i] != '\0') {
            poison_test_armed = true;
        } else {
            test_texts[i] = NULL;
        }
    }
}

void
poison_test(enum poison_place place, struct meter_str record)
{
    const char *text = test_texts[place];

    if (text != NULL &&
        memmem(record.data, record.size, text, strlen(text)) != NULL) {
        abort();
    }
}
