/*
 * dead_letter.c - `meterd dead-letter`: lists, shows and replays records of
 * the edge that had to be rejected.
 *
 *   list, show  letter_store -> a line, fields or JSON -> stdout
 *   replay      dead_letter_replay.c
 *
 * The identity of a letter is its session in 32 hexadecimal digits, a '-' and
 * its sequence number: the same two words that stand in a minted id. A letter
 * may be one because nobody could read it: whatever does not decode is shown
 * as hexadecimal digits. Exit status: 0 done, 1 not or not all (no such
 * letter, still rejected, no database), 2 usage.
 */

#include "base/json_writer.h"
#include "base/process.h"
#include "cmd/command.h"
#include "cmd/replay.h"
#include "meter_ring.h"
#include "meter_time.h"

#define COMMAND       "dead-letter"
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     100000
#define REASONS_MAX   10
#define OUTPUT_MAX    ((size_t)1 << 30)
#define FIELD_FORMAT  "%-12s"
#define HEX_SIZE_STEP 256

struct letter_line {
    struct command_line line;
    const char *tenant;
    int64_t since_us;
    int64_t limit;
    bool is_json;
    bool is_all;
    bool is_dry;
    struct letter_identity identity; /* of the word */
};


/* ---- records ---------------------------------------------------------- */

static const char *const letter_kind_names[] = {
    [METER_RECORD_PAD] = "pad",           [METER_RECORD_EVENT] = "event",
    [METER_RECORD_DELTA] = "delta",       [METER_RECORD_DUPNOTE] = "dupnote",
    [METER_RECORD_LOSSNOTE] = "lossnote",
};

/* A record as far as it can be read. */
struct letter_reading {
    const char *kind; /* NULL: not a record at all */
    bool has_event;
    bool has_loss;
    struct meter_record_event event;
    struct meter_loss loss;
};

static void
letter_record_decode(struct meter_str bytes, struct letter_reading *out)
{
    struct meter_record record;
    size_t used;

    out->kind = NULL;
    out->has_event = false;
    out->has_loss = false;
    if (meter_record_decode(bytes.data, bytes.size, &record, &used) !=
            METER_DECODE_OK ||
        record.kind >=
            sizeof(letter_kind_names) / sizeof(letter_kind_names[0])) {
        return;
    }
    out->kind = letter_kind_names[record.kind];
    if (record.kind == METER_RECORD_LOSSNOTE) {
        out->has_loss = meter_loss_decode(record.body, &out->loss);
    } else {
        out->has_event = meter_record_event_decode(record.body, &out->event);
    }
}


/* ---- identities ------------------------------------------------------- */

static int
letter_hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* The session's digits; NULL: not there. A UUID has its dashes at the even
   places 4, 6, 8 and 10, all of them or none. */
static const char *
letter_session_parse(const char *text, uint8_t session[LETTER_SESSION_SIZE])
{
    bool is_uuid = strlen(text) > 8 && text[8] == '-';

    for (int i = 0; i < LETTER_SESSION_SIZE; i++) {
        int high;
        int low;

        if (is_uuid && (i == 4 || i == 6 || i == 8 || i == 10)) {
            if (*text++ != '-') {
                return NULL;
            }
        }
        high = letter_hex_value(text[0]);
        low = high < 0 ? -1 : letter_hex_value(text[1]);
        if (low < 0) {
            return NULL;
        }
        session[i] = (uint8_t)(high << 4 | low);
        text += 2;
    }
    return text;
}

/* The session may have the dashes of a UUID. False: no identity. */
static bool
dead_letter_identity_parse(const char *text, struct letter_identity *out)
{
    int64_t seq = 0;

    text = letter_session_parse(text, out->session);
    if (text == NULL || *text++ != '-' || *text == '\0') {
        return false;
    }
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' ||
            __builtin_mul_overflow(seq, 10, &seq) ||
            __builtin_add_overflow(seq, *text - '0', &seq)) {
            return false;
        }
    }
    out->seq = seq;
    return true;
}


/* ---- for people ------------------------------------------------------- */

