/* mailbox.c - an actor through which a sender and its receivers exchange messages. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The first half is the actor "tandem.mailbox". Its state is a list of messages in the order of
 * their arrival, a list of kept wait calls, and the prefixes that were closed with a failure. A
 * wait is answered when enough messages match, when its prefix is closed, or when it was
 * cancelled. The class is asynchronous, so one thread runs all methods and there are no locks.
 *
 * The second half has the functions with which a sender and its receivers call the actor, on any
 * thread. The keys that they use are listed in update_session.h. */

#include "colocate/scheme/mailbox.h"

#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* ---- the actor ----------------------------------------------------------------------- */

/* A message that was put into the mailbox. */
struct message {
    TAILQ_ENTRY(message) link; /* Position in the mailbox's messages. */
    char *key;                 /* Key of the message; owned. */
    /* Reference to a copy of the value, which retains everything the value refers to. Owned. */
    tdm_ref *ref;
    const tdm_value *value; /* The value; it lives as long as `ref`. */
};

/* A call of the method "wait" that is kept until its messages arrive. */
struct waiter {
    TAILQ_ENTRY(waiter) link; /* Position in the mailbox's waiters. */
    tdm_call *call;           /* The kept call; it gets exactly one reply. */
    char *prefix;             /* Prefix of the keys for which it waits; owned. */
    char *after;              /* Only messages with greater keys count; owned. */
    uint64_t count;           /* Number of messages for which it waits. */
};

/* A prefix that was closed with a failure. */
struct closed_prefix {
    TAILQ_ENTRY(closed_prefix) link; /* Position in the mailbox's closed prefixes. */
    char *prefix;                    /* Prefix of the keys for which waits fail; owned. */
    tdm_status status;               /* Status with which they fail. */
    char *text;                      /* Error text with which they fail; owned. */
};

/* Lists of a mailbox. */
TAILQ_HEAD(messages, message);
TAILQ_HEAD(waiters, waiter);
TAILQ_HEAD(closings, closed_prefix);

/* State of a mailbox actor. One thread runs all its methods because the class is asynchronous. */
struct mailbox {
    struct messages messages; /* Messages in the order of their arrival; owned. */
    struct waiters waiters;   /* Calls that wait for messages; owned. */
    struct closings closed; /* Prefixes that were closed with a failure, the newest first; owned. */
    uint32_t closed_count;  /* Number of closed prefixes. */
};

/* Returns true if the text begins with the prefix. */
static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Removes the message from the mailbox and frees it. */
static void message_remove(struct mailbox *mailbox, struct message *message)
{
    TAILQ_REMOVE(&mailbox->messages, message, link);
    tdm_ref_release(message->ref);
    free(message->key);
    free(message);
}

/* Removes the waiter from the mailbox and frees it. Does not reply to its call. */
static void waiter_remove(struct mailbox *mailbox, struct waiter *waiter)
{
    TAILQ_REMOVE(&mailbox->waiters, waiter, link);
    free(waiter->prefix);
    free(waiter->after);
    free(waiter);
}

/* Removes the closed prefix from the mailbox and frees it. */
static void closed_remove(struct mailbox *mailbox, struct closed_prefix *closed)
{
    TAILQ_REMOVE(&mailbox->closed, closed, link);
    mailbox->closed_count--;
    free(closed->prefix);
    free(closed->text);
    free(closed);
}

/* ---- waiting calls ------------------------------------------------------------------- */

/* Returns true if the waiter waits for the message. */
static bool message_matches_waiter(const struct waiter *waiter, const struct message *message)
{
    return begins_with(message->key, waiter->prefix) && strcmp(message->key, waiter->after) > 0;
}

/* Returns how many messages match the waiter. */
static uint32_t count_messages(const struct mailbox *mailbox, const struct waiter *waiter)
{
    const struct message *message;
    uint32_t count = 0;

    TAILQ_FOREACH(message, &mailbox->messages, link)
    {
        count += message_matches_waiter(waiter, message) ? 1 : 0;
    }
    return count;
}

