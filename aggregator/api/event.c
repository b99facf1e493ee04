/*
 * event.c - stored events: one by its id with its audits, or those that a
 * search finds.
 *
 *   GET /v1/events/{event_id}
 *   GET /v1/events?event_id=   for ids that a proxy would take for a path
 *
 *   registry (or the time inside a minted id) -> ledger row -> how often
 *   the id was seen again -> the newest observations
 *
 * An id of another tenant is not found by the query, nor by row-level
 * security: the answer is that of an id that never was. A row that
 * retention dropped is 410 with the time the event was first seen.
 *
 *   POST /v1/search: newest first, in pages
 *
 *   body -> search -> [search_ask] -> candidates -> [search_cb] -> events
 *                         ^                             |
 *                         +--- until enough, the end ---+
 *                              or the budget is spent
 *
 * The database gives candidates, each is decided here on the stored event.
 * The cursor is the place of the last candidate that was looked at, so a
 * search that stops early goes on where it was.
 *
 * Events are ordered by (ts, writer, writer_seq), descending, which no two
 * share and which never changes: whatever arrives meanwhile, going on after
 * a place neither skips nor repeats an event. Pages come from windows of
 * time that grow while little is found, so that the newest days are looked
 * at first and alone:
 *
 *   from           window                        after            to
 *    |- - - - - - - - |===== page of rows ===========|- - - - - - - |
 *
 * A page that is full ends at its last row, and the window goes on from
 * there; one that is not has seen its window to the end, and the next window
 * is longer.
 */

#include "api/call.h"
#include "api/page.h"
#include "base/clock.h"
#include "base/log.h"
#include "meter_bytes.h"
#include "meter_event.h"
#include "meter_time.h"
#include "meter_types.h"
#include "query/search.h"

/* Columns of event_read and event_read_minted; searches have more. */
enum event_column {
    EVENT_TYPE,
    EVENT_TS,
    EVENT_CUSTOMER,
    EVENT_RESOURCE,
    EVENT_QUANTITY,
    EVENT_COUNT,
    EVENT_ATTRIBUTES,
    EVENT_SOURCE,
    EVENT_FLAGS,
    EVENT_RECORDED_AT,
    EVENT_COLUMNS
};

/* What the row does not hold. */
struct event_frame {
    struct meter_str event_id;
    struct meter_str tenant;
    const int64_t *first_seen_at; /* NULL: not shown */
};

static const struct {
    enum meter_event_flag flag;
    const char *name;
} flag_names[] = {
    {METER_EVENT_CAPTURED, "captured"},
    {METER_EVENT_RECOVERED, "recovered"},
    {METER_EVENT_TRUNCATED, "truncated"},
    {METER_EVENT_SERVER_TIME, "server_time"},
    {METER_EVENT_DERIVED_ID, "derived_id"},
    {METER_EVENT_MINTED_ID, "minted_id"},
};

static void
event_put_flags(struct json_writer *json, int32_t flags)
{
    json_key(json, "flags");
    json_object_begin(json);
    for (size_t i = 0; i < sizeof(flag_names) / sizeof(flag_names[0]); i++) {
        if ((flags & (int32_t)flag_names[i].flag) != 0) {
            json_key(json, flag_names[i].name);
            json_bool(json, true);
        }
    }
    json_object_end(json);
}

/* An object that is left open, for what the caller adds. */
static void
event_put(struct json_writer *json, const void *result, int row,
          const struct event_frame *frame)
{
    static const struct member type[] = {
        {"type", MEMBER_STRING, EVENT_TYPE},
        {"ts", MEMBER_TIME, EVENT_TS},
    };
    static const struct member payload[] = {
        {"customer", MEMBER_STRING, EVENT_CUSTOMER},
        {"resource", MEMBER_STRING, EVENT_RESOURCE},
        {"quantity", MEMBER_STRING, EVENT_QUANTITY},
        {"attributes", MEMBER_RAW, EVENT_ATTRIBUTES},
        {"source", MEMBER_STRING, EVENT_SOURCE},
        {"count", MEMBER_INT_STRING, EVENT_COUNT},
    };

    json_object_begin(json);
    member_string(json, "event_id", frame->event_id);
    MEMBERS_OF_ROW(json, type, result, row);
    member_string(json, "tenant", frame->tenant);
    MEMBERS_OF_ROW(json, payload, result, row);
    if (frame->first_seen_at != NULL) {
        member_time(json, "first_seen_at", *frame->first_seen_at);
    }
    member_time(json, "recorded_at",
                pg_get_time(result, row, EVENT_RECORDED_AT));
    event_put_flags(json, pg_get_int4(result, row, EVENT_FLAGS));
}


