/* reply.h - what Redis answered, checked before anything believes it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_REPLY_H
#define TDM_REDIS_REPLY_H

#include "runtime/store/records.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* hiredis makes room for an array when it has read how long it is to be, before an element has
 * come.  From now on this reader refuses ("Out of memory", with a warning in our log) what is
 * longer than anything that we ask for. */
enum { TDM__REDIS_ELEMENTS_MAX = 1 << 22 };
void tdm__redis_reader_limit(redisReader *reader);

/* The rest is pure; anything unexpected is TDM_E_STORE with what came. */

/* key, version, bytes, key, …: the records, sorted; freed with free(). */
tdm_status tdm__redis_reply_records(const redisReply *reply,
                                    struct tdm__store_records **records_out);
/* "OK version", 0 where nothing was put; or "CONFLICT key": TDM_E_CONFLICT with the key as
 * detail. */
tdm_status tdm__redis_reply_commit(const redisReply *reply, uint64_t *version_out);
/* A message of a channel: its text (borrowed, NUL-terminated), or NULL for anything else. */
const char *tdm__redis_reply_message(const redisReply *reply);

/* The server has lost our library, or never had it. */
bool tdm__redis_reply_no_function(const redisReply *reply);
/* Answer to FUNCTION LOAD: loaded, or there already. */
tdm_status tdm__redis_reply_loaded(const redisReply *reply);

/* "error \"READONLY …\"", "an array of 3": for messages. */
const char *tdm__redis_reply_text(const redisReply *reply, char *text, size_t text_bytes);

#endif