/* Position of a waiter's reply in the messages of the mailbox. */
struct reply_cursor {
    const struct waiter *waiter; /* Waiter that is replied to; borrowed. */
    const struct message *next;  /* Message at which the search for the next entry begins. */
};

/* Getter of a message list: describes the next message that matches. It is called once for each
 * index, in order. */
static void get_next_entry(const void *arg, uint32_t index, void *item_out)
{
    struct reply_cursor *cursor = (struct reply_cursor *)(uintptr_t)arg;
    const struct message *message = cursor->next;

    (void)index;
    while (!message_matches_waiter(cursor->waiter, message)) {
        message = TAILQ_NEXT(message, link);
    }
    *(struct tdm__mailbox_entry_message *)item_out = (struct tdm__mailbox_entry_message){
        .key = message->key, .value = {.value = message->value}};
    cursor->next = TAILQ_NEXT(message, link);
}

/* Replies to the waiter's call with the messages that match. */
static tdm_status reply_messages(const struct mailbox *mailbox, const struct waiter *waiter)
{
    struct reply_cursor cursor = {.waiter = waiter, .next = TAILQ_FIRST(&mailbox->messages)};
    const struct tdm__mailbox_entries_message reply = {
        .entries = {
            .count = count_messages(mailbox, waiter), .get = get_next_entry, .arg = &cursor}};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__mailbox_entries_encode(&reply, writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(waiter->call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Returns the closed prefix with which the given prefix begins, or NULL. */
static const struct closed_prefix *find_closed(const struct mailbox *mailbox, const char *prefix)
{
    const struct closed_prefix *closed;

    TAILQ_FOREACH(closed, &mailbox->closed, link)
    {
        if (begins_with(prefix, closed->prefix)) {
            return closed;
        }
    }
    return NULL;
}

/* Replies to the waiter's call if it is due, and then frees the waiter. Returns true if it did. */
static bool waiter_try_reply(struct mailbox *mailbox, struct waiter *waiter)
{
    const struct closed_prefix *closed = find_closed(mailbox, waiter->prefix);

    if (closed != NULL) {
        tdm_call_fail(waiter->call, closed->status, "%s", closed->text);
    } else if (tdm_call_is_canceled(waiter->call) != 0) {
        tdm_call_fail(waiter->call, TDM_E_CANCELED, "the wait for %s was canceled", waiter->prefix);
    } else if (count_messages(mailbox, waiter) < waiter->count) {
        return false;
    } else if (reply_messages(mailbox, waiter) != TDM_OK) {
        tdm_call_fail(waiter->call, TDM_E_NOMEM, "%s", tdm_error_detail());
    }
    waiter_remove(mailbox, waiter);
    return true;
}

/* Replies to all waiters whose messages have arrived or whose prefix is closed. */
static void reply_ready_waiters(struct mailbox *mailbox)
{
    struct waiter *next;

    for (struct waiter *waiter = TAILQ_FIRST(&mailbox->waiters); waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        (void)waiter_try_reply(mailbox, waiter);
    }
}

/* The method "wait": keeps the call until its messages arrive. */
static tdm_status mailbox_wait(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    struct tdm__mailbox_wait_message message;
    struct waiter *waiter;
    tdm_status status;

    TDM_TRY(tdm__mailbox_wait_decode(tdm_call_arguments(call), &message));
    waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a wait for %s", message.prefix);
    }
    waiter->call = call;
    waiter->count = message.messages_count;
    waiter->prefix = strdup(message.prefix);
    waiter->after = strdup(message.after);
    status = waiter->prefix == NULL || waiter->after == NULL
                 ? tdm__fail(TDM_E_NOMEM, "a wait for messages")
                 : tdm_call_keep(call);
    TAILQ_INSERT_TAIL(&mailbox->waiters, waiter, link);
    if (status != TDM_OK) {
        waiter_remove(mailbox, waiter);
        return status;
    }
    reply_ready_waiters(mailbox); /* This also removes waiters whose calls were cancelled. */
    return TDM_OK;
}

/* ---- messages ------------------------------------------------------------------------ */

/* Creates a message with a copy of the value. */
static tdm_status message_create(const char *key, const tdm_value *value,
                                 struct message **message_out)
{
    struct message *message = calloc(1, sizeof(*message));
    tdm_status status;

    if (message == NULL || (message->key = strdup(key)) == NULL) {
        free(message);
        return tdm__fail(TDM_E_NOMEM, "a message %s", key);
    }
    status = tdm_put(tdm_runtime_current(), &message->ref, "v", value);
    if (status == TDM_OK) {
        status = tdm_get(message->ref, 0, "v", &message->value);
    }
    if (status != TDM_OK) {
        tdm_ref_release(message->ref);
        free(message->key);
        free(message);
        return status;
    }
    *message_out = message;
    return TDM_OK;
}

/* Removes the messages whose keys begin with the prefix; with `whole` only the message whose key is
 * exactly the prefix. */
static void remove_messages(struct mailbox *mailbox, const char *prefix, bool whole)
{
    struct message *next;

    for (struct message *message = TAILQ_FIRST(&mailbox->messages); message != NULL;
         message = next) {
        next = TAILQ_NEXT(message, link);
        if (begins_with(message->key, prefix) && (!whole || strcmp(message->key, prefix) == 0)) {
            message_remove(mailbox, message);
        }
    }
}

/* The method "put": stores a message and replies to the waiters for it. */
static tdm_status mailbox_put(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    struct tdm__mailbox_put_message arguments;
    struct message *message;

    TDM_TRY(tdm__mailbox_put_decode(tdm_call_arguments(call), &arguments));
    TDM_TRY(message_create(arguments.key, arguments.value.value, &message));
    remove_messages(mailbox, arguments.key, true);
    TAILQ_INSERT_TAIL(&mailbox->messages, message, link);
    reply_ready_waiters(mailbox);
    return TDM_OK;
}

/* The method "close": removes messages, and fails waits unless the status is TDM_OK. */
static tdm_status mailbox_close(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    struct tdm__mailbox_close_message message;
    struct closed_prefix *closed;

    TDM_TRY(tdm__mailbox_close_decode(tdm_call_arguments(call), &message));
    remove_messages(mailbox, message.prefix, false);
    if (message.status == TDM_OK) {
        return TDM_OK;
    }
    closed = calloc(1, sizeof(*closed));
    if (closed == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the end of %s", message.prefix);
    }
    *closed = (struct closed_prefix){.prefix = strdup(message.prefix),
                                     .status = (tdm_status)message.status,
                                     .text = strdup(message.text)};
    TAILQ_INSERT_HEAD(&mailbox->closed, closed, link);
    mailbox->closed_count++;
    if (closed->prefix == NULL || closed->text == NULL) {
        closed_remove(mailbox, closed);
        return tdm__fail(TDM_E_NOMEM, "the end of %s", message.prefix);
    }
    reply_ready_waiters(mailbox);
    if (mailbox->closed_count > TDM__MAILBOX_CLOSED_MAX) {
        closed_remove(mailbox, TAILQ_LAST(&mailbox->closed, closings));
    }
    return TDM_OK;
}

/* Constructs an empty mailbox. */
static tdm_status mailbox_construct(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;

    (void)call;
    TAILQ_INIT(&mailbox->messages);
    TAILQ_INIT(&mailbox->waiters);
    TAILQ_INIT(&mailbox->closed);
    return TDM_OK;
}

/* Frees everything in the mailbox. */
static void mailbox_destruct(void *self)
{
    struct mailbox *mailbox = self;

    /* Their calls were answered when the actor was asked to end. */
    while (!TAILQ_EMPTY(&mailbox->waiters)) {
        waiter_remove(mailbox, TAILQ_FIRST(&mailbox->waiters));
    }
    while (!TAILQ_EMPTY(&mailbox->messages)) {
        message_remove(mailbox, TAILQ_FIRST(&mailbox->messages));
    }
    while (!TAILQ_EMPTY(&mailbox->closed)) {
        closed_remove(mailbox, TAILQ_FIRST(&mailbox->closed));
    }
}

static const struct tdm_actor_class mailbox_class = {
    .name = "tandem.mailbox",
    .state_bytes = sizeof(struct mailbox),
    .construct = mailbox_construct,
    .destruct = mailbox_destruct,
    .methods = {{"put", mailbox_put}, {"wait", mailbox_wait}, {"close", mailbox_close}},
    .asynchronous = 1,
};

/* Registers the class when the library is loaded. */
__attribute__((constructor)) static void register_mailbox(void)
{
    tdm_class_register(&mailbox_class);
}

/* ---- functions for senders and receivers --------------------------------------------- */

/* Name of the shared library that has the class of the mailbox. */
#define TANDEM_LIBRARY "libtandem.so.0"

/* Limits of the functions below. */
enum {
    CALLS_KEPT_MAX = 10000, /* Number of wait calls that a mailbox may keep. */
    FIND_PAUSE_MS = 20,     /* Pause between two searches for a mailbox, in milliseconds. */
    FIND_ATTEMPT_MS = 2000, /* Longest duration of one search, in milliseconds. */
};

tdm_status tdm__mailbox_create(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                               tdm_actor **mailbox_out)
{
    /* The program of this process may be an interpreter, which would not become an actor. With a
     * library the actor is a program of Tandem's, which has this library already. */
    const struct tdm_actor_options options = {
        .name = name, .max_concurrency = CALLS_KEPT_MAX, .library = TANDEM_LIBRARY};
    tdm_actor *mailbox;
    tdm_status status;

    TDM_TRY(tdm_actor_create(runtime, mailbox_class.name, &options, &mailbox, ""));
    status = tdm_actor_wait_ready(mailbox, timeout_ms);
    if (status != TDM_OK) {
        tdm_actor_destroy(mailbox);
        return status;
    }
    *mailbox_out = mailbox;
    return TDM_OK;
}

/* Returns the time left until the deadline in milliseconds, but at most `most_ms`. */
static int64_t attempt_timeout_ms(int64_t deadline_ms, int64_t most_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

    return remaining_ms < 0 || remaining_ms > most_ms ? most_ms : remaining_ms;
}

tdm_status tdm__mailbox_find(tdm_runtime *runtime, const char *name, int64_t deadline_ms,
                             tdm_actor **mailbox_out)
{
    const struct timespec pause = {.tv_nsec = FIND_PAUSE_MS * 1000000L};
    tdm_status status;

    for (;;) {
        status = tdm_actor_find(runtime, name, attempt_timeout_ms(deadline_ms, FIND_ATTEMPT_MS),
                                mailbox_out);
        if (status != TDM_E_NOT_FOUND && status != TDM_E_TIMEOUT) {
            return status;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return tdm__fail(TDM_E_TIMEOUT, "no sender has created the mailbox %s", name);
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* A message that is written as the value of a put. */
struct put_value {
    const struct tdm__message *table; /* Table of the message; static. */
    const void *structure;            /* Structure of the message; borrowed. */
};

/* Writer of a message value: encodes the message that is put. A failure stays in the writer. */
static void write_put_value(tdm_writer *writer, const void *arg)
{
    const struct put_value *value = arg;

    (void)tdm__message_encode(value->table, value->structure, writer);
}

/* Encodes the arguments of a method by their table and calls it. `ref_out` may be NULL. */
static tdm_status mailbox_call(tdm_actor *mailbox, const char *method,
                               const struct tdm__message *table, const void *arguments,
                               tdm_ref **ref_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__message_encode(table, arguments, writer);
    if (status == TDM_OK) {
        status = tdm_actor_call_packed(mailbox, method, tdm_writer_bytes(writer), ref_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

tdm_status tdm__mailbox_put(tdm_actor *mailbox, const char *key, const struct tdm__message *table,
                            const void *structure, tdm_ref **done_out)
{
    const struct put_value value = {table, structure};
    const struct tdm__mailbox_put_message arguments = {
        .key = key, .value = {.write = write_put_value, .arg = &value}};

    return mailbox_call(mailbox, "put", tdm__mailbox_put_table(), &arguments, done_out);
}

tdm_status tdm__mailbox_put_and_wait(tdm_actor *mailbox, const char *key,
                                     const struct tdm__message *table, const void *structure,
                                     int64_t deadline_ms)
{
    tdm_ref *done;

    TDM_TRY(tdm__mailbox_put(mailbox, key, table, structure, &done));
    return tdm__mailbox_await_done(done, deadline_ms);
}

tdm_status tdm__mailbox_wait_messages(tdm_actor *mailbox, const char *prefix, const char *after,
                                      uint64_t count, tdm_ref **messages_out)
{
    const struct tdm__mailbox_wait_message arguments = {prefix, after, count};

    return mailbox_call(mailbox, "wait", tdm__mailbox_wait_table(), &arguments, messages_out);
}

tdm_status tdm__mailbox_get_messages(tdm_ref *ref, int64_t timeout_ms,
                                     struct tdm__message_list *messages_out)
{
    struct tdm__mailbox_entries_message reply;
    const tdm_value *value;

    TDM_TRY(tdm_get_value(ref, timeout_ms, &value));
    TDM_TRY(tdm__mailbox_entries_decode(value, &reply));
    *messages_out = reply.entries;
    return TDM_OK;
}

const tdm_value *tdm__mailbox_message_at(const struct tdm__message_list *messages, uint32_t index,
                                         const char **key_out)
{
    struct tdm__mailbox_entry_message entry;

    tdm__message_list_read(messages, index, &entry, sizeof(entry));
    if (key_out != NULL) {
        *key_out = entry.key;
    }
    return entry.value.value;
}

/* Waits until the deadline for the one message of the call behind `ref`. */
static tdm_status get_first_message(tdm_ref *ref, const char *key, int64_t deadline_ms,
                                    const tdm_value **value_out)
{
    struct tdm__message_list messages;

    TDM_TRY(tdm__mailbox_get_messages(ref, tdm__deadline_remaining_ms(deadline_ms), &messages));
    if (messages.count == 0) {
        return tdm__fail(TDM_E_PROTOCOL, "the wait for %s ended without a message", key);
    }
    *value_out = tdm__mailbox_message_at(&messages, 0, NULL);
    return TDM_OK;
}

tdm_status tdm__mailbox_read_message(tdm_actor *mailbox, const char *key, int64_t deadline_ms,
                                     tdm_ref **ref_out, const tdm_value **value_out)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__mailbox_wait_messages(mailbox, key, "", 1, &ref));
    status = get_first_message(ref, key, deadline_ms, value_out);
    if (status != TDM_OK) {
        (void)tdm_cancel(ref, 0);
        tdm_ref_release(ref);
        return status;
    }
    *ref_out = ref;
    return TDM_OK;
}

tdm_status tdm__mailbox_await_done(tdm_ref *ref, int64_t deadline_ms)
{
    tdm_status status = tdm_get(ref, tdm__deadline_remaining_ms(deadline_ms), "");

    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__mailbox_close(tdm_actor *mailbox, const char *prefix, tdm_status status,
                              const char *text, tdm_ref **done_out)
{
    const struct tdm__mailbox_close_message arguments = {prefix, (int64_t)status, text};

    return mailbox_call(mailbox, "close", tdm__mailbox_close_table(), &arguments, done_out);
}
