#include "meter_cmocka.h"

#include "crash_fixture.h"
#include "meter_random.h"

enum { SIZE = METER_OUTBOX_SIZE_MIN };


/* ---- what a worker does ----------------------------------------------- */

static int
new_request(void)
{
    assert_true(world.count < REQUESTS_MAX);
    return world.count++;
}


static struct meter_str
body_of_request(int number)
{
    static uint8_t buffer[512];
    char name[16];

    snprintf(name, sizeof(name), "%d", number);
    return box_body(buffer, sizeof(buffer), name, BOX_TS + number);
}


/* 2^number: a sum tells which requests are in it. */
static struct meter_decimal
quantity_of(int number)
{
    return meter_decimal_from_int(INT64_C(1) << number);
}


static struct meter_str
key_of(int number)
{
    static uint8_t buffer[512];

    return box_body(buffer, sizeof(buffer), number % 2 == 0 ? "even" : "odd",
                    BOX_TS);
}


static void
record_at_once(void)
{
    int number = new_request();

    world.answered[number] = PERHAPS;
    assert_int_not_equal(box_append(&world.box, body_of_request(number), NULL),
                         0);
    world.answered[number] = SURELY;
}


static uint32_t
answer(int number)
{
    struct meter_slots *slots = &world.box.outbox.slots;
    uint32_t slot = meter_slot_take(slots);

    assert_int_not_equal(slot, METER_SLOT_NONE);
    world.answered[number] = PERHAPS;
    assert_true(meter_slot_answer(slots, slot, body_of_request(number)));
    world.answered[number] = SURELY;
    /* 416: the header goes by once more. */
    assert_true(meter_slot_answer(slots, slot, body_of_request(number)));
    return slot;
}


static void
finish(int number, uint32_t slot)
{
    struct meter_slots *slots = &world.box.outbox.slots;

    assert_int_not_equal(box_append(&world.box, body_of_request(number),
                                    &slots->items[slot].seq),
                         0);
    meter_slot_free(slots, slot);
}


static void
add_at_once(void)
{
    int number = new_request();

    world.answered[number] = PERHAPS;
    assert_true(meter_cell_add(&world.box.outbox, key_of(number), BOX_TS,
                               quantity_of(number), 0));
    world.answered[number] = SURELY;
}


static void
finish_in_cell(int number, uint32_t slot)
{
    struct meter_outbox *outbox = &world.box.outbox;
    uint64_t operation = meter_outbox_operation(outbox);

    meter_store(&outbox->slots.items[slot].operation, operation);
    assert_true(meter_cell_add(outbox, key_of(number), BOX_TS,
                               quantity_of(number), operation));
    meter_slot_free(&outbox->slots, slot);
}


static void
filter(int number, uint32_t slot)
{
    world.answered[number] = PERHAPS;
    meter_slot_free(&world.box.outbox.slots, slot);
    world.answered[number] = NEVER;
    world.filtered[number] = PERHAPS;
    meter_outbox_filtered(&world.box.outbox);
    world.filtered[number] = SURELY;
}


static void
lose_at_once(void)
{
    int number = new_request();

    world.lost[number] = PERHAPS;
    meter_outbox_lost(&world.box.outbox, 1, METER_LOSS_FULL, BOX_TS);
    world.lost[number] = SURELY;
}


/* While there was no ring; the page is told by whoever gets one. */
static void
miss_at_once(void)
{
    int number = new_request();

    world.lost[number] = PERHAPS;
    meter_losses_add(&world.losses, 1, 0, BOX_TS);
    world.lost[number] = SURELY;
}


static void
drop_reserved(void)
{
    struct meter_slots *slots = &world.box.outbox.slots;

    meter_slot_free(slots, meter_slot_take(slots));
}


/* Everything goes to meterd. */
static void
drain(void)
{
    struct meter_outbox *outbox = &world.box.outbox;

    assert_true(meter_cell_seal(outbox, INT64_MAX));
    while (meter_outbox_tell_loss(outbox)) {
    }
    world_deliver(true);
    assert_true(meter_outbox_is_drained(outbox));
}


static void
renew(const uint8_t *boot_id)
{
    uint8_t session[16];

    drain();
    world_session(session);
    meter_outbox_renew(&world.box.outbox, session, boot_id);
}


