/* reply.c - checks and decodes the replies of Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Every reply is checked completely before its contents are used: type, number of elements, keys
 * and versions. Anything unexpected is TDM_E_STORE with a description of the reply.
 *
 * The limit on array lengths protects against a server that announces a huge array. hiredis 1 has
 * an option for it. For older versions the function that creates arrays is replaced; that table is
 * written once and is then read by every thread. functions.c specifies the replies. */

#include "runtime/redis/reply.h"

#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/store/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TEXT_BYTES = 200,    /* Capacity of a reply's description. */
    RECORD_ELEMENTS = 3, /* Number of elements of a read reply for each record. */
    SESSION_DIGITS = 16  /* Length of the number of a session. */
};

#if HIREDIS_MAJOR >= 1

void tdm__redis_reader_limit(redisReader *reader)
{
    reader->maxelements = TDM__REDIS_ELEMENTS_MAX;
}

#else

/* The functions with which hiredis creates replies, except that createArray is limited. Written
 * once and constant afterwards, so all threads may share the table. */
static redisReplyObjectFunctions limited_functions;
/* Initialises `limited_functions` once. */
static pthread_once_t limited_once = PTHREAD_ONCE_INIT;
/* The function with which hiredis creates arrays; NULL before limited_functions_init(). */
static void *(*create_array)(const redisReadTask *task, int elements);

/* Creates an array of a reply, or returns NULL if it would have more than TDM__REDIS_ELEMENTS_MAX
 * elements. */
static void *create_limited_array(const redisReadTask *task, int elements)
{
    if (elements > TDM__REDIS_ELEMENTS_MAX) {
        tdm__log(TDM__WARN, "redis", "a reply of %d elements, at most %d", elements,
                 (int)TDM__REDIS_ELEMENTS_MAX);
        return NULL;
    }
    return create_array(task, elements);
}

/* Initialises `limited_functions` with the functions of a reader of hiredis. */
static void limited_functions_init(void)
{
    redisReader *reader = redisReaderCreate();

    if (reader != NULL) {
        limited_functions = *reader->fn;
        create_array = limited_functions.createArray;
        limited_functions.createArray = create_limited_array;
        redisReaderFree(reader);
    }
}

void tdm__redis_reader_limit(redisReader *reader)
{
    (void)pthread_once(&limited_once, limited_functions_init);
    if (create_array != NULL) {
        reader->fn = &limited_functions;
    }
}

#endif

/* Returns whether the reply of Redis is a string. */
static bool is_string(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_STRING;
}

/* Returns whether the reply's text begins with `start`. */
static bool starts_with(const redisReply *reply, const char *start)
{
    size_t bytes = strlen(start);

    return reply->len >= bytes && memcmp(reply->str, start, bytes) == 0;
}

const char *tdm__redis_reply_text(const redisReply *reply, char *text, size_t text_bytes)
{
    switch (reply->type) {
    case REDIS_REPLY_ERROR:
        (void)snprintf(text, text_bytes, "error \"%.150s\"", reply->str);
        break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
        (void)snprintf(text, text_bytes, "\"%.40s\" of %zu bytes", reply->str, reply->len);
        break;
    case REDIS_REPLY_ARRAY:
        (void)snprintf(text, text_bytes, "an array of %zu", reply->elements);
        break;
    case REDIS_REPLY_INTEGER:
        (void)snprintf(text, text_bytes, "the integer %lld", reply->integer);
        break;
    default:
        (void)snprintf(text, text_bytes, "a reply of type %d", reply->type);
        break;
    }
    return text;
}

/* Returns TDM_E_STORE with a description of the unexpected reply. `command` names the command in
 * the error. */
static tdm_status reply_unexpected(const char *command, const redisReply *reply)
{
    char text[TEXT_BYTES];

    return tdm__fail(TDM_E_STORE, "redis answered %s with %s", command,
                     tdm__redis_reply_text(reply, text, sizeof(text)));
}

/* Parses the version of a record, a canonical decimal number. Returns false for any other text.
 * `text` ends with NUL. */
static bool parse_version(const char *text, size_t bytes, uint64_t *version_out)
{
    char *end;
    unsigned long long version;

    if (bytes == 0 || bytes > 20 || text[0] < '1' || text[0] > '9') {
        return false;
    }
    errno = 0;
    version = strtoull(text, &end, 10);
    if (errno != 0 || end != text + bytes || version == TDM__VERSION_ANY) {
        return false;
    }
    *version_out = version;
    return true;
}

/* Parses the version of a record that may be absent, or of a commit that may have put none: 0 then.
 */
