/* reply.h - checks and decodes the replies of Redis. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_REPLY_H
#define TDM_REDIS_REPLY_H

#include "runtime/redis/address.h"
#include "runtime/store/records.h"

#include <hiredis/hiredis.h>
#include <stdbool.h>

/* Most elements of an array in a reply of Redis. hiredis allocates an array as soon as it has read
 * the length, before any element has arrived. */
enum { TDM__REDIS_ELEMENTS_MAX = 1 << 22 };
/* Limits the arrays that a reader of hiredis accepts to TDM__REDIS_ELEMENTS_MAX elements. A longer
 * one fails with "Out of memory" and a warning in the log. */
void tdm__redis_reader_limit(redisReader *reader);

/* Decodes the reply to a read (key, version, bytes, key, ...) into sorted records, which the caller
 * frees with free(). Returns TDM_E_STORE for anything else. The functions below do no I/O. */
tdm_status tdm__redis_reply_records(const redisReply *reply,
                                    struct tdm__store_records **records_out);
/* Decodes the reply to a commit. "OK version" sets the version, 0 if nothing was put. "CONFLICT
 * key" returns TDM_E_CONFLICT with the key as detail, "HELD key" TDM_E_AGAIN. Anything else returns
 * TDM_E_STORE. An array of "CONFLICT key" and of key, version and bytes of each loser also sets
 * the losers as in struct tdm__store_committed, which the caller frees with free(); they are NULL
 * otherwise. */
tdm_status tdm__redis_reply_commit(const redisReply *reply, uint64_t *version_out,
                                   struct tdm__store_records **losers_out);
/* Returns whether the reply to a commit says that the server does not know the commit's session, so
 * that this copy of the command was not carried out. */
bool tdm__redis_reply_no_session(const redisReply *reply);
/* Decodes the reply to the opening of a session: the number of the session. Returns TDM_E_STORE for
 * anything else. */
tdm_status tdm__redis_reply_session(const redisReply *reply, uint64_t *session_out);
/* Decodes the reply to WAIT: a number of replicas. Returns TDM_E_STORE for anything else. */
tdm_status tdm__redis_reply_count(const redisReply *reply, uint64_t *count_out);
/* Decodes the reply to a renewal: six numbers, and then the list of members, if the reply has one.
 * The caller frees `members_out` with free(); it is NULL without a list. "LOST" returns
 * TDM_E_CONFLICT. Anything else returns TDM_E_STORE. */
tdm_status tdm__redis_reply_renewed(const redisReply *reply, struct tdm__store_renewed *renewed_out,
                                    struct tdm__store_records **members_out);
/* Returns the text of a message of a subscribed channel (borrowed from the reply), or NULL for any
 * other reply. */
const char *tdm__redis_reply_message(const redisReply *reply);

/* Decodes a sentinel's reply to SENTINEL GET-MASTER-ADDR-BY-NAME: where the master listens. Returns
 * TDM_E_STORE if the sentinel does not know the master, and for anything else. */
tdm_status tdm__redis_reply_master(const redisReply *reply, struct tdm__redis_host *master_out);
/* Checks the reply to ROLE. Returns TDM_E_STORE unless the server is a master. */
tdm_status tdm__redis_reply_role(const redisReply *reply);
/* Returns whether the reply says that the server is a replica, so that it has not carried out the
 * command. */
bool tdm__redis_reply_not_master(const redisReply *reply);

/* Returns whether the reply says that the server does not have the library of Lua functions. */
bool tdm__redis_reply_no_function(const redisReply *reply);
/* Decodes the reply to FUNCTION LOAD. It succeeds if the library was loaded or existed already. */
tdm_status tdm__redis_reply_loaded(const redisReply *reply);

/* Writes a description of a reply for messages, such as "an array of 3", to `text` and returns
 * `text`. */
const char *tdm__redis_reply_text(const redisReply *reply, char *text, size_t text_bytes);

#endif
