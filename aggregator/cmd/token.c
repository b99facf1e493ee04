/*
 * token.c - `meterd token`: makes, lists and revokes bearer tokens.
 *
 * The secret is drawn here, printed once on stdout and forgotten; the
 * database gets its SHA-256. Nothing of it goes to stderr or a log. Each
 * verb connects as meter_owner (adminDatabase), runs one statement and is
 * gone again; the daemon finds tokens through STATEMENT_TOKEN_FIND instead.
 * Exit status: 0 done, 1 not (no such token, no database), 2 usage.
 */

#include "api/token.h"
#include "base/process.h"
#include "cmd/command.h"
#include "config/scalar.h"
#include "meter_event.h"
#include "meter_limits.h"
#include "meter_time.h"
#include "pg/blocking.h"

#include <stdio.h>
#include <sys/random.h>

#define COMMAND        "token"
#define DRAWS_MAX      3 /* of an id that is in use; 80 bits make one rare */
#define LABEL_SIZE_MAX 255
#define SCOPES_SIZE    64
#define LIFETIME_MAX   (36500 * METER_TIME_DAY)

struct token_line {
    struct command_line line;
    const char *tenant;
    const char *scopes;
    const char *label;
    const char *expires;
};

/* All pointers are valid during the callback only. */
struct token_row {
    const char *token_id;
    const char *tenant;
    const char *scopes; /* separated by one space */
    const char *label;
    int64_t created_at_us;
    int64_t expires_at_us; /* 0: never */
    int64_t revoked_at_us; /* 0: not revoked */
};

struct token_new {
    const char *token_id;
    const char *tenant;
    const char *scopes; /* separated by one space */
    const char *label;
    uint8_t digest[METER_DIGEST_SIZE];
    int64_t expires_at_us; /* 0: never, unless there is a lifetime */
    int64_t lifetime_us;   /* from now on by the database's clock; 0: none */
};

enum token_outcome {
    TOKEN_OK,
    TOKEN_MISSING, /* revoke: no such token */
    TOKEN_TAKEN,   /* create: the id is in use, draw another */
    TOKEN_EXPIRED, /* create: expires_at_us is a time gone by */
    TOKEN_FAILED   /* connection or database; logged */
};

typedef void (*token_row_cb)(void *arg, const struct token_row *row);


/* ---- the table ------------------------------------------------------- */

static struct meter_str
token_text(const char *value)
{
    return (struct meter_str){value, value == NULL ? 0 : strlen(value)};
}

static enum token_outcome
token_store_create(const char *admin_url, const struct token_new *token)
{
    struct pg_blocking *pg = pg_blocking_connect(admin_url, COMMAND, NULL);
    enum token_outcome outcome = TOKEN_FAILED;

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(token->token_id));
    pg_param_text(params, token_text(token->tenant));
    pg_param_bytes(params, (struct meter_str){(const char *)token->digest,
                                              sizeof(token->digest)});
    pg_param_text(params, token_text(token->scopes));
    pg_param_text(params, token_text(token->label));
    if (token->expires_at_us != 0) {
        pg_param_time(params, token->expires_at_us);
    } else {
        pg_param_null(params);
    }
    if (token->lifetime_us != 0) {
        pg_param_int8(params, token->lifetime_us);
    } else {
        pg_param_null(params);
    }

    if (pg_blocking_try(pg, STATEMENT_TOKEN_CREATE, params) != NULL) {
        outcome = TOKEN_OK;
    } else if (strcmp(pg_blocking_sqlstate(pg), "23505") == 0) {
        outcome = TOKEN_TAKEN;
    } else if (strcmp(pg_blocking_sqlstate(pg), "23514") == 0) {
        outcome = TOKEN_EXPIRED;
    } else {
        pg_blocking_tell(pg, "create a token");
    }
    pg_blocking_close(pg);
    return outcome;
}

/* tenant NULL: all tenants. Oldest first. */
static enum token_outcome
token_store_list(const char *admin_url, const char *tenant, token_row_cb cb,
                 void *arg)
{
    struct pg_blocking *pg = pg_blocking_connect(admin_url, COMMAND, NULL);

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(tenant)); /* NULL: of all tenants */

    const void *rows =
        pg_blocking_run(pg, STATEMENT_TOKEN_LIST, params, "list tokens");

    for (int row = 0; rows != NULL && row < pg_row_count(rows); row++) {
        /* A NUL follows every value. */
        struct token_row token = {
            .token_id = pg_get_bytes(rows, row, 0).data,
            .tenant = pg_get_bytes(rows, row, 1).data,
            .scopes = pg_get_bytes(rows, row, 2).data,
            .label = pg_get_bytes(rows, row, 3).data,
            .created_at_us = pg_get_time(rows, row, 4),
            .expires_at_us =
                pg_is_null(rows, row, 5) ? 0 : pg_get_time(rows, row, 5),
            .revoked_at_us =
                pg_is_null(rows, row, 6) ? 0 : pg_get_time(rows, row, 6),
        };

        cb(arg, &token);
    }
    pg_blocking_close(pg);
    return rows == NULL ? TOKEN_FAILED : TOKEN_OK;
}

