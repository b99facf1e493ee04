/*
 * recount_text.c - see recount_text.h.
 *
 *   counters: acme: counter {"counter":"jobs","dimensions":{}}: expected 5,
 *   found 7
 */

#include "cmd/recount_text.h"

#include "base/json_writer.h"
#include "meter_time.h"

#include <stdio.h>

#define LINE_MAX_SIZE ((size_t)4 << 20)

/* A text without anything to escape stands without its quotes. */
static struct meter_str
unquoted(struct meter_str json)
{
    if (json.size < 2 || json.data[0] != '"' ||
        memchr(json.data, '\\', json.size) != NULL) {
        return json;
    }
    return (struct meter_str){json.data + 1, json.size - 2};
}

static void
put_side(struct buf *out, const char *word, struct meter_str json)
{
    buf_put_text(out, word);
    if (json.data == NULL) {
        buf_put_text(out, "no row");
    } else {
        buf_put_printable(out, unquoted(json));
    }
}

void
recount_put_line(struct buf *out, const struct recount_finding *finding)
{
    const struct recount_difference *one = finding->difference;

    buf_printf(out, "%s: ", finding->projection);
    if (finding->tenant.data != NULL) {
        buf_put_printable(out, finding->tenant);
        buf_put_text(out, ": ");
    }
    buf_printf(out, "%s ", one->what);
    buf_put_printable(out, one->key);
    put_side(out, ": expected ", one->expected);
    put_side(out, ", found ", one->found);
    if (finding->is_rule_mixed) {
        buf_put_text(out, " (another rule is in use)");
    } else if (finding->rule_changed_us != INT64_MIN) {
        char text[METER_TIME_TEXT_SIZE + 1];

        meter_time_format(finding->rule_changed_us, text);
        buf_printf(out, " (rule changed %s)", text);
    }
}

static void
json_side(struct json_writer *json, const char *key, struct meter_str value)
{
    json_key(json, key);
    if (value.data == NULL) {
        json_null(json);
    } else {
        json_raw(json, value);
    }
}

void
recount_put_json(struct buf *out, const struct recount_finding *finding)
{
    const struct recount_difference *one = finding->difference;
    struct json_writer json;

    json_writer_init(&json, out);
    json_object_begin(&json);
    json_key(&json, "projection");
    json_text(&json, finding->projection);
    json_key(&json, "tenant");
    if (finding->tenant.data == NULL) {
        json_null(&json);
    } else {
        json_string(&json, finding->tenant);
    }
    json_key(&json, "what");
    json_text(&json, one->what);
    json_side(&json, "key", one->key);
    json_side(&json, "expected", one->expected);
    json_side(&json, "found", one->found);
    json_key(&json, "rule_changed_at");
    if (finding->rule_changed_us == INT64_MIN) {
        json_null(&json);
    } else {
        json_time(&json, finding->rule_changed_us);
    }
    json_object_end(&json);
}

void
recount_output_init(struct recount_output *out, bool is_json, int64_t limit)
{
    *out = (struct recount_output){.is_json = is_json, .limit = limit};
    buf_init(&out->line, LINE_MAX_SIZE);
}

void
recount_output_fini(struct recount_output *out)
{
    buf_fini(&out->line);
}

void
recount_output_finding(void *asker, const struct recount_finding *finding)
{
    struct recount_output *out = asker;

    if (out->told++ >= out->limit) {
        return;
    }
    buf_reset(&out->line);
    if (out->is_json) {
        recount_put_json(&out->line, finding);
    } else {
        recount_put_line(&out->line, finding);
    }
    buf_put_byte(&out->line, '\n');
    if (!out->line.failed) {
        fwrite(out->line.data, 1, out->line.size, stdout);
    }
}

void
recount_output_notes(const char *command, const struct recount_outcome *outcome)
{
    char floor[METER_TIME_TEXT_SIZE + 1];

    if (outcome->unfit > 0) {
        fprintf(stderr,
                "meterd %s: %lld events do not fit the rules given and count "
                "for nothing\n",
                command, (long long)outcome->unfit);
    }
    if (outcome->strangers > 0) {
        fprintf(stderr,
                "meterd %s: %lld rows of names that the rules do not have are "
                "left as they are\n",
                command, (long long)outcome->strangers);
    }
    if (outcome->floor_us != INT64_MIN) {
        meter_time_format(outcome->floor_us, floor);
        fprintf(stderr,
                "meterd %s: meters of periods that start before %.10s are "
                "left out: retention has removed events\n",
                command, floor);
    }
}
