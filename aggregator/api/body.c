/*
 * body.c - JSON bodies of requests that are no events.
 *
 * Handlers of POST and PUT call body_read, which answers everything that is
 * wrong with the body as a whole, and body_text for its members. Our own
 * reader keeps numbers as they were written: amounts are exact.
 */

#include "api/body.h"

#include "base/media_type.h"
#include "meter_limits.h"

#include <strings.h>

static bool
is_encoded(struct meter_str encoding)
{
    return encoding.size > 0 &&
           (encoding.size != 8 ||
            strncasecmp(encoding.data, "identity", 8) != 0);
}

static bool
body_is_json(struct api_call *call)
{
    const struct meter_request *request = call->request;
    struct media_type type;

    if (!media_type_read(request->content_type, &type) ||
        !media_type_is(&type, "application/json")) {
        call_answer_error(call, 415, 0,
                          "the Content-Type must be application/json");
        return false;
    }
    if (!media_type_is_utf8(&type)) {
        call_answer_error(call, 415, 0, "the charset must be utf-8");
        return false;
    }
    if (is_encoded(request->content_encoding)) {
        call_answer_error(call, 415, 0,
                          "the body must come without a Content-Encoding");
        return false;
    }
    return call_has_no_arguments(call, "path");
}


/* ---- one object ------------------------------------------------------ */

static bool
is_blank(struct meter_str text)
{
    for (size_t i = 0; i < text.size; i++) {
        if (memchr(" \t\r\n", text.data[i], 4) == NULL) {
            return false;
        }
    }
    return true;
}

static const char *
object_read(struct api_call *call, struct json_value *out)
{
    static const struct json_limits limits = {
        .depth_max = METER_JSON_DEPTH_MAX,
        .key_count_max = METER_ATTRIBUTE_COUNT_MAX,
        .name_size_max = METER_ATTRIBUTE_NAME_SIZE_MAX,
        .string_size_max = METER_ATTRIBUTE_STRING_SIZE_MAX,
    };
    struct meter_str text = buf_str(call->body);
    struct json_error error;
    size_t used;

    if (!json_read(text, &limits, &call->arena, out, &used, &error)) {
        return reason_format(&call->arena, "the body is not JSON: %s, byte %zu",
                             error.text, error.offset);
    }
    if (!is_blank((struct meter_str){text.data + used, text.size - used})) {
        return "the body goes on behind its JSON";
    }
    return out->kind == JSON_OBJECT ? NULL : "the body must be a JSON object";
}

static const char *
members_sort(struct api_call *call, const struct json_value *object,
             const char *const *names, size_t count,
             const struct json_value **values)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = NULL;
    }
    for (uint32_t m = 0; m < object->count; m++) {
        const struct json_member *member = &object->members[m];
        size_t i = 0;

        while (i < count && !meter_str_equal(member->name,
                                             (struct meter_str){
                                                 names[i], strlen(names[i])})) {
            i++;
        }
        if (i == count) {
            return reason_format(&call->arena, "unknown member %s",
                                 reason_quote(member->name).text);
        }
        if (member->value.kind != JSON_NULL) {
            values[i] = &member->value;
        }
    }
    return NULL;
}

bool
body_read(struct api_call *call, const char *const *names, size_t count,
          const struct json_value **values)
{
    struct json_value *object;
    const char *error;

    if (!body_is_json(call)) {
        return false;
    }
    if (call->body->size > BODY_SIZE_MAX) {
        call_answer_error(call, 413, 0, "the body is larger than 65536 bytes");
        return false;
    }
    object = arena_alloc(&call->arena, sizeof(*object));
    if (object == NULL) {
        call_answer_unavailable(call);
        return false;
    }
    error = object_read(call, object);
    if (error == NULL) {
        error = members_sort(call, object, names, count, values);
    }
    if (error != NULL) {
        call_answer_error(call, 400, 0, error);
        return false;
    }
    return true;
}

_Static_assert(BODY_SIZE_MAX == 65536, "the sentence says 65536");


/* ---- texts ----------------------------------------------------------- */

bool
body_text(const struct json_value *value, const char *name, size_t size_max,
          struct arena *arena, struct meter_str *out, const char **error)
{
    if (value == NULL) {
        *error = reason_format(arena, "%s is missing", name);
    } else if (value->kind != JSON_STRING) {
        *error = reason_format(arena, "%s must be a string", name);
    } else if (value->text.size == 0) {
        *error = reason_format(arena, "%s is empty", name);
    } else if (value->text.size > size_max) {
        *error =
            reason_format(arena, "%s is longer than %zu bytes", name, size_max);
    } else {
        *out = value->text;
        return true;
    }
    return false;
}