#define AUDITS_MAX 100

/* Columns of audit_list. */
enum audit_column {
    AUDIT_VERDICT,
    AUDIT_SEEN_AT,
    AUDIT_TYPE,
    AUDIT_TS,
    AUDIT_PAYLOAD,
    AUDIT_DUPLICATES,
    AUDIT_CONFLICTS
};

/* What one look-up carries from read to read. */
struct event_lookup {
    struct meter_str id;
    uint8_t key[METER_KEY_SIZE];
    bool minted;
    int64_t first_seen_at; /* of minted ids, without a registry row: when
                              they were recorded */
};

static void event_look_up(struct api_call *call, struct meter_str id);
static void event_found_cb(void *asker, const struct pg_answer *answer);
static void event_read_cb(void *asker, const struct pg_answer *answer);
static void event_audits_cb(void *asker, const struct pg_answer *answer);

static void
event_not_found(struct api_call *call)
{
    call_answer_error(call, 404, 0, "no such event");
}

static void
event_get(struct api_call *call)
{
    if (call_has_no_arguments(call, "path")) {
        event_look_up(call, call->match.parameter);
    }
}

static void
event_find(struct api_call *call)
{
    const struct url_arguments *arguments = call_arguments(call);

    if (arguments == NULL) {
        return;
    }
    if (arguments->count != 1 || arguments->items[0].value.size == 0 ||
        !meter_str_equal(arguments->items[0].name, METER_STR("event_id"))) {
        call_answer_error(call, 400, 0,
                          "the path takes one query argument, \"event_id\"");
        return;
    }
    event_look_up(call, arguments->items[0].value);
}

static void
event_look_up(struct api_call *call, struct meter_str id)
{
    struct event_lookup *lookup;
    struct pg_params *params = call_params(call);
    uint8_t session[16];
    uint64_t seq;
    int64_t ts_us;

    if (id.size > METER_EVENT_ID_SIZE_MAX) {
        event_not_found(call);
        return;
    }
    lookup = call_state(call, sizeof(*lookup));
    if (lookup == NULL) {
        return;
    }
    lookup->id = id;
    lookup->minted = meter_event_minted_parse(id, session, &seq, &ts_us);
    meter_event_key(lane_salt(call->api->lane), id, lookup->key);
    if (lookup->minted) {
        pg_param_text(params, call_tenant(call));
        pg_param_time(params, ts_us);
        pg_param_text(params, id);
        call_read(call, STATEMENT_EVENT_READ_MINTED, event_read_cb);
    } else {
        pg_param_text(params, call->config->idempotency.across_tenants
                                  ? METER_STR("")
                                  : call_tenant(call));
        pg_param_uuid(params, lookup->key);
        call_read(call, STATEMENT_EVENT_FIND, event_found_cb);
    }
}

/* The registry row: ts, part_day, first_seen_at, tenant. */
static void
event_found_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params *params = call_params(call);

    if (pg_row_count(answer->result) == 0 ||
        !meter_str_equal(pg_get_bytes(answer->result, 0, 3),
                         call_tenant(call))) {
        event_not_found(call);
        return;
    }
    lookup->first_seen_at = pg_get_time(answer->result, 0, 2);
    pg_param_date(params, pg_get_date(answer->result, 0, 1));
    pg_param_text(params, call_tenant(call));
    pg_param_time(params, pg_get_time(answer->result, 0, 0));
    pg_param_text(params, lookup->id);
    call_read(call, STATEMENT_EVENT_READ, event_read_cb);
}

