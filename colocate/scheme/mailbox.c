/* mailbox.c - an actor where a sender and its receivers leave notes for one another. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/mailbox.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <time.h>

/* ---- the actor -------------------------------------------------------------------------- */

struct message {
    TAILQ_ENTRY(message) link;
    char *key;    /* owned */
    tdm_ref *ref; /* owned: a put, so that what the value refers to stays */
    const tdm_value *value;
};

struct waiter {
    TAILQ_ENTRY(waiter) link;
    tdm_call *call; /* kept */
    char *prefix;   /* owned */
    char *after;    /* owned */
    uint64_t count;
};

struct closed_prefix {
    TAILQ_ENTRY(closed_prefix) link;
    char *prefix; /* owned */
    tdm_status status;
    char *text; /* owned */
};

TAILQ_HEAD(messages, message);
TAILQ_HEAD(waiters, waiter);
TAILQ_HEAD(closings, closed_prefix);

/* One thread: the class is asynchronous. */
struct mailbox {
    struct messages messages;
    struct waiters waiters;
    struct closings closed; /* the newest first */
    uint32_t closed_count;
};

static bool begins_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static void message_remove(struct mailbox *mailbox, struct message *message)
{
    TAILQ_REMOVE(&mailbox->messages, message, link);
    tdm_ref_release(message->ref);
    free(message->key);
    free(message);
}

static void waiter_remove(struct mailbox *mailbox, struct waiter *waiter)
{
    TAILQ_REMOVE(&mailbox->waiters, waiter, link);
    free(waiter->prefix);
    free(waiter->after);
    free(waiter);
}

static void closed_remove(struct mailbox *mailbox, struct closed_prefix *closed)
{
    TAILQ_REMOVE(&mailbox->closed, closed, link);
    mailbox->closed_count--;
    free(closed->prefix);
    free(closed->text);
    free(closed);
}

/* ---- those who wait --------------------------------------------------------------------- */

static bool note_matches_waiter(const struct waiter *waiter, const struct message *message)
{
    return begins_with(message->key, waiter->prefix) && strcmp(message->key, waiter->after) > 0;
}

static uint32_t count_messages(const struct mailbox *mailbox, const struct waiter *waiter)
{
    const struct message *message;
    uint32_t count = 0;

    TAILQ_FOREACH(message, &mailbox->messages, link)
    {
        count += note_matches_waiter(waiter, message) ? 1 : 0;
    }
    return count;
}

static tdm_status reply_messages(const struct mailbox *mailbox, const struct waiter *waiter)
{
    const struct message *message;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, count_messages(mailbox, waiter));
    TAILQ_FOREACH(message, &mailbox->messages, link)
    {
        if (note_matches_waiter(waiter, message)) {
            tdm_write_array(writer, 2);
            tdm_write_string(writer, message->key);
            tdm_write_value(writer, message->value);
        }
    }
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        status = tdm_call_reply_packed(waiter->call, tdm_writer_bytes(writer));
    }
    tdm_writer_destroy(writer);
    return status;
}

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

/* True if its wait is over, and it with it. */
static bool waiter_try_reply(struct mailbox *mailbox, struct waiter *waiter)
{
    const struct closed_prefix *closed = find_closed(mailbox, waiter->prefix);

    if (closed != NULL) {
        tdm_call_fail(waiter->call, closed->status, "%s", closed->text);
    } else if (tdm_call_is_canceled(waiter->call) != 0) {
        tdm_call_fail(waiter->call, TDM_E_CANCELED, "nobody waits for %s", waiter->prefix);
    } else if (count_messages(mailbox, waiter) < waiter->count) {
        return false;
    } else if (reply_messages(mailbox, waiter) != TDM_OK) {
        tdm_call_fail(waiter->call, TDM_E_NOMEM, "%s", tdm_error_detail());
    }
    waiter_remove(mailbox, waiter);
    return true;
}

static void reply_ready_waiters(struct mailbox *mailbox)
{
    struct waiter *next;

    for (struct waiter *waiter = TAILQ_FIRST(&mailbox->waiters); waiter != NULL; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        (void)waiter_try_reply(mailbox, waiter);
    }
}

static tdm_status mailbox_wait(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    struct waiter *waiter;
    const char *prefix;
    const char *after;
    uint64_t count;
    tdm_status status;

    TDM_TRY(tdm_call_unpack(call, "ssu", &prefix, &after, &count));
    waiter = calloc(1, sizeof(*waiter));
    if (waiter == NULL) {
        return tdm__fail(TDM_E_NOMEM, "one who waits for %s", prefix);
    }
    waiter->call = call;
    waiter->count = count;
    waiter->prefix = strdup(prefix);
    waiter->after = strdup(after);
    status = waiter->prefix == NULL || waiter->after == NULL
                 ? tdm__fail(TDM_E_NOMEM, "one who waits for notes")
                 : tdm_call_keep(call);
    TAILQ_INSERT_TAIL(&mailbox->waiters, waiter, link);
    if (status != TDM_OK) {
        waiter_remove(mailbox, waiter);
        return status;
    }
    reply_ready_waiters(mailbox); /* those who are gone leave, too */
    return TDM_OK;
}

/* ---- notes ------------------------------------------------------------------------------ */

