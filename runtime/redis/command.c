/* command.c - encodes the commands that are sent to Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each function collects the arguments of a command as borrowed pointers, and hiredis encodes them
 * into one allocation. functions.c defines the arguments of the library's functions.
 *
 * A commit carries its session and number, under which the server keeps its outcome. So the same
 * encoded command can be sent again when the connection was lost. They are known only when it is
 * sent, so they are a text of fixed length, which is replaced in the encoded command. The functions
 * have no state and any thread may call them. */

#include "runtime/redis/command.h"

#include "runtime/assert.h"
#include "runtime/error.h"
#include "runtime/redis/functions.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NUMBER_BYTES = 24,       /* Capacity of a number as text. */
    ARGUMENTS_PER_WRITE = 5, /* Number of arguments of the Lua commit function for each write. */
    CLUSTER_BYTES_MAX = 100, /* Most bytes of a cluster's name. */
    STAMP_BYTES = 50         /* Length of a stamp: three numbers of 16 digits, and spaces. */
};

/* Stamp of a commit that has not been stamped. */
static const char blank_stamp[] = "0000000000000000 0000000000000000 0000000000000000";
_Static_assert(sizeof(blank_stamp) == STAMP_BYTES + 1, "the stamp of functions.c");

/* The arguments of a Redis command to encode. The texts are borrowed. */
struct arguments {
    /* Array of argument texts (owned until the command is encoded). */
    const char **texts;
    /* Array of the sizes of `texts` in bytes (owned until the command is encoded). */
    size_t *bytes;
    int count;    /* Number of arguments in both arrays. */
    int capacity; /* Capacity of both arrays in arguments. */
};

/* Allocates an empty list of arguments of a command. */
static tdm_status arguments_init(struct arguments *arguments, uint32_t capacity)
{
    arguments->texts = calloc(capacity, sizeof(*arguments->texts));
    arguments->bytes = calloc(capacity, sizeof(*arguments->bytes));
    arguments->count = 0;
    arguments->capacity = (int)capacity;
    if (arguments->texts == NULL || arguments->bytes == NULL) {
        free(arguments->texts);
        free(arguments->bytes);
        return tdm__fail(TDM_E_NOMEM, "redis command of %u arguments", capacity);
    }
    return TDM_OK;
}

/* Appends a binary argument to the command's arguments; `data` is borrowed. */
static void arguments_add_bytes(struct arguments *arguments, const void *data, size_t bytes)
{
    TDM_ASSERT(arguments->count < arguments->capacity);
    arguments->texts[arguments->count] = bytes > 0 ? data : "";
    arguments->bytes[arguments->count] = bytes;
    arguments->count++;
}

/* Appends a text argument to the command's arguments; `text` is borrowed. */
static void arguments_add_text(struct arguments *arguments, const char *text)
{
    arguments_add_bytes(arguments, text, strlen(text));
}

/* Encodes a command from its arguments and frees the arrays of arguments. */
static tdm_status arguments_encode(struct arguments *arguments,
                                   struct tdm__redis_command *command_out)
{
    char *text = NULL;
    int bytes = redisFormatCommandArgv(&text, arguments->count, arguments->texts, arguments->bytes);

    free(arguments->texts);
    free(arguments->bytes);
    if (bytes < 0) {
        return tdm__fail(TDM_E_NOMEM, "redis command of %d arguments", arguments->count);
    }
    *command_out = (struct tdm__redis_command){.text = text, .bytes = (size_t)bytes};
    return TDM_OK;
}

/* Appends the first arguments of a call of a Lua function: the Redis command, the function's name,
 * and the key prefix as the only key. */
static void arguments_add_call(struct arguments *arguments, const char *command,
                               const char *function, const char *key_prefix)
{
    arguments_add_text(arguments, command);
    arguments_add_text(arguments, function);
    arguments_add_text(arguments, "1");
    arguments_add_text(arguments, key_prefix);
}