static void
event_gone(struct api_call *call, const struct event_lookup *lookup)
{
    struct json_writer *json = &call->json;

    json_object_begin(json);
    member_text(json, "error", "the event was counted and is past retention");
    member_string(json, "event_id", lookup->id);
    member_time(json, "first_seen_at", lookup->first_seen_at);
    json_object_end(json);
    call_answer(call, 410);
}


static void
event_read_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct event_lookup *lookup = call->state;
    struct pg_params *params = call_params(call);

    if (pg_row_count(answer->result) == 0) {
        if (lookup->minted) {
            event_not_found(call);
        } else {
            event_gone(call, lookup);
        }
        return;
    }
    if (lookup->minted) {
        lookup->first_seen_at =
            pg_get_time(answer->result, 0, EVENT_RECORDED_AT);
    }
    event_put(&call->json, answer->result, 0,
              &(struct event_frame){.event_id = lookup->id,
                                    .tenant = call_tenant(call),
                                    .first_seen_at = &lookup->first_seen_at});
    pg_param_text(params, call_tenant(call));
    pg_param_uuid(params, lookup->key);
    pg_param_text(params, lookup->id);
    pg_param_date(params, meter_time_day(lookup->first_seen_at));
    pg_param_int4(params, AUDITS_MAX);
    call_read(call, STATEMENT_AUDIT_LIST, event_audits_cb);
}


/* ---- the audits ------------------------------------------------------ */

/* What came is shown where it is not the stored event itself. */
static void
event_put_audit(struct json_writer *json, const void *rows, int row)
{
    static const struct member payload[] = {
        {"type", MEMBER_STRING, AUDIT_TYPE},
        {"ts", MEMBER_TIME, AUDIT_TS},
        {"payload", MEMBER_RAW, AUDIT_PAYLOAD},
    };
    bool conflict =
        pg_get_int4(rows, row, AUDIT_VERDICT) == METER_VERDICT_CONFLICT;

    json_object_begin(json);
    member_text(json, "verdict",
                meter_verdict_name(conflict ? METER_VERDICT_CONFLICT
                                            : METER_VERDICT_DUPLICATE));
    member_time(json, "seen_at", pg_get_time(rows, row, AUDIT_SEEN_AT));
    if (!pg_is_null(rows, row, AUDIT_PAYLOAD)) {
        MEMBERS_OF_ROW(json, payload, rows, row);
    }
    json_object_end(json);
}

static void
event_audits_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    struct json_writer *json = &call->json;
    int count = pg_row_count(answer->result);

    member_int(json, "duplicate_count",
               count == 0 ? 0
                          : pg_get_int8(answer->result, 0, AUDIT_DUPLICATES));
    member_int(json, "conflict_count",
               count == 0 ? 0
                          : pg_get_int8(answer->result, 0, AUDIT_CONFLICTS));
    json_key(json, "duplicates");
    json_array_begin(json);
    for (int row = 0; row < count; row++) {
        event_put_audit(json, answer->result, row);
    }
    json_array_end(json);
    json_object_end(json);
    call_answer(call, 200);
}


/* ---- searching -------------------------------------------------------- */

#define SEARCH_TIME_MAX_US (3 * 1000 * 1000) /* then what was found */
#define SEARCH_ANSWER_SIZE (8u << 20)        /* likewise */
#define SCRATCH_BLOCK_SIZE 16384
#define SCRATCH_SIZE_MAX   (16u << 20)

#define WINDOW_FIRST_US METER_TIME_DAY /* what a partition holds */
#define WINDOW_GROWTH   4
#define VALUES_FEW      4 /* that many are walked along without windows */

#define SEARCH_PAGE_ROWS_MIN 100  /* the first page */
#define SEARCH_PAGE_ROWS_MAX 2000 /* and fewer of large events */
#define SEARCH_PAGE_SIZE_MAX (4u << 20)
#define SEARCH_BUDGET_ROWS   50000

#define SEARCH_PLACE_SIZE 32 /* [ts 8][writer 16][writer_seq 8] */

/* Of an event; what is asked for comes strictly after. */
struct search_place {
    int64_t ts_us;
    uint8_t writer[16];
    int64_t writer_seq;
};

