/*
 * fail_malloc.c - makes one allocation of a process fail, for tests.
 *
 *   cc -shared -fPIC -o fail_malloc.so fail_malloc.c
 *   LD_PRELOAD=./fail_malloc.so FAIL_MALLOC=FILE program
 *
 * FILE holds three 64-bit numbers that both sides share: how many
 * allocations from now the one is that fails (0: none), how many have
 * failed, how many there were. Only allocations by the program itself
 * count, not those of its libraries.
 */

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct control {
    uint64_t countdown;
    uint64_t failed;
    uint64_t seen;
};

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);

static volatile struct control *control;
static uintptr_t program_start, program_end;

/* The first object is the program. */
static int
program_find(struct dl_phdr_info *info, size_t size, void *data)
{
    (void)size;
    (void)data;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];

        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            program_start = info->dlpi_addr + part->p_vaddr;
            program_end = program_start + part->p_memsz;
        }
    }
    return 1;
}

__attribute__((constructor)) static void
control_open(void)
{
    const char *path = getenv("FAIL_MALLOC");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    void *map = MAP_FAILED;

    if (fd >= 0) {
        map = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED,
                   fd, 0);
        close(fd);
    }
    if (map != MAP_FAILED) {
        dl_iterate_phdr(program_find, NULL);
        control = map;
    }
}

static int
fails(const void *caller)
{
    if (control == NULL || (uintptr_t)caller < program_start ||
        (uintptr_t)caller >= program_end) {
        return 0;
    }
    control->seen++;
    if (control->countdown == 0 || --control->countdown > 0) {
        return 0;
    }
    control->failed++;
    errno = ENOMEM;
    return 1;
}

/* Not inlined: who calls is asked, also where the test includes the caller. */
__attribute__((noinline)) void *
malloc(size_t size)
{
    const void *caller = __builtin_return_address(0);

    return fails(caller) ? NULL : __libc_malloc(size);
}

__attribute__((noinline)) void *
calloc(size_t count, size_t size)
{
    const void *caller = __builtin_return_address(0);

    return fails(caller) ? NULL : __libc_calloc(count, size);
}

__attribute__((noinline)) void *
realloc(void *old, size_t size)
{
    const void *caller = __builtin_return_address(0);

    return fails(caller) ? NULL : __libc_realloc(old, size);
}
