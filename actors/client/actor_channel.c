/* actor_channel.c - the connection of this process to one actor, and its state. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__actor_channel and its state: CREATING until the daemon has described the
 * actor, OPEN with a connection, RECONNECTING after the connection has closed, and DEAD, which
 * is final. actor_channel.h describes what happens to calls in each state; send_queue.c owns the
 * calls.
 *
 * When a connection closes, only the daemon knows whether the actor has ended, was restarted, or
 * still lives ("actor.fate"). While the actor lives but cannot be reached, the question is
 * repeated with growing intervals. Calls that may not be retried fail meanwhile: when the daemon
 * says that the actor's node does not answer, and after runtime->unreachable_ms in any case.
 *
 * Everything runs with the loop's lock. Functions that may release the last holder of a channel
 * add a holder first. docs/protocols/calls.md and actor_lifecycle.md specify the messages. */

#include "actors/client/actor_channel.h"

#include "actors/client/call_arguments.h"
#include "actors/client/send_queue.h"
#include "actors/common/actor_spec.h"
#include "actors/objects/ref.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* Milliseconds to wait for the daemon's reply about the fate of an actor. */
    FATE_TIMEOUT_MS = 5000,
    QUERY_INTERVAL_FIRST_MS =
        10, /* Milliseconds before the first repeated question; doubled each time. */
    QUERY_INTERVAL_MAX_MS = 1000, /* Milliseconds between repeated questions at most. */
    /* Milliseconds after which an actor of this node, to whose process there is no connection,
     * counts as dead although its daemon calls it alive. */
    DEAD_AFTER_MS = 60000
};

/* ---- actors that do not answer ------------------------------------------------------------ */

/* Returns why the node of the channel's actor does not answer, as the daemon has told; NULL if it
 * answers. */
static const char *channel_unreachable_text(const struct tdm__actor_channel *channel)
{
    const struct tdm__unreachable_node *unreachable = channel->runtime->client->unreachable_nodes;

    while (unreachable != NULL && strcmp(unreachable->node_id, channel->info.node_id) != 0) {
        unreachable = unreachable->next;
    }
    return unreachable == NULL ? NULL : unreachable->text;
}

/* Fails the calls of the channel that may not be retried, because the actor cannot be reached. */
static void channel_fail_unretried(struct tdm__actor_channel *channel, const char *text)
{
    channel->holders_count++;
    tdm__send_queue_fail_unretried(channel, TDM_E_ACTOR_UNAVAILABLE, text);
    tdm__actor_channel_release(channel);
}

void tdm__actor_channels_node_unreachable(tdm_runtime *runtime, const char *node_id,
                                          const char *text)
{
    struct tdm__actor_channel *channel = runtime->client->actor_channels;

    while (channel != NULL) {
        struct tdm__actor_channel *next;

        channel->holders_count++;
        if (channel->state != TDM__CHANNEL_DEAD && strcmp(channel->info.node_id, node_id) == 0) {
            channel_fail_unretried(channel, text);
        }
        next = channel->next; /* Failing calls of this channel may have freed others. */
        tdm__actor_channel_release(channel);
        channel = next;
    }
}

/* Fails the calls of a channel whose actor has had no connection for the time after which a silent
 * node counts as unreachable. The daemon has not reported the actor's node as unreachable. */
static void channel_check_silence(struct tdm__actor_channel *channel)
{
    int64_t silent_ms = tdm__clock_ms() - channel->lost_since_ms;
    char text[256];

    if (channel->lost_since_ms == 0 || channel->runtime->unreachable_ms == 0 ||
        silent_ms < channel->runtime->unreachable_ms) {
        return;
    }
    (void)snprintf(text, sizeof(text),
                   "there has been no connection to its process for %.1f s, although node %s says "
                   "that it lives; the connection is tried again each second",
                   (double)silent_ms / 1000.0, channel->info.node_id);
    channel_fail_unretried(channel, text);
}