/* One page, as the statements take it. */
struct search_walk {
    const struct search *search;
    struct search_place after;
    int64_t from_us; /* of the window */
    int64_t window_us;
    int64_t rows;     /* at most */
    int64_t scanned;  /* candidates so far */
    size_t page_size; /* bytes of events of this page */
};

enum search_walk_next {
    SEARCH_WALK_MORE,  /* another page */
    SEARCH_WALK_SPENT, /* the budget is: more may follow */
    SEARCH_WALK_END    /* the range is through */
};

/* Members after those of enum search_member. */
enum { MEMBER_LIMIT = SEARCH_MEMBERS, MEMBER_CURSOR, MEMBERS };

/* Columns after those of enum event_column. */
enum {
    SEARCH_EVENT_ID = EVENT_COLUMNS,
    SEARCH_WRITER,
    SEARCH_WRITER_SEQ,
    SEARCH_CANDIDATES
};

/* The call's state. */
struct search_question {
    struct search search;
    struct search_walk walk;
    struct page page;
    int64_t found;
};

/* What a page of candidates has come to. */
enum search_state {
    SEARCH_GOES_ON,
    SEARCH_COMPLETE, /* the end of the range */
    SEARCH_FULL,     /* as many events as were asked for */
    SEARCH_STOPPED   /* before that; the cursor goes on */
};

static void search_cb(void *asker, const struct pg_answer *answer);


/* ---- walking --------------------------------------------------------- */

static int64_t
walk_later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void
walk_window_set(struct search_walk *walk, int64_t until_us)
{
    const struct search *search = walk->search;

    walk->from_us = until_us - search->from_us <= walk->window_us
                        ? search->from_us
                        : until_us - walk->window_us;
}

/* The index gives entries of one value in order of time by itself. */
static bool
walk_needs_windows(const struct search_drive *drive)
{
    return drive->kind != SEARCH_DRIVE_VALUES ||
           drive->value_count > VALUES_FEW;
}

/* after NULL: from the start. search must outlive the walk. */
static void
search_walk_begin(struct search_walk *walk, const struct search *search,
                  const struct search_place *after, int64_t now_us)
{
    int64_t until_us;

    *walk = (struct search_walk){
        .search = search,
        .after = {.ts_us = search->to_us},
        .from_us = search->from_us,
        .window_us = WINDOW_FIRST_US,
        .rows = SEARCH_PAGE_ROWS_MIN,
    };
    if (after != NULL) {
        walk->after = *after;
    }
    if (walk_needs_windows(&search->drive)) {
        until_us = walk->after.ts_us < now_us ? walk->after.ts_us : now_us;
        walk_window_set(walk, walk_later(until_us, search->from_us));
    }
}

static bool
walk_is_same(const struct search_place *a, const struct search_place *b)
{
    return a->ts_us == b->ts_us && a->writer_seq == b->writer_seq &&
           memcmp(a->writer, b->writer, sizeof(a->writer)) == 0;
}

/*
 * An event of the page came, of so many bytes. False: it was the last one
 * already: two entries of the index lead to it.
 */
static bool
search_walk_row(struct search_walk *walk, const struct search_place *place,
                size_t size)
{
    if (walk_is_same(&walk->after, place)) {
        return false;
    }
    walk->after = *place;
    walk->page_size += size;
    return true;
}

/* More rows while they are small. */
static void
walk_rows_set(struct search_walk *walk, int64_t candidates)
{
    int64_t size = (int64_t)walk->page_size / (candidates > 0 ? candidates : 1);
    int64_t fit = (int64_t)SEARCH_PAGE_SIZE_MAX / (size > 0 ? size : 1);

    walk->rows *= 2;
    if (walk->rows > fit) {
        walk->rows = fit;
    }
    if (walk->rows > SEARCH_PAGE_ROWS_MAX) {
        walk->rows = SEARCH_PAGE_ROWS_MAX;
    }
    walk->rows = walk_later(walk->rows, SEARCH_PAGE_ROWS_MIN);
    walk->page_size = 0;
}

/*
 * The page is through: it had so many candidates, the last one at *end. An
 * entry without its event is a candidate too.
 */