static tdm_status message_create(const char *key, const tdm_value *value, struct message **note_out)
{
    struct message *message = calloc(1, sizeof(*message));
    tdm_status status;

    if (message == NULL || (message->key = strdup(key)) == NULL) {
        free(message);
        return tdm__fail(TDM_E_NOMEM, "a note %s", key);
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
    *note_out = message;
    return TDM_OK;
}

/* With `whole`, those whose key is exactly that. */
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

static tdm_status mailbox_put(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    const tdm_value *value;
    const char *key;
    struct message *message;

    TDM_TRY(tdm_call_unpack(call, "sv", &key, &value));
    TDM_TRY(message_create(key, value, &message));
    remove_messages(mailbox, key, true);
    TAILQ_INSERT_TAIL(&mailbox->messages, message, link);
    reply_ready_waiters(mailbox);
    return TDM_OK;
}

static tdm_status mailbox_close(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;
    struct closed_prefix *closed;
    const char *prefix;
    const char *text;
    int64_t status;

    TDM_TRY(tdm_call_unpack(call, "sis", &prefix, &status, &text));
    remove_messages(mailbox, prefix, false);
    if (status == TDM_OK) {
        return TDM_OK;
    }
    closed = calloc(1, sizeof(*closed));
    if (closed == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the end of %s", prefix);
    }
    *closed = (struct closed_prefix){
        .prefix = strdup(prefix), .status = (tdm_status)status, .text = strdup(text)};
    TAILQ_INSERT_HEAD(&mailbox->closed, closed, link);
    mailbox->closed_count++;
    if (closed->prefix == NULL || closed->text == NULL) {
        closed_remove(mailbox, closed);
        return tdm__fail(TDM_E_NOMEM, "the end of %s", prefix);
    }
    reply_ready_waiters(mailbox);
    if (mailbox->closed_count > TDM__MAILBOX_CLOSED_MAX) {
        closed_remove(mailbox, TAILQ_LAST(&mailbox->closed, closings));
    }
    return TDM_OK;
}

static tdm_status mailbox_construct(tdm_call *call, void *self)
{
    struct mailbox *mailbox = self;

    (void)call;
    TAILQ_INIT(&mailbox->messages);
    TAILQ_INIT(&mailbox->waiters);
    TAILQ_INIT(&mailbox->closed);
    return TDM_OK;
}

static void mailbox_destruct(void *self)
{
    struct mailbox *mailbox = self;

    while (!TAILQ_EMPTY(&mailbox->waiters)) { /* answered, when the actor was asked to end */
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

__attribute__((constructor)) static void register_mailbox(void)
{
    tdm_class_register(&mailbox_class);
}

/* ---- those who use it ------------------------------------------------------------------- */

enum { CALLS_KEPT_MAX = 10000, LOOK_AGAIN_MS = 20, FIND_MS = 2000 };

tdm_status tdm__mailbox_create(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                               tdm_actor **mailbox_out)
{
    const struct tdm_actor_options options = {.name = name, .max_concurrency = CALLS_KEPT_MAX};
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

static int64_t compare_lengths(int64_t deadline_ms, int64_t most_ms)
{
    int64_t remaining_ms = tdm__deadline_remaining_ms(deadline_ms);

    return remaining_ms < 0 || remaining_ms > most_ms ? most_ms : remaining_ms;
}

tdm_status tdm__mailbox_find(tdm_runtime *runtime, const char *name, int64_t deadline_ms,
                             tdm_actor **mailbox_out)
{
    const struct timespec pause = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    tdm_status status;

    for (;;) {
        status = tdm_actor_find(runtime, name, compare_lengths(deadline_ms, FIND_MS), mailbox_out);
        if (status != TDM_E_NOT_FOUND && status != TDM_E_TIMEOUT) {
            return status;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return tdm__fail(TDM_E_TIMEOUT, "nobody has opened %s", name);
        }
        (void)nanosleep(&pause, NULL);
    }
}

tdm_status tdm__mailbox_wait_messages(tdm_actor *mailbox, const char *prefix, const char *after,
                                      uint64_t count, tdm_ref **messages_out)
{
    return tdm_actor_call(mailbox, "wait", messages_out, "ssu", prefix, after, count);
}

tdm_status tdm__mailbox_read_message(tdm_actor *mailbox, const char *key, int64_t deadline_ms,
                                     tdm_ref **ref_out, const tdm_value **value_out)
{
    const tdm_value *messages;
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm__mailbox_wait_messages(mailbox, key, "", 1, &ref));
    status = tdm_get_value(ref, tdm__deadline_remaining_ms(deadline_ms), &messages);
    if (status != TDM_OK) {
        (void)tdm_cancel(ref, 0);
        tdm_ref_release(ref);
        return status;
    }
    *ref_out = ref;
    *value_out = tdm_value_at(tdm_value_at(messages, 0), 1);
    return TDM_OK;
}

tdm_status tdm__mailbox_await_put(tdm_ref *ref, int64_t deadline_ms)
{
    tdm_status status = tdm_get(ref, tdm__deadline_remaining_ms(deadline_ms), "");

    tdm_ref_release(ref);
    return status;
}

tdm_status tdm__mailbox_close(tdm_actor *mailbox, const char *prefix, tdm_status status,
                              const char *text)
{
    return tdm_actor_call(mailbox, "close", NULL, "sis", prefix, (int64_t)status, text);
}