/* Revoking twice is no error. */
static enum token_outcome
token_store_revoke(const char *admin_url, const char *token_id)
{
    struct pg_blocking *pg = pg_blocking_connect(admin_url, COMMAND, NULL);
    enum token_outcome outcome = TOKEN_FAILED;

    if (pg == NULL) {
        return TOKEN_FAILED;
    }

    struct pg_params *params = pg_blocking_params(pg);

    pg_param_text(params, token_text(token_id));

    const void *rows =
        pg_blocking_run(pg, STATEMENT_TOKEN_REVOKE, params, "revoke a token");

    if (rows != NULL) {
        outcome = pg_row_count(rows) == 0 ? TOKEN_MISSING : TOKEN_OK;
    }
    pg_blocking_close(pg);
    return outcome;
}


/* ---- create ---------------------------------------------------------- */

/* Text that goes into a table and onto a terminal. */
static bool
token_text_valid(const char *text, size_t size_min, size_t size_max)
{
    struct meter_str str = {text, strlen(text)};

    if (str.size < size_min || str.size > size_max || !meter_utf8_valid(str)) {
        return false;
    }
    for (size_t i = 0; i < str.size; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return false;
        }
    }
    return true;
}

static const char *
token_create_check(const struct token_line *wanted)
{
    if (wanted->tenant == NULL) {
        return "create needs --tenant";
    }
    if (!token_text_valid(wanted->tenant, 1, METER_TENANT_SIZE_MAX)) {
        return "a tenant has 1 to 255 bytes of UTF-8 without control "
               "characters";
    }
    if (wanted->label != NULL &&
        !token_text_valid(wanted->label, 0, LABEL_SIZE_MAX)) {
        return "a label has at most 255 bytes of UTF-8 without control "
               "characters";
    }
    return NULL;
}

/* A time, or a stretch that the database adds to its own clock. */
static bool
token_expires_parse(const char *text, struct token_new *row)
{
    struct meter_str str = {text, strlen(text)};

    if (scalar_duration(str, &row->lifetime_us)) {
        return row->lifetime_us > 0 && row->lifetime_us <= LIFETIME_MAX;
    }
    return meter_time_parse(str, &row->expires_at_us);
}

/* Draws a token and stores its digest; text is to be printed on OK. */
static enum token_outcome
token_draw(struct token_new *row, const char *url, char *text)
{
    struct token_random random;
    char id[TOKEN_ID_SIZE + 1];
    struct token token;

    if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
        fputs("meterd token: the system gives no random bytes\n", stderr);
        return TOKEN_FAILED;
    }
    token_format(&random, text);
    explicit_bzero(&random, sizeof(random));
    CHECK(token_parse((struct meter_str){text, strlen(text)}, &token));
    CHECK(token.id.size == TOKEN_ID_SIZE);
    memcpy(id, token.id.data, TOKEN_ID_SIZE);
    id[TOKEN_ID_SIZE] = '\0';
    row->token_id = id;
    meter_sha256(token.secret.data, token.secret.size, row->digest);
    return token_store_create(url, row);
}

static int
token_create(void *data)
{
    const struct token_line *wanted = data;
    const char *url = wanted->line.config->admin_database;
    const char *wrong = token_create_check(wanted);
    const char *list = wanted->scopes == NULL ? "ingest,read" : wanted->scopes;
    enum token_outcome outcome = TOKEN_TAKEN;
    struct token_new row = {.tenant = wanted->tenant};
    char text[TOKEN_TEXT_SIZE + 1];
    char scopes_text[SCOPES_SIZE];
    struct meter_str unknown;
    struct buf names;
    unsigned scopes;

    if (wrong == NULL &&
        !token_scopes_parse((struct meter_str){list, strlen(list)}, ',',
                            &scopes, &unknown)) {
        wrong = "--scopes takes ingest, read, write and admin";
    }
    if (wrong == NULL && wanted->expires != NULL &&
        !token_expires_parse(wanted->expires, &row)) {
        wrong = "--expires takes 90d, 12h and the like, at most 36500d, or a "
                "time such as 2027-01-31T00:00:00Z";
    }
    if (wrong != NULL) {
        return command_usage_error(COMMAND, wrong, NULL);
    }
    buf_init(&names, sizeof(scopes_text) - 1);
    token_scopes_format(scopes, ' ', &names);
    CHECK(!names.failed);
    memcpy(scopes_text, names.data, names.size);
    scopes_text[names.size] = '\0';
    buf_fini(&names);
    row.scopes = scopes_text;
    row.label = wanted->label == NULL ? "" : wanted->label;
    for (int i = 0; i < DRAWS_MAX && outcome == TOKEN_TAKEN; i++) {
        outcome = token_draw(&row, url, text);
    }
    if (outcome == TOKEN_OK) {
        puts(text);
    }
    explicit_bzero(text, sizeof(text));
    if (outcome == TOKEN_EXPIRED) {
        return command_usage_error(COMMAND, "--expires is a time gone by",
                                   NULL);
    }
    return outcome == TOKEN_OK ? PROCESS_OK : PROCESS_FAILED;
}