static enum search_walk_next
search_walk_page(struct search_walk *walk, int64_t candidates,
                 const struct search_place *end)
{
    bool is_full = candidates >= walk->rows;

    walk->scanned += candidates;
    if (is_full) {
        walk->after = *end;
        if (walk_needs_windows(&walk->search->drive)) {
            walk_window_set(walk, walk->after.ts_us);
        }
    } else if (walk->from_us <= walk->search->from_us) {
        return SEARCH_WALK_END;
    } else {
        walk->after = (struct search_place){.ts_us = walk->from_us};
        walk->window_us *= WINDOW_GROWTH;
        walk_window_set(walk, walk->from_us);
    }
    walk_rows_set(walk, candidates);
    return walk->scanned >= SEARCH_BUDGET_ROWS ? SEARCH_WALK_SPENT
                                               : SEARCH_WALK_MORE;
}


/* ---- places ---------------------------------------------------------- */

/* The key of a cursor and back; false: it is none of this search. */
static void
search_place_write(const struct search_place *place,
                   char out[SEARCH_PLACE_SIZE])
{
    struct meter_writer writer;

    meter_writer_init(&writer, out, SEARCH_PLACE_SIZE);
    meter_put_u64(&writer, (uint64_t)place->ts_us);
    meter_put_bytes(&writer, place->writer, sizeof(place->writer));
    meter_put_u64(&writer, (uint64_t)place->writer_seq);
    CHECK(!writer.failed && writer.at == SEARCH_PLACE_SIZE);
}

static bool
search_place_read(const struct search *search, struct meter_str key,
                  struct search_place *out)
{
    struct meter_reader reader;
    struct meter_str bytes;

    meter_reader_init(&reader, key.data, key.size);
    out->ts_us = (int64_t)meter_get_u64(&reader);
    bytes = meter_get_bytes(&reader, sizeof(out->writer));
    out->writer_seq = (int64_t)meter_get_u64(&reader);
    if (reader.failed || meter_reader_left(&reader) > 0 ||
        out->ts_us < search->from_us || out->ts_us > search->to_us) {
        return false;
    }
    memcpy(out->writer, bytes.data, sizeof(out->writer));
    return true;
}


/* ---- asking ---------------------------------------------------------- */

/* Behind what all three statements take. */
static enum statement
param_drive(struct pg_params *params, const struct search_drive *drive)
{
    if (drive->kind == SEARCH_DRIVE_LEDGER) {
        return STATEMENT_SEARCH_LEDGER;
    }
    pg_param_text(params, drive->attribute);
    if (drive->kind == SEARCH_DRIVE_VALUES) {
        pg_param_array_begin(params, PG_TEXT, drive->value_count);
        for (size_t i = 0; i < drive->value_count; i++) {
            pg_put_text(&params->bytes, drive->values[i]);
        }
        pg_param_array_end(params);
        return STATEMENT_SEARCH_VALUES;
    }
    pg_param_text(params, drive->low);
    pg_param_text(params, drive->high);
    pg_param_text(params, drive->number_low);
    pg_param_text(params, drive->number_high);
    return STATEMENT_SEARCH_RANGE;
}

static void
search_ask(struct api_call *call)
{
    const struct search_question *question = call->state;
    const struct search *search = &question->search;
    const struct search_walk *walk = &question->walk;
    struct pg_params *params = call_params(call);
    enum statement statement;

    pg_param_text(params, call_tenant(call));
    pg_param_text(params, search->type);
    pg_param_time(params, walk->from_us);
    pg_param_time(params, walk->after.ts_us);
    pg_param_uuid(params, walk->after.writer);
    pg_param_int8(params, walk->after.writer_seq);
    pg_param_int8(params, walk->rows);
    statement = param_drive(params, &search->drive);
    call_read(call, statement, search_cb);
}

/* All that must stay the same from page to page. False: no memory. */
static bool
question_ask(struct api_call *call, struct page *page,
             const struct json_value *const *values)
{
    page_init(page);
    page_ask(page, METER_STR("search"));
    page_ask(page, call_tenant(call));
    for (int i = 0; i < SEARCH_MEMBERS; i++) {
        struct meter_str json = METER_STR("");

        if (values[i] != NULL &&
            !json_canonical(values[i], &call->arena, &json)) {
            return false;
        }
        page_ask(page, json);
    }
    return true;
}

