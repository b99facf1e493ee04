#include "meter_cmocka.h"

#include "meter_event.h"
#include "meter_random.h"
#include "meter_time.h"

#define TS     INT64_C(1788264000123456) /* 2026-09-01T12:00:00.123456Z */
#define ABSENT ((struct meter_str){NULL, 0})

static struct meter_salt salt;


static int
salt_make(void **state)
{
    uint8_t secret[32];

    (void)state;
    for (int i = 0; i < 32; i++) {
        secret[i] = (uint8_t)i;
    }
    meter_salt_init(&salt, secret, sizeof(secret));
    return 0;
}


static struct meter_event
full_event(void)
{
    return (struct meter_event){
        .tenant = METER_STR("acme"),
        .event_id = METER_STR("order-1"),
        .type = METER_STR("api.request"),
        .customer = METER_STR("cust-9"),
        .resource = METER_STR("res-1"),
        .source = METER_STR("urn:test"),
        .attributes = METER_STR("{\"route\":\"/v1/x\",\"status\":200}"),
        .ts_us = TS,
        .quantity = {2500000000},
        .count = 1,
    };
}


static struct meter_event
least_event(void)
{
    return (struct meter_event){
        .tenant = METER_STR("acme"),
        .type = METER_STR("api.request"),
        .attributes = METER_STR("{}"),
        .ts_us = TS,
        .quantity = {1000000000},
        .count = 1,
    };
}


static void
key__uuid__is_the_uuid_itself(void **state)
{
    static const char *const cases[][2] = {
        {"0193a8f0-7b2c-7000-8000-0123456789ab",
         "0193a8f07b2c700080000123456789ab"},
        {"00000000-0000-0000-0000-000000000000",
         "00000000000000000000000000000000"},
        {"ffffffff-ffff-ffff-ffff-ffffffffffff",
         "ffffffffffffffffffffffffffffffff"},
        {"d9428888-122b-11e1-b85c-61cd3cbb3210",
         "d9428888122b11e1b85c61cd3cbb3210"},
        {"d9428888-122b-91e1-b85c-61cd3cbb3210",
         "d9428888122b91e1b85c61cd3cbb3210"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t key[METER_KEY_SIZE];

        meter_event_key(&salt, str_of(cases[i][0]), key);
        assert_hex_equal(key, 16, cases[i][1]);
    }
}


static void
key__other_text__is_a_frozen_digest_of_version_8(void **state)
{
    char longest[255];
    const struct {
        struct meter_str id;
        const char *key;
    } cases[] = {
        {METER_STR("order-1"), "172546fcf8b7817ba91a6a4480d3d15d"},
        {METER_STR(""), "5629bd16ab78895e5f1261c1dbc2a92b"},
        {METER_STR("0193A8F0-7B2C-7000-8000-000000000001"),
         "b12ac98d18cf868755962ba4b52181ff"},
        {METER_STR("0193a8f0-7b2c-8000-8000-000000000001"),
         "c06a51a28ab489a262dfaeed9399550b"},
        {METER_STR("gr\xc3\xb6\xc3\x9f"
                   "e-\xe2\x84\x96"
                   "7"),
         "c511dfbd392b8958bba4c47b04be10f1"},
        {{longest, sizeof(longest)}, "3464aeb7ebbf8bc4c649ad64c8457bfd"},
    };

    (void)state;
    memset(longest, 'x', sizeof(longest));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t key[METER_KEY_SIZE];

        meter_event_key(&salt, cases[i].id, key);
        assert_hex_equal(key, 16, cases[i].key);
        assert_int_equal(key[6] >> 4, 8);
    }
}


static void
key__nearly_a_uuid__is_a_digest(void **state)
{
    static const char *const cases[] = {
        "0193a8f0-7b2c-7000-8000-0123456789a",
        "0193a8f0-7b2c-7000-8000-0123456789abc",
        "0193a8f0-7b2c-7000-8000-0123456789aB",
        "0193a8f0-7b2c-7000-8000-0123456789ag",
        "0193a8f0_7b2c-7000-8000-0123456789ab",
        "0193a8f0-7b2c_7000-8000-0123456789ab",
        "0193a8f0-7b2c-7000_8000-0123456789ab",
        "0193a8f0-7b2c-7000-8000_0123456789ab",
        "0193a8f07b2c7000800001234567-89ab---",
        "{193a8f0-7b2c-7000-8000-0123456789ab",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t key[METER_KEY_SIZE];

        meter_event_key(&salt, str_of(cases[i]), key);
        assert_int_equal(key[6] >> 4, 8);
    }
}


