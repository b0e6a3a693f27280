/* mailbox.h - an actor through which a sender and its receivers exchange messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MAILBOX_H
#define TDM_COLOCATE_SCHEME_MAILBOX_H

#include <tandem/actor.h>

/* Neither a sender nor a receiver of weights serves calls: both may be threads of drivers, or be
 * busy in a method. So both call a mailbox, an asynchronous actor of the class "tandem.mailbox",
 * which the sender creates and which ends with the sender. Messages have keys. A call that waits
 * for a message is kept until the message arrives, so no caller polls.
 *
 *   method  arguments                            reply
 *   put     key s, value v                       Nothing. Replaces a message with the same key.
 *   wait    prefix s, after s, count u           (key s, value v)...: the messages whose key
 *                                                begins with the prefix and is greater than
 *                                                `after`, in the order of their arrival, once
 *                                                there are `count` of them.
 *   close   prefix s, status i, text s           Nothing. Removes the messages with the prefix.
 *                                                Unless the status is TDM_OK, waits for them
 *                                                fail with it, now and later.
 *
 * Values may contain references; the mailbox retains them as long as it has the message. */

/* The largest number of closed prefixes that a mailbox remembers; the oldest is dropped. */
enum { TDM__MAILBOX_CLOSED_MAX = 64 };

/* Creates a mailbox and waits until it is ready. The caller owns it. Returns TDM_E_EXISTS if the
 * name is taken. */
tdm_status tdm__mailbox_create(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                               tdm_actor **mailbox_out);
/* Looks for the mailbox until the deadline, in milliseconds of tdm__clock_ms(); then returns
 * TDM_E_TIMEOUT. The caller owns the handle. */
tdm_status tdm__mailbox_find(tdm_runtime *runtime, const char *name, int64_t deadline_ms,
                             tdm_actor **mailbox_out);

/* Starts to wait for `count` messages with the prefix whose keys are greater than `after`. Does not
 * block. The reference, which the caller owns, is done when they have arrived. */
tdm_status tdm__mailbox_wait_messages(tdm_actor *mailbox, const char *prefix, const char *after,
                                      uint64_t count, tdm_ref **messages_out);
/* Waits until the deadline for the message with that key. `value_out` is valid as long as the
 * caller retains `ref_out`. */
tdm_status tdm__mailbox_read_message(tdm_actor *mailbox, const char *key, int64_t deadline_ms,
                                     tdm_ref **ref_out, const tdm_value **value_out);
/* Waits until a "put" that was called with a tdm_actor_call() is done, and releases `ref`. */
tdm_status tdm__mailbox_await_put(tdm_ref *ref, int64_t deadline_ms);
/* Removes the messages with the prefix; with a status other than TDM_OK also fails the waits for
 * them with `status` and `text`. Does not block. */
tdm_status tdm__mailbox_close(tdm_actor *mailbox, const char *prefix, tdm_status status,
                              const char *text);

#endif