/* limit and cursor, as if they were arguments of a path. */
static const char *
page_members_read(struct api_call *call, struct page *page,
                  const struct json_value *const *values)
{
    struct url_arguments *arguments =
        arena_zalloc(&call->arena, sizeof(*arguments));
    const struct json_value *limit = values[MEMBER_LIMIT];
    const struct json_value *cursor = values[MEMBER_CURSOR];
    const char *error = NULL;

    if (arguments == NULL) {
        return "the search takes too much memory";
    }
    if (limit != NULL) {
        arguments->items[arguments->count++] = (struct url_argument){
            METER_STR("limit"),
            limit->kind == JSON_NUMBER ? limit->text : METER_STR("")};
    }
    if (cursor != NULL && cursor->kind != JSON_STRING) {
        return PAGE_ERROR_CURSOR;
    }
    if (cursor != NULL) {
        arguments->items[arguments->count++] =
            (struct url_argument){METER_STR("cursor"), cursor->text};
    }
    return page_read(page, arguments, &call->arena, &error) ? NULL : error;
}

/* NULL, or a sentence for a 400. */
static const char *
question_read(struct api_call *call, struct search_question *question,
              const struct json_value *const *values)
{
    struct search_place after;
    const char *error;

    if (!search_read(call->config->catalog, values, &call->arena,
                     &question->search, &error)) {
        return error;
    }
    if (!question_ask(call, &question->page, values)) {
        return "the search takes too much memory";
    }
    error = page_members_read(call, &question->page, values);
    if (error != NULL) {
        return error;
    }
    if (question->page.after.data != NULL &&
        !search_place_read(&question->search, question->page.after, &after)) {
        return PAGE_ERROR_CURSOR;
    }
    search_walk_begin(&question->walk, &question->search,
                      question->page.after.data != NULL ? &after : NULL,
                      lane_now_us(call->api->lane));
    return NULL;
}

static void
search_post(struct api_call *call)
{
    const char *names[MEMBERS];
    const struct json_value *values[MEMBERS];
    struct search_question *question;
    const char *error;

    for (int i = 0; i < SEARCH_MEMBERS; i++) {
        names[i] = search_member_names[i];
    }
    names[MEMBER_LIMIT] = "limit";
    names[MEMBER_CURSOR] = "cursor";
    if (!body_read(call, names, MEMBERS, values)) {
        return;
    }
    question = call_state(call, sizeof(*question));
    if (question == NULL) {
        return;
    }
    error = question_read(call, question, values);
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return;
    }
    json_object_begin(&call->json);
    json_key(&call->json, "events");
    json_array_begin(&call->json);
    search_ask(call);
}


/* ---- answering ------------------------------------------------------- */

static struct search_place
place_of(const void *result, int row)
{
    struct search_place place = {
        .ts_us = pg_get_time(result, row, EVENT_TS),
        .writer_seq = pg_get_int8(result, row, SEARCH_WRITER_SEQ),
    };
    struct meter_str writer = pg_get_bytes(result, row, SEARCH_WRITER);

    CHECK(writer.size == sizeof(place.writer));
    memcpy(place.writer, writer.data, sizeof(place.writer));
    return place;
}

static struct meter_str
text_of(const void *result, int row, int column)
{
    return pg_is_null(result, row, column) ? (struct meter_str){NULL, 0}
                                           : pg_get_bytes(result, row, column);
}

static bool
event_matches(const struct search *search, const void *result, int row,
              struct arena *scratch)
{
    static const struct json_value nothing = {.kind = JSON_OBJECT};
    static const struct json_limits limits = {
        .depth_max = JSON_DEPTH_LIMIT,
        .key_count_max = SIZE_MAX,
        .name_size_max = SIZE_MAX,
        .string_size_max = SIZE_MAX,
    };
    struct search_event event = {
        .type = text_of(result, row, EVENT_TYPE),
        .customer = text_of(result, row, EVENT_CUSTOMER),
        .resource = text_of(result, row, EVENT_RESOURCE),
        .attributes = &nothing,
    };
    struct json_value attributes;
    struct json_error error;
    size_t used;

