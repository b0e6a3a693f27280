/* command.h - encodes the commands that are sent to Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_COMMAND_H
#define TDM_REDIS_COMMAND_H

#include "runtime/redis/commit_session.h"
#include "runtime/store.h"

#include <stdbool.h>

/* One command in Redis' wire format (RESP). */
struct tdm__redis_command {
    /* Encoded command (owned), which may contain NUL bytes. */
    char *text;
    size_t bytes; /* Size of the encoded command in bytes. */
    /* Place in `text` of the 50 bytes that tdm__redis_command_stamp() sets (borrowed); NULL unless
     * the command is a commit. */
    char *stamp;
};

/* Capacity of the prefix of all keys of a cluster. */
enum { TDM__REDIS_KEY_PREFIX_BYTES = 120 };
/* Writes the prefix of all keys of the cluster, "tdm:{cluster}:", to `prefix`. Returns TDM_E_INVAL
 * if the cluster's name is not a plain word, because the name stands inside "{}" in every key. */
tdm_status tdm__redis_key_prefix(const char *cluster, char prefix[TDM__REDIS_KEY_PREFIX_BYTES]);
/* Encodes a call of the Lua function that reads the records whose keys match `patterns`.
 * `key_prefix` is the prefix of all keys of the cluster, "tdm:{cluster}:". */
tdm_status tdm__redis_command_read(const char *key_prefix, const char *const *patterns,
                                   uint32_t patterns_count, struct tdm__redis_command *command_out);
/* Encodes a call of the Lua function that opens a session for a writer, whose commits have numbers
 * from `lowest` on. `writer` is the text of an ID: that of the node, or a random one. */
tdm_status tdm__redis_command_session(const char *key_prefix, const char *writer, uint64_t lowest,
                                      struct tdm__redis_command *command_out);
/* Encodes a call of the Lua function that commits writes of the writer `writer`. It must be stamped
 * before it is sent. */
tdm_status tdm__redis_command_commit(const char *key_prefix, const char *writer,
                                     const struct tdm__store_write *writes, uint32_t writes_count,
                                     struct tdm__redis_command *command_out);
/* Sets which commit of its session an encoded commit is. Sending a stamped command twice has the
 * effect of sending it once; a new stamp makes it another commit. */
void tdm__redis_command_stamp(struct tdm__redis_command *command,
                              const struct tdm__redis_commit_stamp *stamp);
/* Encodes a call of the Lua function that renews the lease of a member. Sending the command twice
 * does no harm. */
tdm_status tdm__redis_command_renew(const char *key_prefix,
                                    const struct tdm__store_renewal *renewal,
                                    struct tdm__redis_command *command_out);
/* Encodes WAIT, to which the server replies when `replicas_count` replicas have what the connection
 * has written, or after `timeout_ms` milliseconds. */
tdm_status tdm__redis_command_wait(uint32_t replicas_count, int64_t timeout_ms,
                                   struct tdm__redis_command *command_out);
/* Encodes FUNCTION LOAD of the library of Lua functions (functions.h). */
tdm_status tdm__redis_command_load(struct tdm__redis_command *command_out);
/* Encodes SUBSCRIBE to the channel on which commits publish the keys of changed records. */
tdm_status tdm__redis_command_subscribe(const char *key_prefix,
                                        struct tdm__redis_command *command_out);
/* Frees the encoded text of a command. A zeroed command is allowed. */
void tdm__redis_command_free(struct tdm__redis_command *command);

#endif