static void
salt__another_secret__other_keys(void **state)
{
    struct meter_salt other;
    uint8_t a[METER_KEY_SIZE], b[METER_KEY_SIZE];

    (void)state;
    meter_salt_init(&other, "other", 5);
    meter_event_key(&salt, METER_STR("x"), a);
    meter_event_key(&other, METER_STR("x"), b);
    assert_memory_not_equal(a, b, sizeof(a));
    /* The three keys of one secret differ from each other. */
    assert_memory_not_equal(&salt.id, &salt.fingerprint, sizeof(salt.id));
    assert_memory_not_equal(&salt.id, &salt.derive, sizeof(salt.id));
    assert_memory_not_equal(&salt.derive, &salt.fingerprint, sizeof(salt.id));
}


static void
fingerprint__frozen_vectors__match(void **state)
{
    static char attributes[5008], source[1024];
    struct meter_event event = full_event();
    struct meter_fingerprint print;

    (void)state;
    meter_event_fingerprint(&salt, &event, &print);
    assert_true(print.head == UINT64_C(0x2fcb2be3fd4703b6));
    assert_true(print.body == UINT64_C(0x0bd3879af51280a7));
    assert_true(print.has_body);

    event = least_event();
    meter_event_fingerprint(&salt, &event, &print);
    assert_true(print.head == UINT64_C(0xd6dde91eeb78355f));
    assert_true(print.body == UINT64_C(0x06f4d68c71e621d2));

    event.customer = event.resource = event.source = METER_STR("");
    event.ts_us = -1;
    event.quantity.units = -1;
    meter_event_fingerprint(&salt, &event, &print);
    assert_true(print.head == UINT64_C(0x5e1e9b333c315a1e));
    assert_true(print.body == UINT64_C(0x829199d4d7bea5f7));

    event = least_event();
    memset(attributes, 'z', sizeof(attributes));
    memcpy(attributes, "{\"a\":\"", 6);
    memcpy(attributes + 5006, "\"}", 2);
    memset(source, 's', sizeof(source));
    event.attributes = (struct meter_str){attributes, sizeof(attributes)};
    event.source = (struct meter_str){source, sizeof(source)};
    assert_int_equal(meter_decimal_parse(
                         METER_STR("99999999999999999999999999999.999999999"),
                         &event.quantity),
                     METER_DECIMAL_OK);
    meter_event_fingerprint(&salt, &event, &print);
    assert_true(print.body == UINT64_C(0x5fecc26cd1c6604a));
}


static void
fingerprint__each_field__changes_its_half_only(void **state)
{
    struct meter_event base = full_event();
    struct meter_fingerprint first, second;

    (void)state;
    meter_event_fingerprint(&salt, &base, &first);
    for (int field = 0; field < 10; field++) {
        struct meter_event event = full_event();
        bool in_head = field < 4, in_body = field >= 4 && field < 8;

        switch (field) {
        case 0: event.tenant = METER_STR("acmf"); break;
        case 1: event.type = METER_STR("api.requesu"); break;
        case 2: event.customer = ABSENT; break;
        case 3: event.resource = METER_STR(""); break;
        case 4: event.ts_us++; break;
        case 5: event.quantity.units++; break;
        case 6: event.attributes = METER_STR("{}"); break;
        case 7: event.source = ABSENT; break;
        case 8: event.event_id = METER_STR("order-2"); break;
        case 9: event.count = 2; break;
        }
        meter_event_fingerprint(&salt, &event, &second);
        assert_int_equal(first.head != second.head, in_head);
        assert_int_equal(first.body != second.body, in_body);
        assert_int_equal(meter_fingerprint_compare(&first, &second),
                         in_head || in_body ? METER_VERDICT_CONFLICT
                                            : METER_VERDICT_DUPLICATE);
    }
}


static void
fingerprint__moved_boundary_between_fields__differs(void **state)
{
    struct meter_event a = full_event(), b = full_event();
    struct meter_fingerprint first, second;

    (void)state;
    a.customer = METER_STR("ab");
    a.resource = METER_STR("c");
    b.customer = METER_STR("a");
    b.resource = METER_STR("bc");
    meter_event_fingerprint(&salt, &a, &first);
    meter_event_fingerprint(&salt, &b, &second);
    assert_true(first.head != second.head);

    a.customer = ABSENT;
    a.resource = METER_STR("x");
    b.customer = METER_STR("x");
    b.resource = ABSENT;
    meter_event_fingerprint(&salt, &a, &first);
    meter_event_fingerprint(&salt, &b, &second);
    assert_true(first.head != second.head);
}