    arena_reset(scratch);
    if (search->term_count > 0) {
        if (json_read(pg_get_bytes(result, row, EVENT_ATTRIBUTES), &limits,
                      scratch, &attributes, &used, &error) &&
            attributes.kind == JSON_OBJECT) {
            event.attributes = &attributes;
        } else {
            log_error("api", "attributes of a stored event cannot be read",
                      log_str("reason", error.text));
        }
    }
    return search_matches(search, &event);
}

/* Candidates of a page until it is through, or enough was found. */
static enum search_state
page_judge(struct api_call *call, const void *result, struct arena *scratch)
{
    struct search_question *question = call->state;
    struct search_walk *walk = &question->walk;
    int count = pg_row_count(result);

    for (int row = 0; row < count; row++) {
        struct search_place place = place_of(result, row);

        if (!pg_is_null(result, row, SEARCH_CANDIDATES)) {
            CHECK(row == count - 1);
            switch (search_walk_page(
                walk, pg_get_int8(result, row, SEARCH_CANDIDATES), &place)) {
            case SEARCH_WALK_MORE: return SEARCH_GOES_ON;
            case SEARCH_WALK_SPENT: return SEARCH_STOPPED;
            case SEARCH_WALK_END: return SEARCH_COMPLETE;
            }
        }
        if (!search_walk_row(
                walk, &place,
                pg_get_bytes(result, row, EVENT_ATTRIBUTES).size) ||
            !event_matches(&question->search, result, row, scratch)) {
            continue;
        }
        event_put(&call->json, result, row,
                  &(struct event_frame){
                      .event_id = pg_get_bytes(result, row, SEARCH_EVENT_ID),
                      .tenant = call_tenant(call)});
        json_object_end(&call->json);
        if (++question->found == question->page.limit) {
            return SEARCH_FULL;
        }
        if (call->out.size > SEARCH_ANSWER_SIZE) {
            return SEARCH_STOPPED;
        }
    }
    /* Nothing in the window. */
    return search_walk_page(walk, 0, &walk->after) == SEARCH_WALK_END
               ? SEARCH_COMPLETE
               : SEARCH_GOES_ON;
}

static void
search_answer(struct api_call *call, enum search_state state)
{
    const struct search_question *question = call->state;
    char key[SEARCH_PLACE_SIZE];
    char cursor[PAGE_CURSOR_SIZE_MAX + 1];
    bool has_more;

    search_place_write(&question->walk.after, key);
    has_more = state != SEARCH_COMPLETE &&
               page_cursor(&question->page, (int)question->page.limit + 1,
                           (struct meter_str){key, sizeof(key)}, cursor);
    json_array_end(&call->json);
    json_key(&call->json, "cursor");
    if (has_more) {
        json_text(&call->json, cursor);
    } else {
        json_null(&call->json);
    }
    member_bool(&call->json, "complete", state != SEARCH_STOPPED);
    json_object_end(&call->json);
    call_answer(call, 200);
}

static void
search_cb(void *asker, const struct pg_answer *answer)
{
    struct api_call *call = asker;
    enum search_state state;
    struct arena scratch;

    arena_init(&scratch, SCRATCH_BLOCK_SIZE, SCRATCH_SIZE_MAX);
    state = page_judge(call, answer->result, &scratch);
    arena_fini(&scratch);
    if (state == SEARCH_GOES_ON &&
        clock_mono_us() - call->started_us > SEARCH_TIME_MAX_US) {
        state = SEARCH_STOPPED;
    }
    if (state == SEARCH_GOES_ON) {
        search_ask(call);
    } else {
        search_answer(call, state);
    }
}


static const struct route event_routes[] = {
    {METER_METHOD_GET, "/v1/events", TOKEN_SCOPE_READ, event_find},
    {METER_METHOD_GET, "/v1/events/{event_id}", TOKEN_SCOPE_READ, event_get},
    {METER_METHOD_POST, "/v1/search", TOKEN_SCOPE_READ, search_post},
};

const struct resource event_resource = {
    RESOURCE_ROUTES(event_routes),
};