/* Everything a worker ever does, with things left open between. */
static void
work(void)
{
    uint32_t a, b, c, d;
    int one, two, three, four;

    record_at_once();
    a = answer(one = new_request());
    b = answer(two = new_request());
    add_at_once();
    add_at_once();
    add_at_once();
    finish(one, a);
    finish_in_cell(two, b);
    lose_at_once();
    miss_at_once();
    miss_at_once();
    world_move();
    drop_reserved();
    world_deliver(false);
    assert_true(meter_cell_seal(&world.box.outbox, BOX_TS + 60000000));
    assert_true(meter_outbox_tell_loss(&world.box.outbox));
    world_deliver(true);

    c = answer(three = new_request());
    d = answer(four = new_request());
    add_at_once();
    finish_in_cell(three, c);
    lose_at_once();
    miss_at_once();
    world_move();
    filter(four, d);
    renew(box_boot);

    record_at_once();
    (void)answer(new_request());
    (void)answer(new_request());
    add_at_once();
    add_at_once();
    lose_at_once();
    miss_at_once();
    world_move();
    (void)meter_slot_take(&world.box.outbox.slots);
}


/* ---- what must be ----------------------------------------------------- */

struct found {
    int events[REQUESTS_MAX];
    uint64_t in_deltas; /* one bit each */
    uint64_t delta_count;
    uint64_t weight;
    uint64_t lost;
};

static void
find(struct found *found)
{
    memset(found, 0, sizeof(*found));
    for (size_t i = 0; i < world.record_count; i++) {
        static struct meter_record_event event;
        struct meter_record record;
        struct meter_decimal sum;
        struct meter_loss loss;
        size_t used;

        assert_int_equal(meter_record_decode(world.records[i].bytes,
                                             world.records[i].size, &record,
                                             &used),
                         METER_DECODE_OK);
        found->weight += (uint64_t)meter_record_weight(&record);
        if (record.kind == METER_RECORD_LOSSNOTE) {
            assert_true(meter_loss_decode(record.body, &loss));
            found->lost += loss.count;
            continue;
        }
        assert_true(meter_record_event_decode(record.body, &event));
        assert_true(event.flags & METER_EVENT_CAPTURED);
        if (record.kind == METER_RECORD_EVENT) {
            found->events[event.ts_us - BOX_TS]++;
            continue;
        }
        assert_int_equal(meter_decimal_parse(event.quantity, &sum),
                         METER_DECIMAL_OK);
        found->in_deltas += (uint64_t)(sum.units / 1000000000);
        found->delta_count += (uint64_t)event.count;
    }
    /* No bit was carried: each request is in one delta at most. */
    assert_int_equal(__builtin_popcountll(found->in_deltas),
                     found->delta_count);
}


static void
check_number(uint64_t found, const enum fate *fates)
{
    uint64_t least = 0, most = 0;

    for (int i = 0; i < world.count; i++) {
        least += fates[i] == SURELY;
        most += fates[i] != NEVER;
    }
    assert_in_range(found, least, most);
}


static void
check_counts(const struct found *found)
{
    const struct meter_outbox_live *live = world.box.outbox.live;

    assert_counts_hold(&live->counts);
    assert_counts_hold(&live->past);
    assert_int_equal(live->counts.open, 0);
    assert_int_equal(live->counts.recorded + live->past.recorded,
                     found->weight);
    assert_int_equal(live->counts.lost + live->past.lost, found->lost);
    check_number(live->counts.filtered + live->past.filtered, world.filtered);
    assert_int_equal(live->guard % 2, 0);
}


static void
check_same_boot(void)
{
    struct found found;

    find(&found);
    for (int i = 0; i < world.count; i++) {
        int times = found.events[i] + (int)(found.in_deltas >> i & 1);

        assert_in_range(times, world.answered[i] == SURELY,
                        world.answered[i] != NEVER);
    }
    check_number(found.lost, world.lost);
    check_counts(&found);
}


/* Slots and cells became a loss; nobody is in two places. */
static void
check_other_boot(void)
{
    enum fate either[REQUESTS_MAX];
    struct found found;

    find(&found);
    for (int i = 0; i < world.count; i++) {
        int times = found.events[i] + (int)(found.in_deltas >> i & 1);

        assert_in_range(times, 0, world.answered[i] != NEVER);
        either[i] = world.answered[i] > world.lost[i] ? world.answered[i]
                                                      : world.lost[i];
    }
    check_number(found.weight + found.lost, either);
    check_counts(&found);
}


/* ---- sweeps ----------------------------------------------------------- */

static void
start_world(void)
{
    struct box box = world.box;

    memset(&world, 0, sizeof(world));
    world.box = box;
    world.session_number = 1;
    memset(box.map, 0, 4096); /* the rest: format clears it */
    box_format(&world.box, 1);
    box_claim(&world.box, box_boot);
}


/* Runs the step until it is done or dead; true: dead. */
static bool
runs_into(void (*step)(const uint8_t *), const uint8_t *argument, long points)
{
    crash.left = points;
    crash.has_died = false;
    if (setjmp(crash.jump) == 0) {
        step(argument);
    }
    crash.left = -1;
    return crash.has_died;
}


