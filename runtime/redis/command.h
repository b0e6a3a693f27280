/* command.h - encodes the commands that are sent to Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_COMMAND_H
#define TDM_REDIS_COMMAND_H

#include "runtime/store.h"

#include <stdbool.h>

/* One command in Redis' wire format (RESP). */
struct tdm__redis_command {
    /* Encoded command (owned), which may contain NUL bytes. */
    char *text;
    size_t bytes; /* Size of the encoded command in bytes. */
};

/* Encodes a call of the Lua function that reads the records whose keys match `patterns`.
 * `key_prefix` is the prefix of all keys of the cluster, "tdm:{cluster}:". */
tdm_status tdm__redis_command_read(const char *key_prefix, const char *const *patterns,
                                   uint32_t patterns_count, struct tdm__redis_command *command_out);
/* Encodes a call of the Lua function that commits writes, with a new random request ID. Sending the
 * command twice has the effect of sending it once. */
tdm_status tdm__redis_command_commit(const char *key_prefix, const struct tdm__store_write *writes,
                                     uint32_t writes_count, struct tdm__redis_command *command_out);
/* Encodes a call of the Lua function that renews the lease of a member. Sending the command twice
 * does no harm. */
tdm_status tdm__redis_command_renew(const char *key_prefix,
                                    const struct tdm__store_renewal *renewal,
                                    struct tdm__redis_command *command_out);
/* Encodes FUNCTION LOAD of the library of Lua functions (functions.h). */
tdm_status tdm__redis_command_load(struct tdm__redis_command *command_out);
/* Encodes SUBSCRIBE to the channel on which commits publish the keys of changed records. */
tdm_status tdm__redis_command_subscribe(const char *key_prefix,
                                        struct tdm__redis_command *command_out);
/* Frees the encoded text of a command. A zeroed command is allowed. */
void tdm__redis_command_free(struct tdm__redis_command *command);

#endif