/* ---- list and revoke ------------------------------------------------- */

/* Above the first row only: a list that cannot be had shows none. */
static void
token_list_head(bool *shown)
{
    if (!*shown) {
        printf("%-16s  %-20s  %-23s  %-27s  %-27s  %-27s  %s\n", "ID", "TENANT",
               "SCOPES", "CREATED", "EXPIRES", "REVOKED", "LABEL");
        *shown = true;
    }
}

static void
token_list_row(void *arg, const struct token_row *row)
{
    char created[METER_TIME_TEXT_SIZE + 1];
    char expires[METER_TIME_TEXT_SIZE + 1] = "-";
    char revoked[METER_TIME_TEXT_SIZE + 1] = "-";

    token_list_head(arg);
    meter_time_format(row->created_at_us, created);
    if (row->expires_at_us != 0) {
        meter_time_format(row->expires_at_us, expires);
    }
    if (row->revoked_at_us != 0) {
        meter_time_format(row->revoked_at_us, revoked);
    }
    printf("%-16s  %-20s  %-23s  %-27s  %-27s  %-27s  %s\n", row->token_id,
           row->tenant, row->scopes, created, expires, revoked, row->label);
}

static int
token_list(void *data)
{
    const struct token_line *wanted = data;
    bool head_shown = false;

    if (token_store_list(wanted->line.config->admin_database, wanted->tenant,
                         token_list_row, &head_shown) != TOKEN_OK) {
        return PROCESS_FAILED;
    }
    token_list_head(&head_shown);
    return PROCESS_OK;
}

static int
token_revoke(void *data)
{
    const struct command_line *line = data;
    char id[TOKEN_ID_SIZE_MAX + 1];
    struct meter_str given = {line->words[0], strlen(line->words[0])};
    struct token token;

    if (token_parse(given, &token)) {
        given = token.id;
    }
    if (given.size > TOKEN_ID_SIZE_MAX) {
        return command_usage_error(COMMAND, "that is no id of a token", NULL);
    }
    memcpy(id, given.data, given.size);
    id[given.size] = '\0';
    switch (token_store_revoke(line->config->admin_database, id)) {
    case TOKEN_OK: printf("revoked %s\n", id); return PROCESS_OK;
    case TOKEN_MISSING:
        fprintf(stderr, "meterd token: there is no token with this id\n");
        return PROCESS_FAILED;
    case TOKEN_TAKEN:
    case TOKEN_EXPIRED:
    case TOKEN_FAILED: break;
    }
    return PROCESS_FAILED;
}


/* ---- the command ------------------------------------------------------ */

enum { TOKEN_CREATE = 1 << 0, TOKEN_LIST = 1 << 1, TOKEN_REVOKE = 1 << 2 };

static const struct command_verb token_verbs[] = {
    {"create", token_create, CONFIG_NEEDS_ADMIN_DATABASE},
    {"list", token_list, CONFIG_NEEDS_ADMIN_DATABASE},
    {"revoke", token_revoke, CONFIG_NEEDS_ADMIN_DATABASE, "the id of a token",
     1, 1},
    {NULL},
};

static const struct command_option token_options[] = {
    {"tenant", 0, COMMAND_TEXT, offsetof(struct token_line, tenant), "T",
     "whose token", TOKEN_CREATE | TOKEN_LIST},
    {"scopes", 0, COMMAND_TEXT, offsetof(struct token_line, scopes), "LIST",
     "some of ingest,read,write,admin (ingest,read)", TOKEN_CREATE},
    {"label", 0, COMMAND_TEXT, offsetof(struct token_line, label), "TEXT",
     "a note for the list", TOKEN_CREATE},
    {"expires", 0, COMMAND_TEXT, offsetof(struct token_line, expires), "WHEN",
     "how long it is valid, 90d, 12h, or until when,\n"
     "2027-01-31T00:00:00Z (for ever)",
     TOKEN_CREATE},
    {NULL},
};

const struct command token_command = {
    .name = COMMAND,
    .summary = "create, list and revoke bearer tokens",
    .synopsis =
        "usage: meterd token create --tenant T [--scopes LIST] [--label TEXT]\n"
        "                           [--expires WHEN] -c FILE...\n"
        "       meterd token list [--tenant T] -c FILE...\n"
        "       meterd token revoke ID -c FILE...\n",
    .about =
        "create prints the new token once; only a digest of it is kept. "
        "revoke\n"
        "takes the id, which is the part between the first two '_', or the\n"
        "whole token. A running meterd notices that a token was revoked or "
        "has\n"
        "expired within limits.tokenCacheTtl.\n",
    .notes = "Connects to adminDatabase.\n",
    .verbs = token_verbs,
    .options = token_options,
    .size = sizeof(struct token_line),
    .log = COMMAND_LOG_PERSON,
};