static bool parse_version_or_none(const char *text, size_t bytes, uint64_t *version_out)
{
    if (bytes == 1 && text[0] == '0') {
        *version_out = TDM__VERSION_NONE;
        return true;
    }
    return parse_version(text, bytes, version_out);
}

/* Parses a version. Returns false for a text that is not a version. */
typedef bool version_parser(const char *text, size_t bytes, uint64_t *version_out);

/* Decodes the records that the reply lists from its element number `first` on. The caller frees
 * them with free(). `command` names the command in errors. */
static tdm_status read_records(const char *command, const redisReply *reply, size_t first,
                               version_parser *parse, struct tdm__store_records **records_out)
{
    struct tdm__store_records *records = NULL;
    size_t payload_bytes = 0;

    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < first ||
        (reply->elements - first) % RECORD_ELEMENTS != 0 ||
        reply->elements / RECORD_ELEMENTS > UINT32_MAX) {
        return reply_unexpected(command, reply);
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (!is_string(reply->element[i])) {
            return reply_unexpected(command, reply->element[i]);
        }
        payload_bytes += reply->element[i]->len;
    }
    TDM_TRY(tdm__store_records_create((uint32_t)((reply->elements - first) / RECORD_ELEMENTS),
                                      payload_bytes, &records));
    for (size_t i = first; i < reply->elements; i += RECORD_ELEMENTS) {
        const redisReply *key = reply->element[i];
        const redisReply *number = reply->element[i + 1];
        const redisReply *data = reply->element[i + 2];
        uint64_t version;

        if (!(tdm__store_is_key(key->str, key->len) ||
              tdm__store_is_changes_key(key->str, key->len)) ||
            !parse(number->str, number->len, &version)) {
            free(records);
            return reply_unexpected(command, key);
        }
        tdm__store_records_append(records, key->str, key->len, version,
                                  (struct tdm_bytes){data->str, data->len});
    }
    tdm__store_records_sort(records);
    *records_out = records;
    return TDM_OK;
}

tdm_status tdm__redis_reply_records(const redisReply *reply,
                                    struct tdm__store_records **records_out)
{
    return read_records("a read", reply, 0, parse_version, records_out);
}

/* Parses a number of the reply to a renewal, in which 0 is allowed. */
static bool parse_number(const redisReply *reply, uint64_t *number_out)
{
    *number_out = 0;
    return (reply->len == 1 && reply->str[0] == '0') ||
           parse_version(reply->str, reply->len, number_out);
}

tdm_status tdm__redis_reply_renewed(const redisReply *reply, struct tdm__store_renewed *renewed_out,
                                    struct tdm__store_records **members_out)
{
    uint64_t *const numbers[] = {&renewed_out->clock_ms,      &renewed_out->epoch,
                                 &renewed_out->members_epoch, &renewed_out->renewals_count,
                                 &renewed_out->generation,    &renewed_out->held_ms};
    const size_t numbers_count = sizeof(numbers) / sizeof(numbers[0]);

    *members_out = NULL;
    if (is_string(reply) && starts_with(reply, "LOST")) {
        return tdm__fail(TDM_E_CONFLICT, "the store has no record of this member");
    }
    TDM_TRY(read_records("a renewal", reply, numbers_count, parse_version, members_out));
    for (size_t i = 0; i < numbers_count; i++) {
        if (!parse_number(reply->element[i], numbers[i])) {
            free(*members_out);
            *members_out = NULL;
            return reply_unexpected("a renewal", reply->element[i]);
        }
    }
    if ((*members_out)->count == 0) {
        free(*members_out);
        *members_out = NULL;
    }
    return TDM_OK;
}

/* Decodes the outcome of a commit, a text. */
static tdm_status read_outcome(const redisReply *reply, uint64_t *version_out)
{
    static const char conflict[] = "CONFLICT ";
    static const char held[] = "HELD ";
    static const char done[] = "OK ";
    const size_t done_bytes = sizeof(done) - 1;
    const size_t conflict_bytes = sizeof(conflict) - 1;

    if (!is_string(reply)) {
        return reply_unexpected("a commit", reply);
    }
    if (starts_with(reply, done) &&
        parse_version_or_none(reply->str + done_bytes, reply->len - done_bytes, version_out)) {
        return TDM_OK;
    }
    if (starts_with(reply, conflict) &&
        tdm__store_is_key(reply->str + conflict_bytes, reply->len - conflict_bytes)) {
        return tdm__fail(TDM_E_CONFLICT, "%s", reply->str + conflict_bytes);
    }
    if (starts_with(reply, held)) {
        return tdm__fail(TDM_E_AGAIN,
                         "the store was restarted or replaced, and what it says of %s may be old: "
                         "its node may join again",
                         reply->str + sizeof(held) - 1);
    }
    return reply_unexpected("a commit", reply);
}