/* A column of at least this width, and two spaces. */
static void
letter_put_column(struct buf *out, struct meter_str text, size_t width)
{
    size_t end = out->size + width;

    buf_put_printable(out, text);
    while (!out->failed && out->size < end) {
        buf_put_byte(out, ' ');
    }
    buf_put_text(out, "  ");
}

static struct meter_str
letter_row_identity(const struct letter_row *row,
                    char text[LETTER_IDENTITY_SIZE])
{
    if (!row->has_identity) {
        return METER_STR("-");
    }
    dead_letter_identity_format(&row->identity, text);
    return (struct meter_str){text, strlen(text)};
}

static void
dead_letter_put_head(struct buf *out)
{
    buf_printf(out, "%-27s  %-16s  %-38s  %-16s  %s\n", "RECORDED", "TENANT",
               "IDENTITY", "TYPE", "REASON");
}

/* One line with its end. */
static void
dead_letter_put_line(struct buf *out, const struct letter_row *row)
{
    char recorded[METER_TIME_TEXT_SIZE + 1];
    char identity[LETTER_IDENTITY_SIZE];
    struct meter_str type = METER_STR("-");
    struct letter_reading reading;

    letter_record_decode(row->record, &reading);
    if (reading.has_event) {
        type = reading.event.type;
    }
    meter_time_format(row->recorded_us, recorded);
    letter_put_column(out, (struct meter_str){recorded, METER_TIME_TEXT_SIZE},
                      27);
    letter_put_column(out, row->tenant, 16);
    letter_put_column(out, letter_row_identity(row, identity), 38);
    letter_put_column(out, type, 16);
    buf_put_printable(out, row->reason);
    buf_put_byte(out, '\n');
}


/* ---- JSON ------------------------------------------------------------- */

static void
letter_json_field(struct json_writer *json, const char *key,
                  struct meter_str value)
{
    if (value.size > 0) {
        json_key(json, key);
        json_string(json, value);
    }
}

/* As the edge sent it: fields that are empty are absent. */
static void
letter_json_event(struct json_writer *json,
                  const struct meter_record_event *event)
{
    json_object_begin(json);
    letter_json_field(json, "tenant", event->tenant);
    letter_json_field(json, "type", event->type);
    letter_json_field(json, "event_id", event->event_id);
    json_key(json, "ts");
    json_time(json, event->ts_us);
    letter_json_field(json, "customer", event->customer);
    letter_json_field(json, "resource", event->resource);
    letter_json_field(json, "quantity", event->quantity);
    json_key(json, "count");
    json_int(json, event->count);
    json_key(json, "flags");
    json_int(json, event->flags);
    json_key(json, "attributes");
    json_object_begin(json);
    for (size_t i = 0; i < event->attribute_count; i++) {
        json_key_str(json, event->attributes[i].name);
        json_string(json, event->attributes[i].value);
    }
    json_object_end(json);
    json_object_end(json);
}

static void
letter_json_loss(struct json_writer *json, const struct meter_loss *loss)
{
    json_object_begin(json);
    json_key(json, "count");
    json_int_string(json, (int64_t)loss->count);
    json_key(json, "first");
    json_time(json, loss->first_us);
    json_key(json, "last");
    json_time(json, loss->last_us);
    json_key(json, "reasons");
    json_int(json, loss->reasons);
    json_object_end(json);
}

/* Bytes that nobody can read, as digits. */
static void
letter_json_hex(struct json_writer *json, struct meter_str bytes)
{
    char digits[2 * HEX_SIZE_STEP + 1];

    json_raw(json, METER_STR("\""));
    while (bytes.size > 0) {
        size_t size = bytes.size < HEX_SIZE_STEP ? bytes.size : HEX_SIZE_STEP;

        meter_hex((const uint8_t *)bytes.data, size, digits);
        buf_put_text(json->out, digits);
        bytes.data += size;
        bytes.size -= size;
    }
    buf_put_byte(json->out, '"');
}

static const char *
letter_content_name(const struct letter_reading *reading)
{
    if (reading->has_event) {
        return "event";
    }
    return reading->has_loss ? "loss" : "bytes";
}

