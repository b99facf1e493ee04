/*
 * migrate_client.c - the migrator with migrations that a test makes up.
 *
 *   20-store.t -> [migrate_client DIRECTORY] -> store/migrate.c
 *
 * Its list is that of meterd, followed by the files of the directory in
 * bytewise order, numbered on. Says on standard output how many it applied;
 * exit status 1: the migrator said no.
 */

#include "meter_digest.h"
#include "pg/statements.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#define LIST_MAX 16
#define TEXT_MAX 4096

static struct migration list[LIST_MAX];
static size_t list_count;

/* store/migrate.c reads the list of this file in place of the embedded one. */
#define migrations       list
#define migrations_count list_count
#include "store/migrate.c"
#undef migrations
#undef migrations_count


static int
is_sql(const struct dirent *entry)
{
    const char *end = strrchr(entry->d_name, '.');

    return end != NULL && strcmp(end, ".sql") == 0;
}


static const char *
hex_of(const char *text)
{
    uint8_t digest[METER_DIGEST_SIZE];
    char *hex = calloc(2 * METER_DIGEST_SIZE + 1, 1);

    meter_sha256(text, strlen(text), digest);
    for (size_t i = 0; hex != NULL && i < METER_DIGEST_SIZE; i++) {
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    }
    return hex;
}


static bool
list_add_file(const char *directory, const char *name)
{
    char path[1024];
    char *text = calloc(TEXT_MAX, 1);

    snprintf(path, sizeof(path), "%s/%s", directory, name);

    FILE *file = fopen(path, "r");

    if (text == NULL || file == NULL || list_count == LIST_MAX ||
        fread(text, 1, TEXT_MAX - 1, file) == 0) {
        return false;
    }
    fclose(file);
    list[list_count] = (struct migration){
        .number = (int)list_count + 1,
        .name = name,
        .text = text,
        .sha256 = hex_of(text),
    };
    list_count++;
    return true;
}


/* What it allocates lives as long as the program; `list` reaches it. */
int
main(int argc, char **argv)
{
    static struct dirent **entries;
    int found = argc == 2 ? scandir(argv[1], &entries, is_sql, alphasort) : -1;
    int applied = 0;

    if (found < 0 || migrations_count > LIST_MAX) {
        return 2;
    }
    memcpy(list, migrations, migrations_count * sizeof(*list));
    list_count = migrations_count;
    for (int i = 0; i < found; i++) {
        if (!list_add_file(argv[1], entries[i]->d_name)) {
            return 2;
        }
    }
    log_level_set(LOG_INFO);

    bool is_good = migrate_run(getenv("STORE_ADMIN_URL"), &applied);

    printf("applied %d\n", applied);
    return is_good ? 0 : 1;
}
