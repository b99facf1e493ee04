#include "meter_cmocka.h"

#include "meter_random.h"
#include "meter_tuple.h"


static void
sha256__fips_vectors__match(void **state)
{
    uint8_t digest[METER_DIGEST_SIZE];

    (void)state;
    meter_sha256("", 0, digest);
    assert_hex_equal(digest, 32,
                     "e3b0c44298fc1c149afbf4c8996fb924"
                     "27ae41e4649b934ca495991b7852b855");
    meter_sha256("abc", 3, digest);
    assert_hex_equal(digest, 32,
                     "ba7816bf8f01cfea414140de5dae2223"
                     "b00361a396177a9cb410ff61f20015ad");
    meter_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
                 digest);
    assert_hex_equal(digest, 32,
                     "248d6a61d20638b8e5c026930c3e6039"
                     "a33ce45964ff2167f6ecedd419db06c1");
}


static void
hmac__rfc_4231_vectors__match(void **state)
{
    static const struct {
        int key_byte; /* -1: the text in key */
        size_t key_size;
        const char *key;
        const char *data;
        const char *digest;
    } cases[] = {
        {0x0b, 20, NULL, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {-1, 4, "Jefe", "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {0xaa, 131, NULL,
         "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {0xaa, 131, NULL,
         "This is a test using a larger than block-size key and a larger than "
         "block-size data. The key needs to be hashed before being used by the "
         "HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t secret[131];
        uint8_t digest[METER_DIGEST_SIZE];
        struct meter_digest_key key;

        if (cases[i].key_byte < 0) {
            memcpy(secret, cases[i].key, cases[i].key_size);
        } else {
            memset(secret, cases[i].key_byte, cases[i].key_size);
        }
        meter_digest_key_init(&key, secret, cases[i].key_size);
        meter_hmac(&key, cases[i].data, strlen(cases[i].data), digest);
        assert_hex_equal(digest, 32, cases[i].digest);
        /* The prepared key is not used up. */
        meter_hmac(&key, cases[i].data, strlen(cases[i].data), digest);
        assert_hex_equal(digest, 32, cases[i].digest);
    }
}


static void
hmac__keys_around_the_block_size__match(void **state)
{
    static const struct {
        size_t size;
        const char *digest;
    } cases[] = {
        {0, "4cbc96099a6467ce002461f10549b4898265ebe6188b45efacc44293516e62c4"},
        {64,
         "c668fc54e1a2a267c502413f4580c5bb5d9229fef5fb9b4ff5f4ce5e76299783"},
        {65,
         "fa34864aa49f680b10d9dd4d77db4bf268cdc0fe6e204c10fb63c62738e69497"},
        {66,
         "0ee4a514ae03b98f573b28d837a00ebb35663f53ea35bbdc3283b286d4a262da"},
    };
    uint8_t secret[66];

    (void)state;
    memset(secret, 1, sizeof(secret));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t digest[METER_DIGEST_SIZE];
        struct meter_digest_key key;

        meter_digest_key_init(&key, secret, cases[i].size);
        meter_hmac(&key, "x", 1, digest);
        assert_hex_equal(digest, 32, cases[i].digest);
    }
}


static void
digest_state__any_segmentation__same_digest(void **state)
{
    struct meter_random random = {3};
    struct meter_digest_key key;
    uint8_t data[700];

    (void)state;
    meter_digest_key_init(&key, "secret", 6);
    for (int round = 0; round < 500; round++) {
        size_t size = random_below(&random, sizeof(data) + 1);
        uint8_t whole[32], pieces[32], keyed_whole[32], keyed_pieces[32];
        struct meter_sha256_state plain;
        struct meter_hmac_state keyed;

        for (size_t i = 0; i < size; i++) {
            data[i] = (uint8_t)random_u64(&random);
        }
        meter_sha256(data, size, whole);
        meter_hmac(&key, data, size, keyed_whole);
        meter_sha256_init(&plain);
        meter_hmac_init(&keyed, &key);
        for (size_t at = 0; at < size;) {
            size_t piece = random_below(&random, size - at + 1);

            meter_sha256_update(&plain, data + at, piece);
            meter_hmac_update(&keyed, data + at, piece);
            at += piece;
        }
        meter_sha256_final(&plain, pieces);
        meter_hmac_final(&keyed, keyed_pieces);
        assert_memory_equal(whole, pieces, 32);
        assert_memory_equal(keyed_whole, keyed_pieces, 32);
        assert_memory_not_equal(whole, keyed_whole, 32);
    }
}


/* Fields below, at and above the tuple's buffer give the digest of all. */
static void
tuple__any_field_sizes__digest_of_the_concatenation(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   7,
                                   METER_TUPLE_BUFFER_SIZE - 5,
                                   METER_TUPLE_BUFFER_SIZE - 4,
                                   METER_TUPLE_BUFFER_SIZE - 3,
                                   METER_TUPLE_BUFFER_SIZE,
                                   METER_TUPLE_BUFFER_SIZE + 1,
                                   5000};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    static uint8_t bytes[5000];
    static uint8_t all[3 * 5000 + 100];
    struct meter_digest_key key;

    (void)state;
    memset(bytes, 'b', sizeof(bytes));
    meter_digest_key_init(&key, "k", 1);
    for (int i = 0; i < COUNT * COUNT * COUNT; i++) {
        size_t pick[3] = {sizes[i % COUNT], sizes[i / COUNT % COUNT],
                          sizes[i / COUNT / COUNT]};
        uint8_t expected[32], digest[32];
        struct meter_tuple tuple;
        size_t at = 0;
        bool keyed = i % 2 == 0;

        meter_tuple_init(&tuple, keyed ? &key : NULL);
        meter_tuple_u8(&tuple, 9);
        meter_tuple_u64(&tuple, UINT64_C(0x0807060504030201));
        memcpy(all, "\x09\x01\x02\x03\x04\x05\x06\x07\x08", 9);
        at = 9;
        for (int j = 0; j < 3; j++) {
            struct meter_str str = {(const char *)bytes, pick[j]};

            meter_tuple_optional(&tuple, str);
            all[at++] = 1;
            for (int k = 0; k < 4; k++) {
                all[at++] = (uint8_t)(pick[j] >> 8 * k);
            }
            memcpy(all + at, bytes, pick[j]);
            at += pick[j];
        }
        meter_tuple_optional(&tuple, (struct meter_str){NULL, 0});
        all[at++] = 0;
        meter_tuple_final(&tuple, digest);
        if (keyed) {
            meter_hmac(&key, all, at, expected);
        } else {
            meter_sha256(all, at, expected);
        }
        assert_memory_equal(digest, expected, 32);
    }
}


