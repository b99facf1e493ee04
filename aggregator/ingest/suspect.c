/*
 * suspect.c - see suspect.h.
 *
 *   state_dir/suspect, host byte order, one page:
 *   magic  state  {set, seq, session} for each place
 *   {crashes, turn, seq, session} for each entry
 *
 * Stores into a shared map outlive the process whatever it dies of; nothing
 * is ever synced, since after a power loss there is nobody to suspect.
 */

#include "ingest/suspect.h"

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
    struct mark marks[SUSPECT_PLACES];
    struct entry entries[SUSPECT_ENTRIES_MAX];
};

struct suspect {
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

bool suspect_test_armed;
static const char *test_texts[SUSPECT_PLACES];


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
    for (size_t i = 0; i < SUSPECT_ENTRIES_MAX; i++) {
        struct entry *entry = &page->entries[i];

        *turn = entry->turn > *turn ? entry->turn : *turn;
        oldest = entry->turn < oldest->turn ? entry : oldest;
    }
    for (size_t i = 0; i < SUSPECT_ENTRIES_MAX; i++) {
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
        if (marks[SUSPECT_READ].set != 0) {
            page_accuse(page, &marks[SUSPECT_READ]);
        } else if (marks[SUSPECT_STORE].set != 0) {
            page_accuse(page, &marks[SUSPECT_STORE]);
        }
    }
    marks[SUSPECT_READ].set = 0;
    marks[SUSPECT_STORE].set = 0;
}

struct suspect *
suspect_open(const char *state_dir, uint64_t now_ms)
{
    struct suspect *suspect = calloc(1, sizeof(*suspect));
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/suspect", state_dir);

    if (suspect == NULL || size < 0 || (size_t)size >= sizeof(path)) {
        errno = suspect == NULL ? ENOMEM : ENAMETOOLONG;
    } else {
        suspect->page = file_map(path);
    }
    if (suspect == NULL || suspect->page == NULL) {
        log_warn("ingest", "records that crash meterd will not be set aside",
                 log_str("path", path), log_str("error", strerror(errno)));
        free(suspect);
        return NULL;
    }
    page_take_over(suspect->page);
    for (size_t i = 0; i < SUSPECT_ENTRIES_MAX; i++) {
        suspect->has_entries |= suspect->page->entries[i].crashes > 0;
    }
    if (suspect->page->state == FILE_CRASHED) {
        log_warn("ingest", "meterd crashed before: records are stored one by "
                           "one for a while");
        suspect->is_cautious = true;
        suspect->caution_left = SUSPECT_CAUTION_RECORDS;
        suspect->caution_until_ms = now_ms + SUSPECT_CAUTION_MS;
    }
    suspect->page->state = FILE_RUNNING;
    return suspect;
}

void
suspect_close(struct suspect *suspect)
{
    if (suspect == NULL) {
        return;
    }
    if (suspect->is_watched) {
        for (size_t i = 0; i < SIGNAL_COUNT; i++) {
            sigaction(signals[i], &handlers_before[i], NULL);
        }
        watched = NULL;
    }
    suspect->page->state = FILE_ENDED;
    munmap(suspect->page, sizeof(*suspect->page));
    free(suspect);
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
suspect_watch(struct suspect *suspect)
{
    struct sigaction action = {.sa_flags = SA_SIGINFO | SA_ONSTACK};

    CHECK(watched == NULL);
    watched = suspect->page;
    suspect->is_watched = true;
    sigemptyset(&action.sa_mask);
    action.sa_sigaction = crash_handler;
    handler_stack_set();
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        CHECK(sigaction(signals[i], &action, &handlers_before[i]) == 0);
    }
}


/* ---- marks ------------------------------------------------------------ */

void
suspect_mark(struct suspect *suspect, enum suspect_place place,
             const uint8_t session[16], uint64_t seq)
{
    struct mark *mark = &suspect->page->marks[place];

    atomic_store_explicit(&mark->set, 0, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    mark->seq = seq;
    memcpy(mark->session, session, 16);
    atomic_store_explicit(&mark->set, 1, memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

void
suspect_clear(struct suspect *suspect, enum suspect_place place)
{
    atomic_store_explicit(&suspect->page->marks[place].set, 0,
                          memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
}

uint64_t
suspect_crashes(const struct suspect *suspect, const uint8_t session[16],
                uint64_t seq)
{
    if (!suspect->has_entries) {
        return 0;
    }
    for (size_t i = 0; i < SUSPECT_ENTRIES_MAX; i++) {
        const struct entry *entry = &suspect->page->entries[i];

        if (entry->crashes > 0 && entry->seq == seq &&
            memcmp(entry->session, session, 16) == 0) {
            return entry->crashes;
        }
    }
    return 0;
}

bool
suspect_is_cautious(const struct suspect *suspect)
{
    return suspect->is_cautious;
}

void
suspect_passed(struct suspect *suspect, size_t count, uint64_t now_ms)
{
    if (!suspect->is_cautious) {
        return;
    }
    suspect->caution_left -=
        count < suspect->caution_left ? count : suspect->caution_left;
    if (suspect->caution_left == 0 || now_ms >= suspect->caution_until_ms) {
        suspect->is_cautious = false;
        suspect_clear(suspect, SUSPECT_STORE);
        log_info("ingest", "records are stored together again");
    }
}


/* ---- tests ------------------------------------------------------------ */

/* Before main: the environment does not change later. */
__attribute__((constructor)) static void
test_arm(void)
{
    test_texts[SUSPECT_READ] = getenv(TEST_TEXT_PARSE);
    test_texts[SUSPECT_STORE] = getenv(TEST_TEXT_COMMIT);
    for (size_t i = 0; i < SUSPECT_PLACES; i++) {
        if (test_texts[i] != NULL && *test_texts[i] != '\0') {
            suspect_test_armed = true;
        } else {
            test_texts[i] = NULL;
        }
    }
}

void
suspect_test(enum suspect_place place, struct meter_str record)
{
    const char *text = test_texts[place];

    if (text != NULL &&
        memmem(record.data, record.size, text, strlen(text)) != NULL) {
        abort();
    }
}
