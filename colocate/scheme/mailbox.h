/* mailbox.h - an actor where a sender and its receivers leave notes for one another. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MAILBOX_H
#define TDM_COLOCATE_SCHEME_MAILBOX_H

#include <tandem/actor.h>

/* Neither end of a scheme takes calls: both may be drivers' threads, or in the middle of a
 * method.  So both call a third: an asynchronous actor of the class "tandem.mailbox", made by
 * the sender and gone with it.  Notes have keys; who waits for one that is not there has its
 * call kept, so nobody polls.
 *
 *   method  arguments                            replies
 *   put     key s, value v                       nothing; a note of the same key is replaced
 *   wait    prefix s, after s, count u           (key s, value v)…: in the order they came, the
 *                                                notes whose key begins with the prefix and is
 *                                                greater than `after`, once there are so many
 *   close   prefix s, status i, text s           nothing.  Removes those notes; unless the
 *                                                status is TDM_OK, waits for them fail with it,
 *                                                now and later
 *
 * Values may hold references: the mailbox holds them as long as the note is there. */

/* At most so many closed prefixes are remembered, the newest. */
enum { TDM__MAILBOX_CLOSED_MAX = 64 };

/* TDM_E_EXISTS where the name is taken. */
tdm_status tdm__mailbox_create(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                               tdm_actor **mailbox_out);
/* Looks for it until the deadline (on tdm__clock_ms()); the status is then TDM_E_TIMEOUT. */
tdm_status tdm__mailbox_find(tdm_runtime *runtime, const char *name, int64_t deadline_ms,
                             tdm_actor **mailbox_out);

/* The reference is done when the notes are there. */
tdm_status tdm__mailbox_wait_messages(tdm_actor *mailbox, const char *prefix, const char *after,
                                      uint64_t count, tdm_ref **messages_out);
/* Waits for the one note of that key; `ref_out` owns the value. */
tdm_status tdm__mailbox_read_message(tdm_actor *mailbox, const char *key, int64_t deadline_ms,
                                     tdm_ref **ref_out, const tdm_value **value_out);
/* Waits for a put, called by tdm_actor_call() for its format, and releases `ref`. */
tdm_status tdm__mailbox_await_put(tdm_ref *ref, int64_t deadline_ms);
tdm_status tdm__mailbox_close(tdm_actor *mailbox, const char *prefix, tdm_status status,
                              const char *text);

#endif