tdm_status tdm__redis_key_prefix(const char *cluster, char prefix[TDM__REDIS_KEY_PREFIX_BYTES])
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    size_t bytes = strlen(cluster);

    if (bytes == 0 || bytes > CLUSTER_BYTES_MAX || strspn(cluster, allowed) != bytes) {
        return tdm__fail(TDM_E_INVAL,
                         "cluster \"%.40s\" of %zu bytes: wanted 1 to %d letters, digits, '-', "
                         "'_' or '.'",
                         cluster, bytes, CLUSTER_BYTES_MAX);
    }
    (void)snprintf(prefix, TDM__REDIS_KEY_PREFIX_BYTES, "tdm:{%s}:", cluster);
    return TDM_OK;
}

tdm_status tdm__redis_command_read(const char *key_prefix, const char *const *patterns,
                                   uint32_t patterns_count, struct tdm__redis_command *command_out)
{
    struct arguments arguments;

    TDM_TRY(arguments_init(&arguments, 4 + patterns_count));
    arguments_add_call(&arguments, "FCALL_RO", tdm__redis_library()->read_function, key_prefix);
    for (uint32_t i = 0; i < patterns_count; i++) {
        arguments_add_text(&arguments, patterns[i]);
    }
    return arguments_encode(&arguments, command_out);
}

/* Returns the word for a kind of write that the Lua commit function expects. */
static const char *kind_text(enum tdm__store_write_kind kind)
{
    switch (kind) {
    case TDM__STORE_PUT:
        return "put";
    case TDM__STORE_DELETE:
        return "delete";
    case TDM__STORE_CHECK_VERSION:
        return "check";
    case TDM__STORE_CHECK_LOST:
        return "lost";
    case TDM__STORE_CHECK_GENERATION:
        return "generation";
    }
    return "";
}

/* The two numbers of a write to the store as text, which must stay until the command is encoded. */
struct write_numbers {
    char version[NUMBER_BYTES]; /* Version that the record is expected to have. */
    char lease[NUMBER_BYTES];   /* Milliseconds of the record's lease. */
};

/* Appends the five arguments of one write to the arguments of a commit. `write_numbers` must stay
 * until the command is encoded. */
static void arguments_add_write(struct arguments *arguments, const struct tdm__store_write *write,
                                struct write_numbers *write_numbers)
{
    bool has_bytes = write->kind == TDM__STORE_PUT;

    (void)snprintf(write_numbers->version, sizeof(write_numbers->version), "%" PRIu64,
                   write->version);
    (void)snprintf(write_numbers->lease, sizeof(write_numbers->lease), "%" PRId64, write->lease_ms);
    arguments_add_text(arguments, kind_text(write->kind));
    arguments_add_text(arguments, write->key);
    arguments_add_text(arguments,
                       write->version == TDM__VERSION_ANY ? "any" : write_numbers->version);
    arguments_add_text(arguments, write_numbers->lease);
    arguments_add_bytes(arguments, write->bytes.data, has_bytes ? write->bytes.size_bytes : 0);
}

tdm_status tdm__redis_command_session(const char *key_prefix, const char *writer, uint64_t lowest,
                                      struct tdm__redis_command *command_out)
{
    struct arguments arguments;
    char number[NUMBER_BYTES];

    (void)snprintf(number, sizeof(number), "%016" PRIu64, lowest);
    TDM_TRY(arguments_init(&arguments, 6));
    arguments_add_call(&arguments, "FCALL", tdm__redis_library()->session_function, key_prefix);
    arguments_add_text(&arguments, writer);
    arguments_add_text(&arguments, number);
    return arguments_encode(&arguments, command_out);
}

/* Returns the place of the blank stamp in the encoded text of a commit. No argument before the
 * stamp contains its text, since each is shorter or a plain word. */
static char *find_stamp(const struct tdm__redis_command *command)
{
    char *stamp = memmem(command->text, command->bytes, blank_stamp, STAMP_BYTES);

    TDM_ASSERT(stamp != NULL);
    return stamp;
}

tdm_status tdm__redis_command_commit(const char *key_prefix, const char *writer,
                                     const struct tdm__store_write *writes, uint32_t writes_count,
                                     struct tdm__redis_command *command_out)
{
    struct write_numbers *write_numbers = calloc(writes_count + 1u, sizeof(*write_numbers));
    struct arguments arguments;
    tdm_status status;