static void
letter_json_content(struct json_writer *json, struct meter_str record,
                    const struct letter_reading *reading)
{
    if (reading->has_event) {
        letter_json_event(json, &reading->event);
    } else if (reading->has_loss) {
        letter_json_loss(json, &reading->loss);
    } else {
        letter_json_hex(json, record);
    }
}

static void
letter_json_row(struct json_writer *json, const struct letter_row *row,
                const struct letter_reading *reading)
{
    char identity[LETTER_IDENTITY_SIZE];

    json_key(json, "recorded_at");
    json_time(json, row->recorded_us);
    json_key(json, "tenant");
    json_string(json, row->tenant);
    json_key(json, "identity");
    json_string(json, letter_row_identity(row, identity));
    json_key(json, "kind");
    json_text(json, reading->kind == NULL ? "?" : reading->kind);
    json_key(json, "type");
    json_string(json, reading->has_event ? reading->event.type : METER_STR(""));
    json_key(json, "reason");
    json_string(json, row->reason);
}

/* An object; is_whole: with the decoded record. */
static void
dead_letter_json(struct json_writer *json, const struct letter_row *row,
                 bool is_whole)
{
    struct letter_reading reading;

    letter_record_decode(row->record, &reading);
    json_object_begin(json);
    letter_json_row(json, row, &reading);
    if (is_whole) {
        json_key(json, "node");
        json_string(json, row->node);
        json_key(json, "size");
        json_int(json, (int64_t)row->record.size);
        json_key(json, letter_content_name(&reading));
        letter_json_content(json, row->record, &reading);
    }
    json_object_end(json);
}

static void
letter_put_field(struct buf *out, const char *name, struct meter_str value)
{
    buf_printf(out, FIELD_FORMAT, name);
    buf_put_printable(out, value);
    buf_put_byte(out, '\n');
}

/* Everything, a field on each line; the event as JSON. */
static void
dead_letter_put_fields(struct buf *out, const struct letter_row *row)
{
    char recorded[METER_TIME_TEXT_SIZE + 1];
    char identity[LETTER_IDENTITY_SIZE];
    struct json_writer json;
    struct letter_reading reading;

    letter_record_decode(row->record, &reading);
    meter_time_format(row->recorded_us, recorded);
    letter_put_field(out, "identity", letter_row_identity(row, identity));
    letter_put_field(out, "recorded at",
                     (struct meter_str){recorded, METER_TIME_TEXT_SIZE});
    letter_put_field(out, "tenant", row->tenant);
    letter_put_field(out, "reason", row->reason);
    letter_put_field(out, "node",
                     row->node.data == NULL ? METER_STR("-") : row->node);
    buf_printf(out, FIELD_FORMAT "%s, %zu bytes\n", "record",
               reading.kind == NULL ? "damaged" : reading.kind,
               row->record.size);
    buf_printf(out, FIELD_FORMAT, letter_content_name(&reading));
    json_writer_init(&json, out);
    letter_json_content(&json, row->record, &reading);
    buf_put_byte(out, '\n');
}


/* ---- list ------------------------------------------------------------- */

/* What is read goes into a buffer: a list that cannot be had shows none. */
struct letter_output {
    struct buf text;
    struct json_writer json;
    bool is_json;
    size_t count; /* of letters or reasons */
    int64_t told; /* letters whose reason was told */
};

static void
letter_list_row(void *asker, const struct letter_row *row)
{
    struct letter_output *out = asker;

    if (out->is_json) {
        dead_letter_json(&out->json, row, false);
    } else {
        dead_letter_put_line(&out->text, row);
    }
}

static void
letter_list_reason(void *asker, struct meter_str reason, int64_t letters)
{
    struct letter_output *out = asker;

    out->told += letters;
    if (out->is_json) {
        json_object_begin(&out->json);
        json_key(&out->json, "reason");
        json_string(&out->json, reason);
        json_key(&out->json, "letters");
        json_int(&out->json, letters);
        json_object_end(&out->json);
        return;
    }
    buf_printf(&out->text, "%s%lld ", out->count++ == 0 ? ": " : "; ",
               (long long)letters);
    buf_put_printable(&out->text, reason);
}

/* Letters, or the reasons of all of them. */
static struct letter_filter
letter_filter(const struct letter_line *wanted, int64_t limit)
{
    return (struct letter_filter){
        .tenant = wanted->tenant, .since_us = wanted->since_us, .limit = limit};
}

