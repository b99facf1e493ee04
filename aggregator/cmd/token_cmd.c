/*
 * token_cmd.c - see token_cmd.h.
 *
 * The secret is drawn here, printed once on stdout and forgotten; the
 * database gets its SHA-256. Nothing of it goes to stderr or a log.
 */

#include "cmd/token_cmd.h"

#include "api/token.h"
#include "base/log.h"
#include "base/process.h"
#include "cmd/command_line.h"
#include "config/scalar.h"
#include "meter_event.h"
#include "meter_limits.h"
#include "meter_time.h"
#include "cmd/token_store.h"

#include <getopt.h>
#include <stdio.h>
#include <sys/random.h>

#define DRAWS_MAX      3 /* of an id that is in use; 80 bits make one rare */
#define LABEL_SIZE_MAX 255
#define SCOPES_SIZE    64
#define LIFETIME_MAX   (36500 * METER_TIME_DAY)

static const char usage_text[] =
    "usage: meterd token create --tenant T [--scopes LIST] [--label TEXT]\n"
    "                           [--expires WHEN] -c FILE...\n"
    "       meterd token list [--tenant T] -c FILE...\n"
    "       meterd token revoke ID -c FILE...\n"
    "\n"
    "create prints the new token once; only a digest of it is kept. revoke\n"
    "takes the id, which is the part between the first two '_', or the\n"
    "whole token. A running meterd notices that a token was revoked or has\n"
    "expired within limits.tokenCacheTtl.\n"
    "\n"
    "  -c, --config FILE  a file; later ones add or replace top-level keys\n"
    "      --tenant T     whose token\n"
    "      --scopes LIST  some of ingest,read,write,admin (ingest,read)\n"
    "      --label TEXT   a note for the list\n"
    "      --expires WHEN how long it is valid, 90d, 12h, or until when,\n"
    "                     2027-01-31T00:00:00Z (for ever)\n"
    "  -h, --help         this text\n"
    "\n"
    "Connects to adminDatabase.\n";

struct token_arguments {
    const char *verb;
    const char *id;
    const char *tenant;
    const char *scopes;
    const char *label;
    const char *expires;
    struct command_files files;
};

static int
token_create(const struct token_arguments *arguments, const char *url);
static int token_list(const struct token_arguments *arguments, const char *url);
static int
token_revoke(const struct token_arguments *arguments, const char *url);

/* Which options each verb takes, and what it does. */
static const struct token_verb {
    const char *name;
    bool takes_id;
    bool takes_tenant;
    bool takes_details; /* scopes, label, expires */
    int (*run)(const struct token_arguments *arguments, const char *url);
} verbs[] = {
    {"create", false, true, true, token_create},
    {"list", false, true, false, token_list},
    {"revoke", true, false, false, token_revoke},
};

static const struct token_verb *
token_verb_find(const char *name)
{
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return &verbs[i];
        }
    }
    return NULL;
}


/* ---- the command line ------------------------------------------------ */

enum token_read { TOKEN_READ_OK, TOKEN_READ_HELP, TOKEN_READ_BAD };

static enum token_read
token_options_read(int argc, char **argv, struct token_arguments *out)
{
    enum { TENANT = 256, SCOPES, LABEL, EXPIRES };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"tenant", required_argument, NULL, TENANT},
        {"scopes", required_argument, NULL, SCOPES},
        {"label", required_argument, NULL, LABEL},
        {"expires", required_argument, NULL, EXPIRES},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int found;

    optind = 0;
    while ((found = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (found) {
        case 'c':
            if (!command_files_add(&out->files, "token", optarg)) {
                return TOKEN_READ_BAD;
            }
            break;
        case TENANT: out->tenant = optarg; break;
        case SCOPES: out->scopes = optarg; break;
        case LABEL: out->label = optarg; break;
        case EXPIRES: out->expires = optarg; break;
        case 'h': return TOKEN_READ_HELP;
        default: fputs(usage_text, stderr); return TOKEN_READ_BAD;
        }
    }
    if (optind < argc) {
        out->verb = argv[optind++];
    }
    if (optind < argc) {
        out->id = argv[optind++];
    }
    if (optind < argc) {
        command_usage_error("token", "unexpected argument", argv[optind]);
        return TOKEN_READ_BAD;
    }
    return TOKEN_READ_OK;
}

/* NULL: fine; else what is wrong with the combination. */
static const char *
token_arguments_check(const struct token_verb *verb,
                      const struct token_arguments *arguments)
{
    if (verb->takes_id && arguments->id == NULL) {
        return "revoke needs the id of a token";
    }
    if (!verb->takes_id && arguments->id != NULL) {
        return "this command takes no id";
    }
    if (!verb->takes_tenant && arguments->tenant != NULL) {
        return "--tenant does not belong here";
    }
    if (!verb->takes_details &&
        (arguments->scopes != NULL || arguments->label != NULL ||
         arguments->expires != NULL)) {
        return "--scopes, --label and --expires belong to create";
    }
    if (arguments->files.count == 0) {
        return COMMAND_NO_FILE;
    }
    return NULL;
}

