#include "meter_cmocka.h"

#include "base/log.h"
#include "store/lane.c"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];
static char path[128];


static int
directory_make(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/em-writer-XXXXXX");
    if (mkdtemp(directory) == NULL) {
        return -1;
    }
    snprintf(path, sizeof(path), "%s/writer-3", directory);
    return 0;
}


static int
directory_remove(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}


static void
content_set(const char *content)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(content, file);
    fclose(file);
}


static void
open__first_time__draws_a_private_random_uuid(void **state)
{
    struct stat info;
    uint8_t writer[16];
    int fd;

    (void)state;
    assert_true(writer_file_open(directory, 3, &fd, writer));
    assert_int_equal(writer[6] >> 4, 4);
    assert_int_equal(writer[8] >> 6, 2);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_size, 37);
    close(fd);
}


static void
open__again__gives_the_same_id(void **state)
{
    uint8_t first[16];
    uint8_t second[16];
    int fd;

    (void)state;
    assert_true(writer_file_open(directory, 3, &fd, first));
    close(fd);
    assert_true(writer_file_open(directory, 3, &fd, second));
    assert_memory_equal(first, second, 16);
    close(fd);
}


static void
open__while_held__is_refused(void **state)
{
    uint8_t writer[16];
    int held;
    int fd;

    (void)state;
    assert_true(writer_file_open(directory, 3, &held, writer));
    assert_false(writer_file_open(directory, 3, &fd, writer));
    assert_int_equal(fd, -1);
    close(held);
    assert_true(writer_file_open(directory, 3, &fd, writer));
    close(fd);
}


static void
open__content_that_is_no_uuid__is_refused_and_kept(void **state)
{
    static const char *const bad[] = {
        "x",
        "\n",
        "00010203-0405-4607-8809-0a0b0c0d0e0f",
        "00010203-0405-4607-8809-0a0b0c0d0e0f\n\n",
        "00010203-0405-4607-8809-0a0b0c0d0e0g\n",
        "00010203-0405-4607-8809-0A0B0C0D0E0F\n",
        "000102030405-4607-8809-0a0b0c0d0e0f0\n",
        "00010203-0405-4607-8809-0a0b0c0d0e0f0a0b0c0d\n",
    };
    uint8_t writer[16];
    int fd;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char left[64] = "";

        content_set(bad[i]);
        if (writer_file_open(directory, 3, &fd, writer)) {
            fail_msg("accepted: %s", bad[i]);
        }

        FILE *file = fopen(path, "r");

        assert_int_equal(fread(left, 1, sizeof(left) - 1, file),
                         strlen(bad[i]));
        assert_string_equal(left, bad[i]);
        fclose(file);
    }
}


static void
open__known_content__is_parsed(void **state)
{
    uint8_t writer[16];
    int fd;

    (void)state;
    content_set("00010203-0405-4607-8809-0a0b0c0d0eff\n");
    assert_true(writer_file_open(directory, 3, &fd, writer));
    assert_hex_equal(writer, 16, "000102030405460788090a0b0c0d0eff");
    close(fd);
}


static void
open__symbolic_link__is_refused(void **state)
{
    uint8_t writer[16];
    int fd;

    (void)state;
    assert_int_equal(symlink("/dev/null", path), 0);
    assert_false(writer_file_open(directory, 3, &fd, writer));
}


static void
open__no_directory__is_refused(void **state)
{
    uint8_t writer[16];
    int fd;

    (void)state;
    assert_false(writer_file_open("/nonexistent/state", 0, &fd, writer));
}

#define IN_DIRECTORY(test) \
    cmocka_unit_test_setup_teardown(test, directory_make, directory_remove)

static const struct CMUnitTest tests[] = {
    IN_DIRECTORY(open__first_time__draws_a_private_random_uuid),
    IN_DIRECTORY(open__again__gives_the_same_id),
    IN_DIRECTORY(open__while_held__is_refused),
    IN_DIRECTORY(open__content_that_is_no_uuid__is_refused_and_kept),
    IN_DIRECTORY(open__known_content__is_parsed),
    IN_DIRECTORY(open__symbolic_link__is_refused),
    IN_DIRECTORY(open__no_directory__is_refused),
};

RUN_TAP(tests)