static void
fingerprint__server_time_or_captured__has_no_body(void **state)
{
    struct meter_event event = full_event();
    struct meter_fingerprint full, bare, other;

    (void)state;
    meter_event_fingerprint(&salt, &event, &full);
    event.flags = METER_EVENT_SERVER_TIME;
    event.ts_us += 5;
    meter_event_fingerprint(&salt, &event, &bare);
    assert_false(bare.has_body);
    assert_true(bare.body == 0);
    assert_true(bare.head == full.head);
    assert_int_equal(meter_fingerprint_compare(&full, &bare),
                     METER_VERDICT_DUPLICATE);
    assert_int_equal(meter_fingerprint_compare(&bare, &full),
                     METER_VERDICT_DUPLICATE);

    event.flags = METER_EVENT_CAPTURED;
    event.customer = METER_STR("else");
    meter_event_fingerprint(&salt, &event, &other);
    assert_false(other.has_body);
    assert_int_equal(meter_fingerprint_compare(&bare, &other),
                     METER_VERDICT_CONFLICT);

    event.flags = METER_EVENT_DERIVED_ID | METER_EVENT_MINTED_ID |
                  METER_EVENT_RECOVERED | METER_EVENT_TRUNCATED;
    meter_event_fingerprint(&salt, &event, &other);
    assert_true(other.has_body);
}


static void
derive__frozen_vectors__match(void **state)
{
    static char tenant[254], type[128], customer[255], resource[255];
    struct meter_event event = full_event();
    char id[METER_DERIVED_ID_SIZE + 1];

    (void)state;
    meter_event_derive_id(&salt, &event, id);
    assert_string_equal(id, "mFp0pvTBcwHKw5zIo1Rt8K2PP80fwchxb9H_4d2hhn8");
    event = least_event();
    meter_event_derive_id(&salt, &event, id);
    assert_string_equal(id, "l9uuDJoeAOk1bMO83go1L3PmD5_FgcHE6dJxBeyVVpk");

    event.tenant = METER_STR("a\"b\\c");
    event.type = METER_STR("t\n\t\x01\x1f");
    event.customer = METER_STR("gr\xc3\xb6\xc3\x9f"
                               "e");
    event.resource = METER_STR("");
    meter_event_derive_id(&salt, &event, id);
    assert_string_equal(id, "0kY8VshfLmZtUmEHmSOFL2Uo0XqmS94Z3ZUQBRIYwLs");

    for (size_t i = 0; i < sizeof(tenant); i++) {
        tenant[i] = i % 2 == 0 ? 'q' : '"';
    }
    memset(type, 't', sizeof(type));
    memset(customer, 2, sizeof(customer));
    memset(resource, '\\', sizeof(resource));
    event.tenant = (struct meter_str){tenant, sizeof(tenant)};
    event.type = (struct meter_str){type, sizeof(type)};
    event.customer = (struct meter_str){customer, sizeof(customer)};
    event.resource = (struct meter_str){resource, sizeof(resource)};
    meter_event_derive_id(&salt, &event, id);
    assert_string_equal(id, "yGssGlztDLbSmg59ikTbc-5m86io4h-dbSfoV3SdMwU");
}


static void
derive__other_content__does_not_matter(void **state)
{
    struct meter_event a = full_event(), b = full_event();
    char id_a[METER_DERIVED_ID_SIZE + 1], id_b[METER_DERIVED_ID_SIZE + 1];

    (void)state;
    b.attributes = METER_STR("{}");
    b.quantity.units = 1;
    b.source = ABSENT;
    b.event_id = ABSENT;
    b.flags = METER_EVENT_DERIVED_ID;
    meter_event_derive_id(&salt, &a, id_a);
    meter_event_derive_id(&salt, &b, id_b);
    assert_string_equal(id_a, id_b);
}


struct derived {
    char id[METER_DERIVED_ID_SIZE + 1];
    char text[64];
};

static int
by_id(const void *a, const void *b)
{
    return strcmp(((const struct derived *)a)->id,
                  ((const struct derived *)b)->id);
}