static bool
letter_list_json(struct letter_store *store, const struct letter_line *wanted,
                 struct letter_output *out)
{
    const struct letter_filter letters = letter_filter(wanted, wanted->limit);
    const struct letter_filter reasons = letter_filter(wanted, REASONS_MAX);
    int64_t total;

    json_object_begin(&out->json);
    json_key(&out->json, "letters");
    json_array_begin(&out->json);
    if (!letter_store_list(store, &letters, letter_list_row, out)) {
        return false;
    }
    json_array_end(&out->json);
    json_key(&out->json, "reasons");
    json_array_begin(&out->json);
    if (!letter_store_reasons(store, &reasons, letter_list_reason, out,
                              &total)) {
        return false;
    }
    json_array_end(&out->json);
    json_key(&out->json, "total");
    json_int(&out->json, total);
    json_object_end(&out->json);
    buf_put_byte(&out->text, '\n');
    return true;
}

/* The last line says how many there are in all, then why. */
static bool
letter_list_text(struct letter_store *store, const struct letter_line *wanted,
                 struct letter_output *out)
{
    const struct letter_filter letters = letter_filter(wanted, wanted->limit);
    const struct letter_filter reasons = letter_filter(wanted, REASONS_MAX);
    struct letter_output summary = {.count = 0};
    int64_t total;
    bool is_good;

    dead_letter_put_head(&out->text);
    buf_init(&summary.text, OUTPUT_MAX);
    is_good = letter_store_list(store, &letters, letter_list_row, out) &&
              letter_store_reasons(store, &reasons, letter_list_reason,
                                   &summary, &total);
    if (is_good) {
        buf_printf(&out->text, "%lld in all", (long long)total);
        buf_put_str(&out->text, buf_str(&summary.text));
        if (summary.told < total) {
            buf_printf(&out->text, "; %lld others",
                       (long long)(total - summary.told));
        }
        buf_put_byte(&out->text, '\n');
    }
    out->text.failed = out->text.failed || summary.text.failed;
    buf_fini(&summary.text);
    return is_good;
}

/* Prints what was filled in; the status of the command. */
static int
letter_output_end(struct letter_output *out, bool is_good)
{
    if (is_good && out->text.failed) {
        fputs("meterd " COMMAND ": out of memory\n", stderr);
        is_good = false;
    }
    if (is_good) {
        fwrite(out->text.data, 1, out->text.size, stdout);
    }
    buf_fini(&out->text);
    return is_good ? PROCESS_OK : PROCESS_FAILED;
}

static int
letter_list(void *data)
{
    const struct letter_line *wanted = data;
    struct letter_store *store =
        letter_store_open(wanted->line.config->database);
    struct letter_output out = {.is_json = wanted->is_json};
    bool is_good = false;

    buf_init(&out.text, OUTPUT_MAX);
    json_writer_init(&out.json, &out.text);
    if (store != NULL) {
        is_good = wanted->is_json ? letter_list_json(store, wanted, &out)
                                  : letter_list_text(store, wanted, &out);
    }
    letter_store_close(store);
    return letter_output_end(&out, is_good);
}


/* ---- show and replay -------------------------------------------------- */

static void
letter_show_row(void *asker, const struct letter_row *row)
{
    struct letter_output *out = asker;

    out->count++;
    if (out->is_json) {
        json_writer_init(&out->json, &out->text);
        dead_letter_json(&out->json, row, true);
        buf_put_byte(&out->text, '\n');
    } else {
        dead_letter_put_fields(&out->text, row);
    }
}

static int
letter_show(void *data)
{
    const struct letter_line *wanted = data;
    struct letter_store *store =
        letter_store_open(wanted->line.config->database);
    struct letter_output out = {.is_json = wanted->is_json};
    bool is_good;

    buf_init(&out.text, OUTPUT_MAX);
    is_good = store != NULL && letter_store_read(store, &wanted->identity, 1,
                                                 letter_show_row, &out);
    letter_store_close(store);
    if (is_good && out.count == 0) {
        fputs("meterd " COMMAND ": there is no dead letter with this "
              "identity\n",
              stderr);
        is_good = false;
    }
    return letter_output_end(&out, is_good);
}