static void
equal_constant_time__any_differing_byte__is_unequal(void **state)
{
    uint8_t a[32] = {0}, b[32] = {0};

    (void)state;
    assert_true(meter_equal_constant_time(a, b, 32));
    for (int i = 0; i < 32; i++) {
        b[i] = 0x80;
        assert_false(meter_equal_constant_time(a, b, 32));
        b[i] = 0;
    }
    assert_true(meter_equal_constant_time(NULL, NULL, 0));
}


static void
base64url__rfc_4648_vectors__without_padding(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"f", "Zg"},
        {"fo", "Zm8"},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg"},
        {"fooba", "Zm9vYmE"},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xfe", "-__-"},
    };
    char out[16];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t size = strlen(cases[i][0]);

        meter_base64url(cases[i][0], size, out);
        assert_string_equal(out, cases[i][1]);
        assert_int_equal(strlen(out), METER_BASE64URL_SIZE(size));
    }
    assert_int_equal(METER_BASE64URL_SIZE(32), 43);
}


static void
hex__all_bytes__lower_case(void **state)
{
    char out[9];

    (void)state;
    meter_hex("\x00\x0f\xa5\xff", 4, out);
    assert_string_equal(out, "000fa5ff");
    meter_hex(NULL, 0, out);
    assert_string_equal(out, "");
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(sha256__fips_vectors__match),
    cmocka_unit_test(hmac__rfc_4231_vectors__match),
    cmocka_unit_test(hmac__keys_around_the_block_size__match),
    cmocka_unit_test(digest_state__any_segmentation__same_digest),
    cmocka_unit_test(tuple__any_field_sizes__digest_of_the_concatenation),
    cmocka_unit_test(equal_constant_time__any_differing_byte__is_unequal),
    cmocka_unit_test(base64url__rfc_4648_vectors__without_padding),
    cmocka_unit_test(hex__all_bytes__lower_case),
};

RUN_TAP(tests)