static int
by_text(const void *a, const void *b)
{
    return strcmp(((const struct derived *)a)->text,
                  ((const struct derived *)b)->text);
}


static struct meter_str
random_text(struct meter_random *random, char out[3], bool optional)
{
    size_t size = random_below(random, optional ? 4 : 3);

    for (int i = 0; i < 3; i++) {
        out[i] = "\",\\"[random_below(random, 3)];
    }
    return size == 3 ? ABSENT : (struct meter_str){out, size};
}


/* Text that is one-to-one with the tuple, without JSON. */
static void
describe(const struct meter_event *event, char *out)
{
    const struct meter_str fields[] = {event->tenant, event->type,
                                       event->customer, event->resource};

    for (int i = 0; i < 4; i++) {
        if (fields[i].data == NULL) {
            *out++ = 'n';
            continue;
        }
        *out++ = (char)('0' + fields[i].size);
        memcpy(out, fields[i].data, fields[i].size);
        out += fields[i].size;
    }
    sprintf(out, "|%d", (int)event->ts_us);
}


static void
derive__random_tuples_of_awkward_letters__injective(void **state)
{
    enum { COUNT = 100000 };
    struct derived *all = malloc(COUNT * sizeof(*all));
    struct meter_random random = {11};
    int equal = 0;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char tenant[3], type[3], customer[3], resource[3];
        struct meter_event event = {
            .tenant = random_text(&random, tenant, false),
            .type = random_text(&random, type, false),
            .customer = random_text(&random, customer, true),
            .resource = random_text(&random, resource, true),
            .ts_us = (int64_t)random_below(&random, 3) - 1,
        };

        meter_event_derive_id(&salt, &event, all[i].id);
        describe(&event, all[i].text);
    }
    qsort(all, COUNT, sizeof(*all), by_id);
    for (int i = 1; i < COUNT; i++) {
        if (by_id(&all[i - 1], &all[i]) == 0) {
            assert_string_equal(all[i - 1].text, all[i].text);
            equal++;
        }
    }
    assert_true(equal > 100); /* repeats did happen */
    qsort(all, COUNT, sizeof(*all), by_text);
    for (int i = 1; i < COUNT; i++) {
        if (by_text(&all[i - 1], &all[i]) == 0) {
            assert_string_equal(all[i - 1].id, all[i].id);
            equal--;
        }
    }
    assert_int_equal(equal, 0);
    free(all);
}


static void
derive__spellings_of_one_instant__one_id(void **state)
{
    static const char *const spellings[] = {
        "2026-09-01T12:00:00.123456Z",
        "2026-09-01T12:00:00.123456789Z",
        "2026-09-01T14:00:00.123456+02:00",
        "2026-08-31T12:01:00.123456-23:59",
    };
    struct meter_event event = full_event();
    char id[METER_DERIVED_ID_SIZE + 1];

    (void)state;
    for (size_t i = 0; i < sizeof(spellings) / sizeof(spellings[0]); i++) {
        assert_true(meter_time_parse(str_of(spellings[i]), &event.ts_us));
        meter_event_derive_id(&salt, &event, id);
        assert_string_equal(id, "mFp0pvTBcwHKw5zIo1Rt8K2PP80fwchxb9H_4d2hhn8");
    }
    assert_true(
        meter_time_parse_epoch(METER_STR("1788264000123.456"), &event.ts_us));
    meter_event_derive_id(&salt, &event, id);
    assert_string_equal(id, "mFp0pvTBcwHKw5zIo1Rt8K2PP80fwchxb9H_4d2hhn8");
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(key__uuid__is_the_uuid_itself),
    cmocka_unit_test(key__other_text__is_a_frozen_digest_of_version_8),
    cmocka_unit_test(key__nearly_a_uuid__is_a_digest),
    cmocka_unit_test(salt__another_secret__other_keys),
    cmocka_unit_test(fingerprint__frozen_vectors__match),
    cmocka_unit_test(fingerprint__each_field__changes_its_half_only),
    cmocka_unit_test(fingerprint__moved_boundary_between_fields__differs),
    cmocka_unit_test(fingerprint__server_time_or_captured__has_no_body),
    cmocka_unit_test(derive__frozen_vectors__match),
    cmocka_unit_test(derive__other_content__does_not_matter),
    cmocka_unit_test(derive__random_tuples_of_awkward_letters__injective),
    cmocka_unit_test(derive__spellings_of_one_instant__one_id),
};


int
main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, salt_make, NULL);
}
