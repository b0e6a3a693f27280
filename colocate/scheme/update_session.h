/* update_session.h - what a sender and its receivers both know: keys, members and requests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_UPDATE_SESSION_H
#define TDM_COLOCATE_SCHEME_UPDATE_SESSION_H

#include "colocate/weights/version_service.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* Sizes of texts in bytes, including the terminating NUL. */
enum {
    TDM__UPDATE_KEY_BYTES = 96,         /* Size of a mailbox message key. */
    TDM__UPDATE_MEMBER_TEXT_BYTES = 64, /* Size of the text of tdm__update_member_text(). */
};

/* A model and its version record. Each sender has its own record from its connect on, so the
 * receivers of an earlier sender do not matter to it. Senders and receivers embed this struct. */
struct tdm__update_session {
    tdm_runtime *runtime; /* Runtime of this process; borrowed. */
    /* Name of the model. */
    char model[TDM__MODEL_NAME_BYTES_MAX];
    /* Name of the version record; empty before tdm__update_session_set_record(). */
    char record[TDM__MODEL_NAME_BYTES_MAX];
};

/* Initializes the session. Returns TDM_E_INVAL for a malformed name of a model. */
tdm_status tdm__update_session_init(struct tdm__update_session *session, tdm_runtime *runtime,
                                    const char *model);

/* Sets the name of the record, which consists of the model's name and the ID of the sender's
 * mailbox. */
void tdm__update_session_set_record(struct tdm__update_session *session, tdm_actor *mailbox);

/* Returns the ID of an update. It follows from the record and the epoch, so sender and receivers
 * compute the same. */
struct tdm__id tdm__update_session_update_id(const struct tdm__update_session *session,
                                             uint64_t epoch);

/* Sets `member_out` to this process as a receiver. An actor has one receiver of a model at a time,
 * and each of its receivers gets a higher incarnation than those before. Returns TDM_E_STATE in a
 * driver. */
tdm_status tdm__update_session_self_member(const struct tdm__update_session *session,
                                           struct tdm__member *member_out);

/* Asks the node whether the member lives. Returns TDM_OK if it may be alive. Returns
 * TDM_E_ACTOR_DIED with the cause if its process has ended or was fenced; on a node that cannot be
 * reached it is killed first. */
tdm_status tdm__update_session_check_alive(const struct tdm__update_session *session,
                                           const struct tdm__member *member);
/* Writes the member as text for error messages and returns `text`. */
const char *tdm__update_member_text(const struct tdm__member *member,
                                    char text[TDM__UPDATE_MEMBER_TEXT_BYTES]);

/* Writes the key of a message about an update, "update/EPOCH/WHAT", and returns `key`. */
const char *tdm__update_message_key(uint64_t epoch, const char *what,
                                    char key[TDM__UPDATE_KEY_BYTES]);

/* Writes the key of a receiver's join message, "join/ACTOR/INCARNATION", and returns `key`. */
const char *tdm__update_join_key(const struct tdm__member *member, char key[TDM__UPDATE_KEY_BYTES]);

/* Sends a request of the commit protocol about the session's record and waits for its reply until
 * the deadline. */
tdm_status tdm__update_session_request(const struct tdm__update_session *session,
                                       const struct tdm__version_request *request,
                                       int64_t deadline_ms, struct tdm__version_reply *reply_out);
/* Proposes an outcome for the update of that epoch. Sets `committed_out` to true if the stored
 * outcome is COMMITTED. */
tdm_status tdm__update_session_decide(const struct tdm__update_session *session, uint64_t epoch,
                                      const struct tdm__version_request *proposal,
                                      int64_t deadline_ms, bool *committed_out);

#endif