tdm_status tdm__redis_reply_commit(const redisReply *reply, uint64_t *version_out,
                                   struct tdm__store_records **losers_out)
{
    tdm_status outcome;

    *losers_out = NULL;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        return read_outcome(reply, version_out);
    }
    outcome = read_outcome(reply->element[0], version_out);
    if (outcome != TDM_E_CONFLICT) {
        return reply_unexpected("a commit", reply);
    }
    TDM_TRY(read_records("a commit", reply, 1, parse_version_or_none, losers_out));
    return outcome;
}

bool tdm__redis_reply_no_session(const redisReply *reply)
{
    static const char unknown[] = "UNKNOWN";

    return is_string(reply) && reply->len == sizeof(unknown) - 1 && starts_with(reply, unknown);
}

tdm_status tdm__redis_reply_session(const redisReply *reply, uint64_t *session_out)
{
    if (is_string(reply) && reply->len == SESSION_DIGITS &&
        parse_version(reply->str, reply->len, session_out)) {
        return TDM_OK;
    }
    return reply_unexpected("the opening of a session", reply);
}

tdm_status tdm__redis_reply_count(const redisReply *reply, uint64_t *count_out)
{
    if (reply->type != REDIS_REPLY_INTEGER || reply->integer < 0) {
        return reply_unexpected("WAIT", reply);
    }
    *count_out = (uint64_t)reply->integer;
    return TDM_OK;
}

const char *tdm__redis_reply_message(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3 || !is_string(reply->element[0]) ||
        !starts_with(reply->element[0], "message") || !is_string(reply->element[2])) {
        return NULL;
    }
    return reply->element[2]->str;
}

tdm_status tdm__redis_reply_master(const redisReply *reply, struct tdm__redis_host *master_out)
{
    char text[TEXT_BYTES];
    uint64_t port;

    if (reply->type == REDIS_REPLY_NIL) {
        return tdm__fail(TDM_E_STORE,
                         "knows no master of this name (SENTINEL MASTERS lists the names)");
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || !is_string(reply->element[0]) ||
        !is_string(reply->element[1]) || reply->element[0]->len == 0 ||
        reply->element[0]->len >= sizeof(master_out->name) ||
        strlen(reply->element[0]->str) != reply->element[0]->len ||
        !parse_version(reply->element[1]->str, reply->element[1]->len, &port) ||
        port > UINT16_MAX) {
        return tdm__fail(TDM_E_STORE, "answered the question for the master with %s",
                         tdm__redis_reply_text(reply, text, sizeof(text)));
    }
    (void)snprintf(master_out->name, sizeof(master_out->name), "%s", reply->element[0]->str);
    master_out->port = (uint16_t)port;
    return TDM_OK;
}

tdm_status tdm__redis_reply_role(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || !is_string(reply->element[0])) {
        return reply_unexpected("ROLE", reply);
    }
    if (strcmp(reply->element[0]->str, "master") != 0) {
        return tdm__fail(TDM_E_STORE, "the sentinel names it, but its ROLE is %.40s",
                         reply->element[0]->str);
    }
    return TDM_OK;
}

bool tdm__redis_reply_not_master(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           (starts_with(reply, "READONLY ") || starts_with(reply, "MASTERDOWN "));
}

/* True if the server does not know the command that it was sent. */
static bool is_unknown_command(const redisReply *reply)
{
    return starts_with(reply, "ERR unknown command");
}

bool tdm__redis_reply_no_function(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           (starts_with(reply, "ERR Function not found") || is_unknown_command(reply));
}

tdm_status tdm__redis_reply_loaded(const redisReply *reply)
{
    if (is_string(reply)) {
        return TDM_OK;
    }
    if (reply->type == REDIS_REPLY_ERROR && strstr(reply->str, "already exists") != NULL) {
        return TDM_OK;
    }
    if (reply->type == REDIS_REPLY_ERROR && is_unknown_command(reply)) {
        return tdm__fail(TDM_E_STORE, "the Redis server does not know the command FUNCTION: it "
                                      "must be Redis 7 or later, or Valkey; TANDEM_REDIS_SERVER "
                                      "names the program that a node starts");
    }
    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOPERM", 6) == 0) {
        return tdm__fail(TDM_E_STORE,
                         "the user of Redis may not load the functions of Tandem (%s), and the "
                         "server does not have them: an administrator loads them by `tandem "
                         "redis-functions | redis-cli -x FUNCTION LOAD`",
                         reply->str);
    }
    return reply_unexpected("FUNCTION LOAD", reply);
}