int
token_cmd_run(int argc, char **argv)
{
    struct token_arguments arguments = {.verb = NULL};
    const struct token_verb *verb;
    struct config *config;
    const char *wrong;
    int status;

    switch (token_options_read(argc, argv, &arguments)) {
    case TOKEN_READ_OK: break;
    case TOKEN_READ_HELP: fputs(usage_text, stdout); return PROCESS_OK;
    case TOKEN_READ_BAD: return PROCESS_USAGE;
    }
    if (arguments.verb == NULL) {
        return command_usage_error("token", "say create, list or revoke", NULL);
    }
    verb = token_verb_find(arguments.verb);
    if (verb == NULL) {
        return command_usage_error("token", "there is no command",
                                   arguments.verb);
    }
    wrong = token_arguments_check(verb, &arguments);
    if (wrong != NULL) {
        return command_usage_error("token", wrong, NULL);
    }
    if (!command_config_load(&arguments.files, CONFIG_NEEDS_ADMIN_DATABASE,
                             &config)) {
        return PROCESS_FAILED;
    }
    log_for_person("meterd token");
    status = verb->run(&arguments, config->admin_database);
    config_unref(config);
    if (fflush(stdout) != 0) {
        fputs("meterd token: stdout cannot be written\n", stderr);
        return PROCESS_FAILED;
    }
    return status;
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
token_create_check(const struct token_arguments *arguments)
{
    if (arguments->tenant == NULL) {
        return "create needs --tenant";
    }
    if (!token_text_valid(arguments->tenant, 1, METER_TENANT_SIZE_MAX)) {
        return "a tenant has 1 to 255 bytes of UTF-8 without control "
               "characters";
    }
    if (arguments->label != NULL &&
        !token_text_valid(arguments->label, 0, LABEL_SIZE_MAX)) {
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
token_create(const struct token_arguments *arguments, const char *url)
{
    const char *wrong = token_create_check(arguments);
    const char *list =
        arguments->scopes == NULL ? "ingest,read" : arguments->scopes;
    enum token_outcome outcome = TOKEN_TAKEN;
    struct token_new row = {.tenant = arguments->tenant};
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
    if (wrong == NULL && arguments->expires != NULL &&
        !token_expires_parse(arguments->expires, &row)) {
        wrong = "--expires takes 90d, 12h and the like, at most 36500d, or a "
                "time such as 2027-01-31T00:00:00Z";
    }
    if (wrong != NULL) {
        return command_usage_error("token", wrong, NULL);
    }
    buf_init(&names, sizeof(scopes_text) - 1);
    token_scopes_format(scopes, ' ', &names);
    CHECK(!names.failed);
    memcpy(scopes_text, names.data, names.size);
    scopes_text[names.size] = '\0';
    buf_fini(&names);
    row.scopes = scopes_text;
    row.label = arguments->label == NULL ? "" : arguments->label;
    for (int i = 0; i < DRAWS_MAX && outcome == TOKEN_TAKEN; i++) {
        outcome = token_draw(&row, url, text);
    }
    if (outcome == TOKEN_OK) {
        puts(text);
    }
    explicit_bzero(text, sizeof(text));
    if (outcome == TOKEN_EXPIRED) {
        return command_usage_error("token", "--expires is a time gone by",
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
token_list_row(void *asker, const struct token_row *row)
{
    char created[METER_TIME_TEXT_SIZE + 1];
    char expires[METER_TIME_TEXT_SIZE + 1] = "-";
    char revoked[METER_TIME_TEXT_SIZE + 1] = "-";

    token_list_head(asker);
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
token_list(const struct token_arguments *arguments, const char *url)
{
    bool head_shown = false;

    if (token_store_list(url, arguments->tenant, token_list_row, &head_shown) !=
        TOKEN_OK) {
        return PROCESS_FAILED;
    }
    token_list_head(&head_shown);
    return PROCESS_OK;
}

static int
token_revoke(const struct token_arguments *arguments, const char *url)
{
    char id[TOKEN_ID_SIZE_MAX + 1];
    struct meter_str given = {arguments->id, strlen(arguments->id)};
    struct token token;

    if (token_parse(given, &token)) {
        given = token.id;
    }
    if (given.size > TOKEN_ID_SIZE_MAX) {
        return command_usage_error("token", "that is no id of a token", NULL);
    }
    memcpy(id, given.data, given.size);
    id[given.size] = '\0';
    switch (token_store_revoke(url, id)) {
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
