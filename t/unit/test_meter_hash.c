#include "meter_cmocka.h"

#include "meter_hash.h"
#include "meter_random.h"


static void
crc32c__published_vectors__match(void **state)
{
    uint8_t data[48];

    (void)state;
    assert_int_equal(meter_crc32c(0, "", 0), 0);
    assert_int_equal(meter_crc32c(0, "123456789", 9), 0xe3069283u);
    /* RFC 3720, appendix B.4 */
    memset(data, 0, 32);
    assert_int_equal(meter_crc32c(0, data, 32), 0x8a9136aau);
    memset(data, 0xff, 32);
    assert_int_equal(meter_crc32c(0, data, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++) {
        data[i] = (uint8_t)i;
    }
    assert_int_equal(meter_crc32c(0, data, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++) {
        data[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(meter_crc32c(0, data, 32), 0x113fdb5cu);
}


static void
crc32c__instruction_and_table__agree(void **state)
{
    struct meter_random random = {1};
    uint8_t data[600];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)random_u64(&random);
    }
    for (size_t size = 0; size <= 520; size++) {
        for (size_t offset = 0; offset < 9; offset++) {
            uint32_t start = (uint32_t)random_u64(&random);

            assert_int_equal(meter_crc32c(start, data + offset, size),
                             meter_crc32c_table(start, data + offset, size));
        }
    }
    assert_int_equal(meter_crc32c_table(0, "123456789", 9), 0xe3069283u);
}


/* Bit by bit from the polynomial, sharing nothing with the table. */
static uint32_t
crc32c_by_bits(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}


static void
crc32c__every_single_byte__matches_the_polynomial(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        uint8_t data[3] = {(uint8_t)byte, (uint8_t)~byte, 7};

        for (size_t size = 1; size <= 3; size++) {
            uint32_t expected = crc32c_by_bits(data, size);

            assert_int_equal(meter_crc32c(0, data, size), expected);
            assert_int_equal(meter_crc32c_table(0, data, size), expected);
        }
    }
}


static void
crc32c__pieces__chain(void **state)
{
    uint8_t data[64];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (uint8_t)(i * 37);
    }
    for (size_t cut = 0; cut <= sizeof(data); cut++) {
        uint32_t crc = meter_crc32c(0, data, cut);

        crc = meter_crc32c(crc, data + cut, sizeof(data) - cut);
        assert_int_equal(crc, meter_crc32c(0, data, sizeof(data)));
    }
}


static void
hash__known_inputs__is_xxh3(void **state)
{
    (void)state;
    assert_true(meter_hash("", 0, 0) == UINT64_C(0x2d06800538d394c2));
    assert_true(meter_hash("abc", 3, 0) == UINT64_C(0x78af5f94892f3950));
    assert_true(meter_hash("abc", 3, 0) != meter_hash("abc", 3, 1));
    assert_true(meter_hash("abc", 3, 0) != meter_hash("abd", 3, 0));
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(crc32c__published_vectors__match),
    cmocka_unit_test(crc32c__instruction_and_table__agree),
    cmocka_unit_test(crc32c__every_single_byte__matches_the_polynomial),
    cmocka_unit_test(crc32c__pieces__chain),
    cmocka_unit_test(hash__known_inputs__is_xxh3),
};

RUN_TAP(tests)