tdm_status tdm__actor_channel_submit(struct tdm__actor_channel *channel,
                                     struct tdm__pending_call *pending_call)
{
    const char *unreachable = channel_unreachable_text(channel);

    if (channel->state == TDM__CHANNEL_DEAD) {
        return tdm__fail(channel->death_status, "%s", channel->death_detail);
    }
    if (unreachable != NULL && pending_call->retries_left == 0) {
        return tdm__fail(TDM_E_ACTOR_UNAVAILABLE, "method %s of actor %s: %s", pending_call->method,
                         channel->label, unreachable);
    }
    if (channel->max_pending_calls > 0 && channel->pending_count >= channel->max_pending_calls) {
        return tdm__fail(TDM_E_AGAIN, "%u calls of actor %s are pending, its limit is %u",
                         channel->pending_count, channel->label, channel->max_pending_calls);
    }
    tdm__send_queue_push(channel, pending_call);
    return TDM_OK;
}

/* ---- connecting -------------------------------------------------------------------------- */

void tdm__actor_channel_set_metadata(struct tdm__actor_channel *channel, struct tdm_bytes metadata)
{
    if (channel->metadata != NULL || metadata.size_bytes == 0) {
        return;
    }
    channel->metadata = malloc(metadata.size_bytes);
    if (channel->metadata != NULL) {
        memcpy(channel->metadata, metadata.data, metadata.size_bytes);
        channel->metadata_bytes = metadata.size_bytes;
    }
}

/* Copies the daemon's description of the actor into the channel, and the address at which this
 * process reaches it into `address`. */
static tdm_status channel_read_description(struct tdm__actor_channel *channel,
                                           const tdm_value *description, char *address,
                                           size_t address_bytes)
{
    struct tdm__actor_description_message message;
    const char *chosen;
    bool here;

    TDM_TRY(tdm__actor_description_decode(description, &message));
    here = strcmp(message.node_id, channel->runtime->node_id) == 0;
    chosen = here ? message.unix_address : message.tcp_address;
    if (chosen == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "actor %s on node %s has no %s address", channel->label,
                         message.node_id, here ? "unix" : "tcp");
    }
    (void)snprintf(address, address_bytes, "%s", chosen);
    channel->info.pid = message.pid;
    (void)snprintf(channel->info.node_id, sizeof(channel->info.node_id), "%s", message.node_id);
    channel->info.gpus_count = 0;
    for (uint32_t i = 0; i < message.gpu_indices.count && i < TDM__RUNTIME_GPUS_MAX; i++) {
        tdm__message_list_read(&message.gpu_indices, i, &channel->info.gpu_indices[i],
                               sizeof(channel->info.gpu_indices[i]));
        channel->info.gpus_count++;
    }
    channel->incarnation = message.incarnation;
    tdm__actor_channel_set_metadata(channel, message.metadata);
    return TDM_OK;
}

static void on_channel_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                              const char *detail);

/* Connects to the actor and sends the waiting calls. */
static tdm_status channel_connect_to(struct tdm__actor_channel *channel, const char *address)
{
    TDM_TRY(tdm__rpc_connect(channel->runtime->rpc, address, &channel->conn));
    tdm__conn_on_closed(channel->conn, on_channel_closed, channel);
    channel->state = TDM__CHANNEL_OPEN;
    tdm__send_queue_flush(channel);
    return TDM_OK;
}

static void channel_query_actor_fate(struct tdm__actor_channel *channel);

/* Changes the state to RECONNECTING and asks the daemon how the actor is. */
static void channel_lose_connection(struct tdm__actor_channel *channel)
{
    channel->state = TDM__CHANNEL_RECONNECTING;
    channel->lost_since_ms = tdm__clock_ms();
    channel->reconnect_attempts = 0;
    channel_query_actor_fate(channel);
}

/* Frees the constructor arguments. */
static void channel_drop_arguments(struct tdm__actor_channel *channel)
{
    struct tdm__call_arguments *arguments = channel->arguments;

    channel->arguments = NULL;
    channel->owes_constructor_arguments = false;
    tdm__call_arguments_destroy(arguments);
}

