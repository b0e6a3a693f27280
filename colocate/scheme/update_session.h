/* update_session.h - what both ends of a scheme know of an update: its names, its steps, its dead.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_UPDATE_SESSION_H
#define TDM_COLOCATE_SCHEME_UPDATE_SESSION_H

#include "colocate/weights/version_service.h"

#include <stdbool.h>
#include <tandem/actor.h>

enum { TDM__UPDATE_KEY_BYTES = 96, TDM__UPDATE_MEMBER_TEXT_BYTES = 64 };

/* A model, and the record of its versions.  Each sender has one of its own, from its connect
 * on: so what became of the receivers of a sender before it does not matter to it. */
struct tdm__update_session {
    tdm_runtime *runtime; /* borrowed */
    char model[TDM__MODEL_NAME_BYTES_MAX];
    char record[TDM__MODEL_NAME_BYTES_MAX]; /* "" before tdm__update_session_set_record() */
};

/* TDM_E_INVAL for a model id that is none. */
tdm_status tdm__update_session_init(struct tdm__update_session *session, tdm_runtime *runtime,
                                    const char *model);

/* The sender's mailbox makes the record. */
void tdm__update_session_set_record(struct tdm__update_session *session, tdm_actor *mailbox);

/* Follows from the record and the epoch, so that both ends can name it. */
struct tdm__id tdm__update_session_update_id(const struct tdm__update_session *session,
                                             uint64_t epoch);

/* This process's receivers as members.  An actor has one receiver of a model at a time, and
 * each of its receivers a higher incarnation than those before it. */
tdm_status tdm__update_session_self_member(const struct tdm__update_session *session,
                                           struct tdm__member *member_out);

/* TDM_OK: it may be alive.  TDM_E_ACTOR_DIED, with how it died: its process has ended, or has
 * been fenced: on a node that cannot be reached it is killed first.  Asks the node. */
tdm_status tdm__update_session_check_alive(const struct tdm__update_session *session,
                                           const struct tdm__member *member);
const char *tdm__update_member_text(const struct tdm__member *member,
                                    char text[TDM__UPDATE_MEMBER_TEXT_BYTES]);

/* The keys of notes: "update/<epoch>/<what>". */
const char *tdm__update_message_key(uint64_t epoch, const char *what,
                                    char key[TDM__UPDATE_KEY_BYTES]);

/* "join/<actor>/<incarnation>": of the note that says a receiver is there. */
const char *tdm__update_join_key(const struct tdm__member *member, char key[TDM__UPDATE_KEY_BYTES]);

/* One of the five steps; until the deadline. */
tdm_status tdm__update_session_request(const struct tdm__update_session *session,
                                       const struct tdm__version_request *request,
                                       int64_t deadline_ms, struct tdm__version_reply *answer_out);
/* Proposes, and tells what the outcome is. */
tdm_status tdm__update_session_decide(const struct tdm__update_session *session, uint64_t epoch,
                                      const struct tdm__version_request *proposal,
                                      int64_t deadline_ms, bool *committed_out);

#endif