static void
step_work(const uint8_t *unused)
{
    (void)unused;
    work();
}


static void
step_claim(const uint8_t *boot_id)
{
    world_claim(boot_id);
    world_move();
    renew(boot_id);
}


/* A worker dies, then claimers after `points` each, then one lives. */
static bool
die_and_claim(long worker_points, const long *points, size_t count,
              const uint8_t *boot_id)
{
    bool has_died;

    start_world();
    has_died = runs_into(step_work, NULL, worker_points);
    for (size_t i = 0; i < count; i++) {
        if (runs_into(step_claim, boot_id, points[i])) {
            world_deliver(false);
        }
    }
    world_settle();
    world_claim(boot_id);
    world_move();
    assert_int_equal(meter_losses_left(&world.losses, 0), 0);
    drain();
    if (memcmp(boot_id, box_boot, 16) == 0) {
        check_same_boot();
    } else {
        check_other_boot();
    }
    return has_died;
}


static void
set_up_crash(bool at_stores)
{
    memset(&crash, 0, sizeof(crash));
    crash.left = -1;
    crash.at_stores = at_stores;
    meter_crash_hook = crash_at_name;
    if (world.box.map == NULL) {
        box_make(&world.box, SIZE);
    }
}


static void
sweep(bool at_stores, const uint8_t *boot_id, long least)
{
    struct meter_random random = {11};
    long points = 0;

    set_up_crash(at_stores);
    while (die_and_claim(points, NULL, 0, boot_id)) {
        for (int i = 0; i < 12; i++) {
            long claims[3];

            for (int k = 0; k < 3; k++) {
                claims[k] = (long)random_below(&random, at_stores ? 300 : 60);
            }
            die_and_claim(points, claims, 3, boot_id);
        }
        points++;
    }
    assert_true(points > least);
    meter_crash_hook = NULL;
}


static void
crash__at_every_name__each_request_exactly_once(void **state)
{
    (void)state;
    sweep(false, box_boot, 100);
    /* The sweep has met every name. */
    for (size_t i = 0; meter_crash_names[i] != NULL; i++) {
        bool is_met = false;

        for (size_t k = 0; k < crash.name_count; k++) {
            is_met |= strcmp(crash.names[k], meter_crash_names[i]) == 0;
        }
        if (!is_met) {
            fail_msg("%s was not met", meter_crash_names[i]);
        }
    }
}


static void
crash__at_every_store__each_request_exactly_once(void **state)
{
    (void)state;
    sweep(true, box_boot, 500);
}


static void
crash__at_every_store_then_another_boot__all_accounted_for(void **state)
{
    (void)state;
    sweep(true, box_other_boot, 500);
}


/* Each point of the claim itself, of one who finds much to do. */
static void
crash__at_every_store_of_the_claim__each_request_exactly_once(void **state)
{
    const uint8_t *boots[] = {box_boot, box_other_boot};

    (void)state;
    set_up_crash(true);
    for (size_t boot = 0; boot < 2; boot++) {
        long points = 0;
        bool is_over = false;

        while (!is_over) {
            start_world();
            assert_false(runs_into(step_work, NULL, 1000000));
            is_over = !runs_into(step_claim, boots[boot], points++);
            world_claim(boots[boot]);
            drain();
            if (boot == 0) {
                check_same_boot();
            } else {
                check_other_boot();
            }
        }
        assert_true(points > 150);
    }
    meter_crash_hook = NULL;
}


/* Another process that looks at any moment sees counts in balance. */
static void
snapshot__at_every_store__counts_hold(void **state)
{
    (void)state;
    set_up_crash(true);
    for (long points = 0; points < 700; points += 29) {
        start_world();
        crash.watched = world.box.map;
        runs_into(step_work, NULL, points);
        runs_into(step_claim, box_boot, 1000000);
        runs_into(step_claim, box_other_boot, 1000000);
        crash.watched = NULL;
    }
    meter_crash_hook = NULL;
}


static int
free_world(void **state)
{
    (void)state;
    box_free(&world.box);
    return 0;
}


static const struct CMUnitTest tests[] = {
    cmocka_unit_test(crash__at_every_name__each_request_exactly_once),
    cmocka_unit_test(crash__at_every_store__each_request_exactly_once),
    cmocka_unit_test(
        crash__at_every_store_then_another_boot__all_accounted_for),
    cmocka_unit_test(
        crash__at_every_store_of_the_claim__each_request_exactly_once),
    cmocka_unit_test(snapshot__at_every_store__counts_hold),
};

int
main(void)
{
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, free_world);
}