    if (write_numbers == NULL) {
        return tdm__fail(TDM_E_NOMEM, "commit of %u writes", writes_count);
    }
    status = arguments_init(&arguments, 6 + ARGUMENTS_PER_WRITE * writes_count);
    if (status == TDM_OK) {
        arguments_add_call(&arguments, "FCALL", tdm__redis_library()->commit_function, key_prefix);
        arguments_add_text(&arguments, writer);
        arguments_add_text(&arguments, blank_stamp);
        for (uint32_t i = 0; i < writes_count; i++) {
            arguments_add_write(&arguments, &writes[i], &write_numbers[i]);
        }
        status = arguments_encode(&arguments, command_out);
    }
    free(write_numbers);
    if (status == TDM_OK) {
        command_out->stamp = find_stamp(command_out);
    }
    return status;
}

void tdm__redis_command_stamp(struct tdm__redis_command *command,
                              const struct tdm__redis_commit_stamp *stamp)
{
    char text[NUMBER_BYTES * 3];
    int length = snprintf(text, sizeof(text), "%016" PRIu64 " %016" PRIu64 " %016" PRIu64,
                          stamp->session, stamp->number, stamp->lowest);

    TDM_ASSERT(length == STAMP_BYTES);
    memcpy(command->stamp, text, STAMP_BYTES);
}

tdm_status tdm__redis_command_wait(uint32_t replicas_count, int64_t timeout_ms,
                                   struct tdm__redis_command *command_out)
{
    struct arguments arguments;
    char replicas[NUMBER_BYTES];
    char timeout[NUMBER_BYTES];

    (void)snprintf(replicas, sizeof(replicas), "%" PRIu32, replicas_count);
    (void)snprintf(timeout, sizeof(timeout), "%" PRId64, timeout_ms);
    TDM_TRY(arguments_init(&arguments, 3));
    arguments_add_text(&arguments, "WAIT");
    arguments_add_text(&arguments, replicas);
    arguments_add_text(&arguments, timeout);
    return arguments_encode(&arguments, command_out);
}

tdm_status tdm__redis_command_renew(const char *key_prefix,
                                    const struct tdm__store_renewal *renewal,
                                    struct tdm__redis_command *command_out)
{
    struct arguments arguments;
    char lease[NUMBER_BYTES];
    char grace[NUMBER_BYTES];
    char count[NUMBER_BYTES];
    char epoch[NUMBER_BYTES];
    char generation[NUMBER_BYTES];

    (void)snprintf(lease, sizeof(lease), "%" PRId64, renewal->lease_ms);
    (void)snprintf(grace, sizeof(grace), "%" PRId64, renewal->grace_ms);
    (void)snprintf(count, sizeof(count), "%" PRIu64, renewal->renewals_count);
    (void)snprintf(epoch, sizeof(epoch), "%" PRIu64, renewal->members_epoch);
    (void)snprintf(generation, sizeof(generation), "%" PRIu64, renewal->generation);
    TDM_TRY(arguments_init(&arguments, 10));
    arguments_add_call(&arguments, "FCALL", tdm__redis_library()->renew_function, key_prefix);
    arguments_add_text(&arguments, renewal->key);
    arguments_add_text(&arguments, lease);
    arguments_add_text(&arguments, grace);
    arguments_add_text(&arguments, count);
    arguments_add_text(&arguments, epoch);
    arguments_add_text(&arguments, generation);
    return arguments_encode(&arguments, command_out);
}

tdm_status tdm__redis_command_load(struct tdm__redis_command *command_out)
{
    struct arguments arguments;

    TDM_TRY(arguments_init(&arguments, 3));
    arguments_add_text(&arguments, "FUNCTION");
    arguments_add_text(&arguments, "LOAD");
    arguments_add_text(&arguments, tdm__redis_library()->text);
    return arguments_encode(&arguments, command_out);
}

tdm_status tdm__redis_command_subscribe(const char *key_prefix,
                                        struct tdm__redis_command *command_out)
{
    struct arguments arguments;
    char channel[256];

    (void)snprintf(channel, sizeof(channel), "%schanged", key_prefix);
    TDM_TRY(arguments_init(&arguments, 2));
    arguments_add_text(&arguments, "SUBSCRIBE");
    arguments_add_text(&arguments, channel);
    return arguments_encode(&arguments, command_out);
}

void tdm__redis_command_free(struct tdm__redis_command *command)
{
    redisFreeCommand(command->text);
    command->text = NULL;
}