void tdm__actor_channel_connect(struct tdm__actor_channel *channel, const tdm_value *description)
{
    char address[TDM__ADDRESS_BYTES];

    if (channel->state != TDM__CHANNEL_CREATING) {
        return; /* The actor was killed meanwhile. */
    }
    channel->may_find_existing = false;
    if (channel_read_description(channel, description, address, sizeof(address)) != TDM_OK) {
        tdm__actor_channel_fail(channel, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (channel_connect_to(channel, address) != TDM_OK) {
        channel_lose_connection(channel);
    }
    if (!channel->may_be_restarted) {
        channel_drop_arguments(channel); /* The actor has been constructed and will not be again. */
    }
}

/* Moves all handles and waiting calls to another channel to the same actor. */
static void channel_move_handles(struct tdm__actor_channel *channel,
                                 struct tdm__actor_channel *other)
{
    while (channel->handles != NULL) {
        tdm_actor *actor = channel->handles;

        channel->handles = actor->next;
        actor->channel = other;
        actor->next = other->handles;
        other->handles = actor;
        other->holders_count++;
        other->counted_handles += actor->is_counted ? 1 : 0;
        channel->counted_handles -= actor->is_counted ? 1 : 0;
        tdm__actor_channel_release(channel);
    }
    tdm__send_queue_move(channel, other);
}

/* Releases the keep-alive reference without terminating the actor, since handles that were found
 * by name do not count. */
static void channel_drop_keep_alive(struct tdm__actor_channel *channel)
{
    tdm_ref *keep_alive = channel->keep_alive;

    channel->keep_alive = NULL;
    if (keep_alive != NULL) {
        keep_alive->on_end = NULL;
        tdm_ref_release(keep_alive);
    }
}

void tdm__actor_channel_use_found(struct tdm__actor_channel *channel,
                                  const struct tdm__actor_found_message *found)
{
    tdm_status status;

    if (tdm_value_kind_of(found->description.value) != TDM_NIL) {
        tdm__actor_channel_connect(channel, found->description.value);
        return;
    }
    tdm__actor_channel_set_metadata(channel, found->metadata);
    status = tdm__actor_channel_await(channel, NULL);
    if (status != TDM_OK) {
        tdm__actor_channel_fail(channel, status, tdm_error_detail());
    }
}

void tdm__actor_channel_redirect(struct tdm__actor_channel *channel, const struct tdm__id *id,
                                 const struct tdm__actor_found_message *found)
{
    struct tdm__actor_channel *other = tdm__actor_channel_retain_by_id(channel->runtime, id);

    channel->may_find_existing = false;
    channel_drop_keep_alive(channel);
    channel_drop_arguments(channel);
    if (other == NULL) {
        channel->id = *id;
        (void)tdm__id_text(id, channel->info.id);
        (void)snprintf(channel->info.class_name, sizeof(channel->info.class_name), "%s",
                       found->class_name);
        tdm__actor_channel_use_found(channel, found);
        return;
    }
    if (other != channel) {
        channel_move_handles(channel, other);
    }
    tdm__actor_channel_release(other);
}

/* ---- requests about the actor --------------------------------------------------------------- */

/* Uses the actor that already has the requested name; `reply` is a message actor_found. */
static void channel_redirect_to_existing(struct tdm__actor_channel *channel, const tdm_value *reply)
{
    struct tdm__actor_found_message found;
    struct tdm__id id;
    tdm_status status = tdm__actor_found_decode(reply, &found);

    if (status == TDM_OK) {
        status = tdm__id_parse(found.id, &id);
    }
    if (status == TDM_OK) {
        tdm__actor_channel_redirect(channel, &id, &found);
    } else {
        tdm__actor_channel_fail(channel, TDM_E_PROTOCOL, tdm_error_detail());
    }
}

/* Returns the status with which calls to an actor fail after the daemon has replied `status` about
 * it. An actor that was lost with its node is a dead actor for its callers. */
static tdm_status status_of_end(tdm_status status)
{
    return status == TDM_E_NODE_LOST ? TDM_E_ACTOR_DIED : status;
}

/* Reply of the daemon to "actor.create" or "actor.await": a description of the actor, the actor
 * that already has the name, or a failure. */
static void on_actor_described(void *arg, struct tdm__rpc_reply *reply)
{
    struct tdm__actor_channel *channel = arg;
    tdm_document *document = NULL;

    if (reply->status == TDM_E_CLOSED) {
        (void)tdm__runtime_set_daemon_lost(channel->runtime, reply->detail);
        tdm__actor_channel_fail(channel, TDM_E_NODE_LOST, tdm_error_detail());
    } else if (channel->state == TDM__CHANNEL_CREATING &&
               (reply->status == TDM_E_ACTOR_UNAVAILABLE ||
                reply->status == TDM_E_ACTOR_RESTARTING ||
                (reply->status == TDM_E_AGAIN && !channel->may_find_existing))) {
        channel_lose_connection(channel);
        if (reply->status == TDM_E_ACTOR_UNAVAILABLE) {
            channel_fail_unretried(channel, reply->detail);
        }
    } else if (reply->status != TDM_OK) {
        tdm__actor_channel_fail(channel, status_of_end(reply->status), reply->detail);
    } else if (tdm_document_parse(reply->packed, &document) != TDM_OK) {
        tdm__actor_channel_fail(channel, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (tdm_value_count(tdm_document_root(document)) ==
               tdm__actor_found_table()->fields_count) {
        channel_redirect_to_existing(channel, tdm_document_root(document));
        tdm_document_destroy(document);
    } else {
        tdm__actor_channel_connect(channel, tdm_document_root(document));
        tdm_document_destroy(document);
    }
    tdm__actor_channel_release(channel);
}

tdm_status tdm__actor_channel_request(struct tdm__actor_channel *channel, struct tdm__conn *daemon,
                                      const struct tdm__rpc_request *request)
{
    tdm_status status;

    channel->holders_count++;
    status = tdm__conn_call(daemon, request, on_actor_described, channel, NULL);
    if (status != TDM_OK) {
        channel->holders_count--;
    }
    return status;
}

tdm_status tdm__actor_channel_await(struct tdm__actor_channel *channel,
                                    const struct tdm__id *creators_node)
{
    struct tdm__rpc_request request = {.method = "actor.await", .deadline_ms = TDM__NEVER};
    struct tdm__actor_query_message query = {.actor = channel->id};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    if (creators_node != NULL) {
        query.creators_node = *creators_node;
    }
    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__actor_channel_request(channel, daemon, &request);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* ---- the end of an actor ----------------------------------------------------------------- */

void tdm__actor_channel_fail(struct tdm__actor_channel *channel, tdm_status status,
                             const char *detail)
{
    if (channel->state == TDM__CHANNEL_DEAD) {
        return;
    }
    channel->state = TDM__CHANNEL_DEAD;
    channel->death_status = status;
    channel->death_detail = strdup(detail);
    TDM_ASSERT(channel->death_detail != NULL);
    channel->holders_count++; /* Failing the last call must not free the channel. */
    tdm__send_queue_fail_all(channel, status, channel->death_detail);
    channel_drop_arguments(channel);
    channel->holders_count--;
    if (channel->conn != NULL) {
        tdm__conn_on_closed(channel->conn, NULL, NULL);
        tdm__conn_close(channel->conn);
        channel->conn = NULL;
    }
}

/* Fails the channel because the daemon has ended, which ends its actors, and records that. */
static void channel_fail_with_daemon(struct tdm__actor_channel *channel, const char *detail)
{
    (void)tdm__runtime_set_daemon_lost(channel->runtime, detail);
    tdm__actor_channel_fail(channel, TDM_E_NODE_LOST, tdm_error_detail());
}

void tdm__actor_channels_fail_all(tdm_runtime *runtime, const char *detail)
{
    struct tdm__actor_channel *channel = runtime->client->actor_channels;

    while (channel != NULL) {
        struct tdm__actor_channel *next;

        channel->holders_count++;
        if (strcmp(channel->info.node_id, runtime->node_id) == 0) {
            channel_fail_with_daemon(channel, detail);
        }
        next = channel->next; /* Failing this channel may have freed others. */
        tdm__actor_channel_release(channel);
        channel = next;
    }
}

static void channel_query_later(struct tdm__actor_channel *channel);

/* Writes the reason for which calls to an actor fail that was restarted, with the end of its
 * process before, if the description has that. */
static void restart_text(const struct tdm__actor_channel *channel, const tdm_value *description,
                         char *text, size_t text_bytes)
{
    struct tdm__actor_description_message message;

    if (tdm__actor_description_decode(description, &message) == TDM_OK &&
        message.previous_end != NULL) {
        (void)snprintf(text, text_bytes, "%s; it was restarted", message.previous_end);
    } else {
        (void)snprintf(text, text_bytes, "actor %s died and was restarted", channel->label);
    }
}

/* Connects again to an actor that still lives or was restarted. After a restart, calls that may
 * not be executed twice fail. */
static void channel_reopen(struct tdm__actor_channel *channel, const tdm_value *description)
{
    uint64_t before = channel->incarnation;
    char node_before[sizeof(channel->info.node_id)];
    char address[TDM__ADDRESS_BYTES];
    char reason[400];
    tdm_status status;

    memcpy(node_before, channel->info.node_id, sizeof(node_before));
    status = channel_read_description(channel, description, address, sizeof(address));
    /* An actor on another node has another process, even if both nodes have counted as far. */
    if (status == TDM_OK &&
        (channel->incarnation != before || strcmp(node_before, channel->info.node_id) != 0)) {
        restart_text(channel, description, reason, sizeof(reason));
        tdm__send_queue_fail_unrepeatable(channel, reason);
        tdm__send_queue_renumber(channel);
    }
    if (status == TDM_OK) {
        status = channel_connect_to(channel, address);
    }
    if (status == TDM_OK) {
        return;
    }
    if (status == TDM_E_PROTOCOL || tdm__clock_ms() - channel->lost_since_ms > DEAD_AFTER_MS) {
        tdm__actor_channel_fail(channel, TDM_E_ACTOR_DIED, tdm_error_detail());
    } else {
        channel_query_later(channel);
    }
}

/* Handles the daemon's description of a living actor. */
static void channel_reconnect(struct tdm__actor_channel *channel,
                              const struct tdm__rpc_reply *reply)
{
    tdm_document *document;

    if (tdm__rpc_reply_document(reply, &document) != TDM_OK) {
        tdm__actor_channel_fail(channel, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    channel_reopen(channel, tdm_document_root(document));
    tdm_document_destroy(document);
}

/* Timer: asks the daemon again. */
static void channel_query_again(void *arg)
{
    struct tdm__actor_channel *channel = arg;

    if (channel->state == TDM__CHANNEL_RECONNECTING) {
        channel_query_actor_fate(channel);
    }
}

/* Sets the timer for the next question; the interval doubles each time. */
static void channel_query_later(struct tdm__actor_channel *channel)
{
    int64_t wait_ms = QUERY_INTERVAL_MAX_MS;
    tdm_status status = TDM_OK;

    if (channel->reconnect_attempts < 7) {
        wait_ms = (int64_t)QUERY_INTERVAL_FIRST_MS << channel->reconnect_attempts++;
    }
    if (channel->reconnect_timer == NULL) {
        status = tdm__timer_create(channel->runtime->loop, channel_query_again, channel,
                                   &channel->reconnect_timer);
    }
    if (status == TDM_OK) {
        status = tdm__timer_set(channel->reconnect_timer, tdm__deadline_after(wait_ms));
    }
    if (status != TDM_OK) {
        tdm__actor_channel_fail(channel, status, tdm_error_detail());
    }
}

/* Reply of the daemon to "actor.fate". */
static void on_actor_fate(void *arg, struct tdm__rpc_reply *reply)
{
    struct tdm__actor_channel *channel = arg;
    char detail[512];

    if (channel->state != TDM__CHANNEL_RECONNECTING) {
        /* The actor was killed meanwhile, or the runtime stops. */
    } else if (reply->status == TDM_OK) {
        channel_reconnect(channel, reply);
    } else if (reply->status == TDM_E_CLOSED) {
        channel_fail_with_daemon(channel, reply->detail);
    } else if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST) {
        tdm__actor_channel_fail(channel, status_of_end(reply->status), reply->detail);
    } else if (reply->status == TDM_E_ACTOR_RESTARTING) {
        tdm__send_queue_fail_unrepeatable(channel, reply->detail);
        channel_query_later(channel);
    } else if (reply->status == TDM_E_ACTOR_UNAVAILABLE) {
        channel_fail_unretried(channel, reply->detail);
        channel_query_later(channel);
    } else if (reply->status == TDM_E_TIMEOUT || reply->status == TDM_E_AGAIN ||
               reply->status == TDM_E_STORE) {
        /* The actor is being restarted, or its node cannot be reached now, or the store does not
         * answer. */
        channel_query_later(channel);
    } else {
        (void)snprintf(detail, sizeof(detail),
                       "actor %s is lost: the connection to pid %lld ended, and %s", channel->label,
                       (long long)channel->info.pid, reply->detail);
        tdm__actor_channel_fail(channel, TDM_E_ACTOR_DIED, detail);
    }
    tdm__actor_channel_release(channel);
}

/* Sends "actor.fate" to the daemon; on_actor_fate() releases a hold on the channel. */
static tdm_status channel_send_fate_request(struct tdm__actor_channel *channel)
{
    struct tdm__rpc_request request = {.method = "actor.fate",
                                       .deadline_ms = tdm__deadline_after(FATE_TIMEOUT_MS)};
    const struct tdm__actor_query_message query = {.actor = channel->id};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    request.packed = tdm_writer_bytes(writer);
    if (status == TDM_OK) {
        status = tdm__conn_call(daemon, &request, on_actor_fate, channel, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Asks the daemon how the actor is, since only the daemon that watches its process knows. Fails
 * the channel if the daemon cannot be asked. */
static void channel_query_actor_fate(struct tdm__actor_channel *channel)
{
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    tdm_status status;

    channel->holders_count++;
    status = channel_send_fate_request(channel);
    if (status == TDM_OK) {
        return; /* The hold is released by on_actor_fate(). */
    }
    (void)snprintf(detail, sizeof(detail), "%.500s", tdm_error_detail());
    if (status == TDM_E_CLOSED) {
        channel_fail_with_daemon(channel, detail);
    } else {
        tdm__actor_channel_fail(channel, status, detail);
    }
    tdm__actor_channel_release(channel);
}

/* The connection to the actor has closed: calls without a reply wait again. */
static void on_channel_closed(void *arg, struct tdm__conn *conn, tdm_status reason,
                              const char *detail)
{
    struct tdm__actor_channel *channel = arg;

    (void)conn;
    tdm__log(TDM__DEBUG, "channel", "connection to %s ended: %s: %s", channel->label,
             tdm_strerror(reason), detail);
    channel->conn = NULL;
    if (channel->state == TDM__CHANNEL_DEAD || channel->runtime->is_stopping) {
        return;
    }
    channel->state = TDM__CHANNEL_RECONNECTING;
    channel->holders_count++; /* Failing the last call must not free the channel. */
    tdm__send_queue_requeue_in_flight(channel);
    if (channel->lost_since_ms == 0) {
        channel_lose_connection(channel);
    } else {
        /* The channel had connected again, but no reply has arrived since. */
        channel_check_silence(channel);
        channel_query_later(channel);
    }
    tdm__actor_channel_release(channel);
}

/* ---- creating a channel ------------------------------------------------------------------ */

tdm_status tdm__actor_channel_create(tdm_runtime *runtime, const struct tdm__id *id,
                                     const char *name, const char *class_name,
                                     struct tdm__actor_channel **channel_out)
{
    struct tdm__actor_channel *channel = calloc(1, sizeof(*channel));

    if (channel == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a channel to an actor");
    }
    channel->runtime = runtime;
    channel->holders_count = 1;
    channel->id = *id;
    tdm__send_queue_init(channel);
    (void)tdm__id_text(id, channel->info.id);
    (void)snprintf(channel->info.name, sizeof(channel->info.name), "%s", name);
    (void)snprintf(channel->info.class_name, sizeof(channel->info.class_name), "%s", class_name);
    (void)tdm__actor_label(name, class_name, id, channel->label, sizeof(channel->label));
    channel->next = runtime->client->actor_channels;
    runtime->client->actor_channels = channel;
    *channel_out = channel;
    return TDM_OK;
}

struct tdm__actor_channel *tdm__actor_channel_retain_by_id(tdm_runtime *runtime,
                                                           const struct tdm__id *id)
{
    for (struct tdm__actor_channel *channel = runtime->client->actor_channels; channel != NULL;
         channel = channel->next) {
        if (tdm__id_equal(&channel->id, id)) {
            channel->holders_count++;
            return channel;
        }
    }
    return NULL;
}

/* ---- the end of a channel ------------------------------------------------------------------ */

/* Removes the channel from the runtime's list. */
static void channel_remove_from_runtime(struct tdm__actor_channel *channel)
{
    struct tdm__actor_channel **place = &channel->runtime->client->actor_channels;

    while (*place != channel) {
        place = &(*place)->next;
    }
    *place = channel->next;
}

/* Returns true if the actor may be constructed again with arguments that contain references. */
static bool channel_needs_arguments(const struct tdm__actor_channel *channel)
{
    return channel->may_be_restarted && channel->arguments != NULL &&
           tdm__call_arguments_contain_refs(channel->arguments);
}

/* Returns true if nothing holds the channel, no call is pending, and the constructor arguments
 * are not needed again. A channel with pending calls stays, since their results may be awaited. */
static bool channel_is_unused(const struct tdm__actor_channel *channel)
{
    return channel->holders_count == 0 && tdm__send_queue_is_idle(channel) &&
           !channel_needs_arguments(channel);
}

void tdm__actor_channel_release_keep_alive(struct tdm__actor_channel *channel)
{
    tdm_ref *hold = channel->keep_alive;

    if (channel->counted_handles == 0 && hold != NULL && tdm__send_queue_is_idle(channel)) {
        channel->keep_alive = NULL;
        tdm_ref_release(hold);
    }
}

bool tdm__actor_channel_free_if_unused(struct tdm__actor_channel *channel)
{
    tdm__actor_channel_release_keep_alive(channel);
    if (!channel_is_unused(channel)) {
        return false;
    }
    tdm__actor_channel_destroy(channel);
    return true;
}

void tdm__actor_channel_release(struct tdm__actor_channel *channel)
{
    TDM_ASSERT(channel->holders_count > 0);
    channel->holders_count--;
    (void)tdm__actor_channel_free_if_unused(channel);
}

/* Detaches the handles that the user has not destroyed; they outlive the runtime and refer to
 * nothing. */
static void channel_detach_handles(struct tdm__actor_channel *channel)
{
    for (tdm_actor *actor = channel->handles; actor != NULL; actor = actor->next) {
        actor->runtime = NULL;
        actor->channel = NULL;
    }
}

void tdm__actor_channel_destroy(struct tdm__actor_channel *channel)
{
    channel_remove_from_runtime(channel); /* No other function can find and destroy it now. */
    tdm__actor_channel_fail(channel, TDM_E_CANCELED,
                            "the runtime has stopped, or no handle to the actor is left");
    tdm__send_queue_fini(channel);
    tdm__timer_destroy(channel->reconnect_timer);
    tdm_ref_release(channel->keep_alive);
    channel_detach_handles(channel);
    free(channel->death_detail);
    free(channel->metadata);
    free(channel);
}