static int
letter_replay(void *data)
{
    const struct letter_line *wanted = data;
    const struct dead_letter_options options = {
        .config = wanted->line.config,
        .identity = wanted->line.word_count == 0 ? NULL : &wanted->identity,
        .tenant = wanted->tenant,
        .is_dry = wanted->is_dry,
    };

    return dead_letter_replay(&options);
}


/* ---- the command ------------------------------------------------------ */

enum { LIST = 1 << 0, SHOW = 1 << 1, REPLAY = 1 << 2 };

static const struct command_verb letter_verbs[] = {
    {"list", letter_list, CONFIG_NEEDS_DATABASE},
    {"show", letter_show, CONFIG_NEEDS_DATABASE, "the identity of a letter", 1,
     1},
    {"replay", letter_replay,
     CONFIG_NEEDS_DATABASE | CONFIG_NEEDS_ADMIN_DATABASE |
         CONFIG_NEEDS_STATE_DIR,
     "an identity, --tenant or --all", 0, 1},
    {NULL},
};

static const char *
letter_check(void *data)
{
    struct letter_line *wanted = data;
    size_t count = wanted->line.word_count;

    /* Exactly one word says which letters. */
    if (wanted->line.verb->run == letter_replay &&
        count + (wanted->tenant != NULL) + wanted->is_all != 1) {
        return "replay needs an identity, --tenant or --all";
    }
    if (count > 0 &&
        !dead_letter_identity_parse(wanted->line.words[0], &wanted->identity)) {
        return "an identity is 32 hexadecimal digits, a '-' and a number";
    }
    if (wanted->is_dry) {
        wanted->line.needs = CONFIG_NEEDS_DATABASE;
    }
    return NULL;
}

static const struct command_option letter_options[] = {
    {"tenant", 0, COMMAND_TEXT, offsetof(struct letter_line, tenant), "T",
     "whose letters; \"-\": those that name no tenant", LIST | REPLAY},
    {"since", 0, COMMAND_TIME, offsetof(struct letter_line, since_us), "TIME",
     "rejected then or later, as 2026-09-01T12:00:00Z", LIST},
    {"limit", 0, COMMAND_NUMBER, offsetof(struct letter_line, limit), "N",
     "at most so many", LIST, 1, LIMIT_MAX, LIMIT_DEFAULT},
    {"all", 0, COMMAND_FLAG, offsetof(struct letter_line, is_all), NULL,
     "letters of all tenants", REPLAY},
    {"dry-run", 0, COMMAND_FLAG, offsetof(struct letter_line, is_dry), NULL,
     "only tells what the rules say now", REPLAY},
    {"json", 0, COMMAND_FLAG, offsetof(struct letter_line, is_json), NULL,
     "for programs", LIST | SHOW},
    {NULL},
};

const struct command dead_letter_command = {
    .name = COMMAND,
    .summary = "list, show and replay rejected records",
    .synopsis =
        "usage: meterd dead-letter list [--tenant T] [--since TIME] [--limit "
        "N]\n"
        "                               [--json] -c FILE...\n"
        "       meterd dead-letter show SESSION-SEQ [--json] -c FILE...\n"
        "       meterd dead-letter replay SESSION-SEQ|--tenant T|--all "
        "[--dry-run]\n"
        "                               -c FILE...\n",
    .about =
        "Dead letters are records of the edge that meterd had to reject: they\n"
        "were answered and are not billed. list shows them, newest first, and\n"
        "how many there are for which reason; show one of them in full. "
        "replay\n"
        "judges them again by the rules that FILE has now and books those "
        "that\n"
        "are acceptable, each exactly once and under its own identity. The "
        "others\n"
        "stay, and the exit status is 1. A running meterd is not disturbed.\n",
    .notes = "Connects to database; replay to adminDatabase too, and keeps a "
             "writer of\n"
             "its own in the directory replay of stateDir.\n",
    .verbs = letter_verbs,
    .options = letter_options,
    .size = sizeof(struct letter_line),
    .log = COMMAND_LOG_QUIET,
    .check = letter_check,
};
