/* command.h - the commands we send, in Redis' own form. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_COMMAND_H
#define TDM_REDIS_COMMAND_H

#include "runtime/store.h"

#include <stdbool.h>

struct tdm__redis_command {
    char *text; /* owned; binary */
    size_t bytes;
};

/* `base` is the prefix of all keys of the cluster, "tdm:{cluster}:". */
tdm_status tdm__redis_command_read(const char *base, const char *const *patterns,
                                   uint32_t patterns_count, struct tdm__redis_command *command_out);
/* With a new request id inside: sent twice, it happens once. */
tdm_status tdm__redis_command_commit(const char *base, const struct tdm__store_write *writes,
                                     uint32_t writes_count, struct tdm__redis_command *command_out);
tdm_status tdm__redis_command_load(struct tdm__redis_command *command_out);
tdm_status tdm__redis_command_subscribe(const char *base, struct tdm__redis_command *command_out);
void tdm__redis_command_free(struct tdm__redis_command *command);

#endif
