/* mailbox.h - an actor through which a sender and its receivers exchange messages. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_MAILBOX_H
#define TDM_COLOCATE_SCHEME_MAILBOX_H

#include "runtime/wire/message.h"

#include <tandem/actor.h>

/* Neither a sender nor a receiver of weights serves calls: both may be threads of drivers, or be
 * busy in a method. So both call a mailbox, an asynchronous actor of the class "tandem.mailbox",
 * which the sender creates and which ends with the sender. Messages have keys. A call that waits
 * for a message is kept until the message arrives, so no caller polls.
 *
 *   method  what it does
 *   put     Adds a message. It replaces a message with the same key.
 *   wait    Replies with the messages whose key begins with a prefix and is greater than another
 *           key, in the order of their arrival, once there are as many as the caller wants.
 *   close   Removes the messages with a prefix. With a status other than TDM_OK, waits for such
 *           messages fail with it, now and later.
 *
 * runtime/messages/scheme.def has the tables of the arguments, of the reply and of the messages.
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

/* Puts a message with the key: `structure`, encoded by its table. Does not block. `done_out`
 * receives a reference that the caller owns and that is done when the mailbox has the message; NULL
 * if the caller does not wait for that. */
tdm_status tdm__mailbox_put(tdm_actor *mailbox, const char *key, const struct tdm__message *table,
                            const void *structure, tdm_ref **done_out);
/* Puts a message as tdm__mailbox_put() does, and waits until the deadline that the mailbox has
 * it. */
tdm_status tdm__mailbox_put_and_wait(tdm_actor *mailbox, const char *key,
                                     const struct tdm__message *table, const void *structure,
                                     int64_t deadline_ms);

/* Starts to wait for `count` messages with the prefix whose keys are greater than `after`. Does not
 * block. The reference, which the caller owns, is done when they have arrived. */
tdm_status tdm__mailbox_wait_messages(tdm_actor *mailbox, const char *prefix, const char *after,
                                      uint64_t count, tdm_ref **messages_out);
/* Waits `timeout_ms` milliseconds for the messages of tdm__mailbox_wait_messages(). They are valid
 * as long as the caller retains `ref`. */
tdm_status tdm__mailbox_get_messages(tdm_ref *ref, int64_t timeout_ms,
                                     struct tdm__message_list *messages_out);
/* Returns the message with this index, which must be less than messages->count. Its key goes to
 * `key_out` unless that is NULL. Both are valid as long as the list. */
const tdm_value *tdm__mailbox_message_at(const struct tdm__message_list *messages, uint32_t index,
                                         const char **key_out);
/* Waits until the deadline for the message with that key. `value_out` is valid as long as the
 * caller retains `ref_out`. */
tdm_status tdm__mailbox_read_message(tdm_actor *mailbox, const char *key, int64_t deadline_ms,
                                     tdm_ref **ref_out, const tdm_value **value_out);
/* Waits until the deadline for a put or a close to be done, and releases `ref`. */
tdm_status tdm__mailbox_await_done(tdm_ref *ref, int64_t deadline_ms);
/* Removes the messages with the prefix; with a status other than TDM_OK also fails the waits for
 * them with `status` and `text`. Does not block. `done_out` is as that of tdm__mailbox_put(). */
tdm_status tdm__mailbox_close(tdm_actor *mailbox, const char *prefix, tdm_status status,
                              const char *text, tdm_ref **done_out);

#endif
