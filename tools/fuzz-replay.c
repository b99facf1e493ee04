/*
 * fuzz-replay.c - runs a fuzz target over files, without a fuzzer.
 *
 *   build-asan/replay/NAME t/fuzz/corpus/NAME
 *
 * Each file of the seed corpus is one TAP line. An oracle of the target that
 * does not hold aborts the program, which the harness reports; the line
 * before tells which file it was.
 */

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define INPUT_SIZE_MAX (4u << 20)

static int
is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}


/* The bytes are copied to a block of their exact size, so that a read past
 * the end is seen. */
static int
replay(const char *directory, const char *name, int number)
{
    static uint8_t input[INPUT_SIZE_MAX];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);

    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        printf("not ok %d - %s: %s\n", number, name, strerror(errno));
        return 1;
    }
    size_t size = fread(input, 1, sizeof input, file);
    fclose(file);

    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) {
        printf("Bail out! no memory\n");
        exit(1);
    }
    memcpy(copy, input, size);
    printf("# %s\n", name);
    fflush(stdout);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    printf("ok %d - %s\n", number, name);
    return 0;
}


int
main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    int failed = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
        return 2;
    }
    int count = scandir(argv[1], &entries, is_file, alphasort);
    if (count <= 0) {
        printf("1..1\nnot ok 1 - %s holds no seeds\n", argv[1]);
        return 1;
    }
    printf("1..%d\n", count);
    for (int i = 0; i < count; i++) {
        failed += replay(argv[1], entries[i]->d_name, i + 1);
        free(entries[i]);
    }
    free(entries);
    return failed > 0 ? 1 : 0;
}
