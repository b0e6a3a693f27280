/* actor.c - the public functions that create, find, await, kill and restart actors. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Implements tdm_actor_create(), tdm_actor_find(), tdm_actor_wait_ready(), tdm_actor_kill() and
 * their variants. Creation does not wait: it sends "actor.create" to the daemon and returns a
 * handle on a channel in state CREATING. The reply connects the channel, redirects it to an
 * existing actor with the name, or fails it (actor_channel.c). If the constructor arguments
 * contain values of incomplete references, they follow later ("actor.arguments").
 *
 * Functions with a timeout drive the loop. All take the loop's lock; any user thread may enter.
 * docs/protocols/actor_lifecycle.md specifies the messages. */

#include "actors/client/actor.h"

#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/client/call_arguments.h"
#include "actors/common/actor_spec.h"
#include "actors/objects/ref.h"
#include "actors/process/runtime.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tdm_actor_describe(tdm_actor *actor, struct tdm_actor_info *info_out)
{
    TDM__REQUIRE_OR(actor, );
    TDM__REQUIRE_OR(info_out, );

    TDM__LOCK(actor->runtime);
    *info_out = actor->channel->info;
}

struct tdm_bytes tdm_actor_metadata(tdm_actor *actor)
{
    struct tdm_bytes none = {NULL, 0};

    TDM__REQUIRE_OR(actor, none);

    if (actor->runtime == NULL) {
        return none; /* The runtime has stopped. */
    }
    TDM__LOCK(actor->runtime);
    return (struct tdm_bytes){actor->channel->metadata, actor->channel->metadata_bytes};
}

/* How often tdm_actor_find() repeats the request after a failure of the store; milliseconds to
 * wait for the reason why an actor is not ready. */
enum { FIND_TRIES = 8, REASON_TIMEOUT_MS = 200 };

/* ---- create ----------------------------------------------------------------------------- */

/* Sends "actor.create" to the daemon. */
static tdm_status channel_request_creation(struct tdm__actor_channel *channel,
                                           const struct tdm__actor_spec *spec)
{
    struct tdm__rpc_request request = {.method = "actor.create", .deadline_ms = TDM__NEVER};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    tdm__actor_spec_write(writer, spec);
    status = tdm_writer_status(writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__actor_channel_request(channel, daemon, &request);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Sends "actor.arguments" to the daemon: the constructor arguments, or if `packed` is NULL the
 * reason why there are none. */
static tdm_status channel_send_arguments_message(struct tdm__actor_channel *channel,
                                                 const struct tdm_bytes *packed,
                                                 const char *failure)
{
    struct tdm__actor_arguments_message message = {.actor = channel->id, .failure = failure};
    struct tdm__rpc_request request = {.method = "actor.arguments", .deadline_ms = TDM__NEVER};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    if (packed != NULL) {
        message.arguments = *packed;
    }
    status = tdm__actor_arguments_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(daemon, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

void tdm__actor_channel_send_arguments(struct tdm__actor_channel *channel)
{
    struct tdm__rpc_request request = {0};
    char failure[TDM__ERROR_DETAIL_BYTES];
    tdm_status status;

    if (!channel->owes_constructor_arguments) {
        return;
    }
    if (!tdm__call_arguments_are_ready(channel->arguments)) {
        channel->runtime->client->calls_blocked = true;
        return;
    }
    channel->owes_constructor_arguments = false;
    status = tdm__call_arguments_pack(channel->arguments, NULL, false, &request);
    if (status == TDM_OK) {
        status = channel_send_arguments_message(channel, &request.packed, "");
    }
    if (status != TDM_OK) {
        (void)snprintf(failure, sizeof(failure), "%s", tdm_error_detail());
        status = channel_send_arguments_message(channel, NULL, failure);
    }
    if (status != TDM_OK) {
        channel->holders_count++; /* Failing the last call must not free the channel. */
        tdm__actor_channel_fail(channel, TDM_E_ACTOR_DIED, tdm_error_detail());
        channel->holders_count--;
    }
}

/* Copies the options that concern callers into the channel. */
static void channel_set_options(struct tdm__actor_channel *channel,
                                const struct tdm_actor_options *options)
{
    if (options != NULL) {
        channel->max_task_retries = options->max_task_retries;
        channel->max_pending_calls = options->max_pending_calls;
        channel->out_of_order = options->allow_out_of_order != 0;
        channel->may_find_existing = options->get_if_exists != 0;
    }
}

/* Puts the child of an actor that captures its children into the same placement group, unless
 * its options say where it belongs. */
static void spec_capture_into_group(const tdm_runtime *runtime, struct tdm__actor_spec *spec)
{
    bool says_where = !tdm__id_is_none(&spec->group) || spec->placement.labels.count > 0 ||
                      spec->placement.scheduling != TDM_SCHEDULE_DEFAULT;

    if (runtime->captures_child_actors && !says_where) {
        spec->group = runtime->group;
        spec->bundle = TDM_BUNDLE_ANY;
        spec->captures_child_actors = true;
    }
}

/* Creates the specification of a new actor. If the arguments are not ready, or cannot be packed,
 * they are sent later. */
static tdm_status actor_spec_create(const tdm_runtime *runtime, const char *class_name,
                                    const struct tdm_actor_options *options,
                                    struct tdm__call_arguments *arguments,
                                    struct tdm__actor_spec **spec_out)
{
    struct tdm__rpc_request request = {0};
    bool awaited = !tdm__call_arguments_are_ready(arguments) ||
                   tdm__call_arguments_pack(arguments, NULL, false, &request) != TDM_OK;
    struct tdm__actor_spec *spec;

    TDM_TRY(tdm__actor_spec_create(class_name, options, request.packed, &spec));
    spec->creator = runtime->self.id;
    spec->awaits_creator_arguments = awaited;
    spec_capture_into_group(runtime, spec);
    if (spec->name_space[0] == '\0') {
        memcpy(spec->name_space, runtime->name_space, sizeof(spec->name_space));
    }
    *spec_out = spec;
    return TDM_OK;
}

/* Creates the channel and sends "actor.create". Takes ownership of `arguments`, which are kept
 * as long as the actor may be constructed. */
static tdm_status channel_create_new(tdm_runtime *runtime, const struct tdm__actor_spec *spec,
                                     const struct tdm_actor_options *options,
                                     struct tdm__call_arguments *arguments,
                                     struct tdm__actor_channel **channel_out)
{
    struct tdm__actor_channel *channel;
    tdm_status status =
        tdm__actor_channel_create(runtime, &spec->id, spec->name, spec->class_name, &channel);

    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    channel->arguments = arguments;
    channel->may_be_restarted = spec->max_restarts != 0;
    channel_set_options(channel, options);
    if (!spec->get_if_exists) { /* Otherwise the handle may be to an actor with other metadata. */
        tdm__actor_channel_set_metadata(channel,
                                        (struct tdm_bytes){spec->metadata, spec->metadata_bytes});
    }
    status = spec->detached ? TDM_OK : tdm__handle_start_counting(channel);
    if (status == TDM_OK) {
        status = channel_request_creation(channel, spec);
    }
    if (status != TDM_OK) {
        tdm__actor_channel_release(channel);
        return status;
    }
    channel->owes_constructor_arguments = spec->awaits_creator_arguments;
    *channel_out = channel;
    return TDM_OK;
}

/* Creates an actor and a handle to it. Takes ownership of `arguments`, which are sent with the
 * specification or later. */
static tdm_status actor_create(tdm_runtime *runtime, const char *class_name,
                               const struct tdm_actor_options *options,
                               struct tdm__call_arguments *arguments, tdm_actor **actor_out)
{
    struct tdm__actor_spec *spec;
    struct tdm__actor_channel *channel = NULL;
    tdm_status status = actor_spec_create(runtime, class_name, options, arguments, &spec);

    if (status != TDM_OK) {
        tdm__call_arguments_destroy(arguments);
        return status;
    }
    status = channel_create_new(runtime, spec, options, arguments, &channel);
    if (status == TDM_OK) {
        status = tdm__handle_create(channel, !spec->detached, actor_out);
    }
    if (status == TDM_OK) {
        tdm__actor_channel_send_arguments(channel);
    }
    tdm__actor_spec_destroy(spec);
    return status;
}

tdm_status tdm_actor_create_packed(tdm_runtime *runtime, const char *class_name,
                                   const struct tdm_actor_options *options,
                                   struct tdm_bytes arguments, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(class_name);

    struct tdm__call_arguments *kept;
    TDM__LOCK(runtime);

    TDM_TRY(tdm__call_arguments_copy(runtime, arguments, &kept));
    return actor_create(runtime, class_name, options, kept, actor_out);
}

tdm_status tdm_actor_create(tdm_runtime *runtime, const char *class_name,
                            const struct tdm_actor_options *options, tdm_actor **actor_out,
                            const char *format, ...)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(class_name);
    TDM__REQUIRE(format);

    struct tdm__call_arguments *arguments;
    tdm_status status;
    va_list args;
    TDM__LOCK(runtime);

    va_start(args, format);
    status = tdm__call_arguments_create(runtime, format, args, &arguments);
    va_end(args);
    TDM_TRY(status);
    return actor_create(runtime, class_name, options, arguments, actor_out);
}

/* Loop condition: returns true if the actor is connected or has ended. The handle's channel may
 * change meanwhile. */
static bool channel_is_settled(void *arg)
{
    const struct tdm__actor_channel *channel = ((const tdm_actor *)arg)->channel;

    return channel->state == TDM__CHANNEL_OPEN || channel->state == TDM__CHANNEL_DEAD;
}

/* Asks the daemon why the actor is not ready, and writes ": reason" into `text`, or "" if there
 * is no reply. */
static void request_pending_reason(const struct tdm__actor_channel *channel, char *text,
                                   size_t text_bytes)
{
    const struct tdm__actor_query_message query = {.actor = channel->id};
    struct tdm__actor_reason_message reason;
    tdm_document *reply;
    tdm_writer *writer;

    text[0] = '\0';
    if (tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm__actor_query_encode(&query, writer) == TDM_OK &&
        tdm__runtime_call_daemon(channel->runtime, "actor.why", tdm_writer_bytes(writer),
                                 REASON_TIMEOUT_MS, &reply) == TDM_OK) {
        if (tdm__actor_reason_decode(tdm_document_root(reply), &reason) == TDM_OK) {
            (void)snprintf(text, text_bytes, ": %s", reason.text);
        }
        tdm_document_destroy(reply);
    }
    tdm_writer_destroy(writer);
}

/* Writes the reason why the actor is not ready. The handle may have another channel afterwards,
 * that of an existing actor with the name. */
static void actor_describe_not_ready(const tdm_actor *actor, char *text, size_t text_bytes)
{
    struct tdm__actor_channel *channel = actor->channel;

    channel->holders_count++;
    request_pending_reason(channel, text, text_bytes);
    tdm__actor_channel_release(channel);
}

tdm_status tdm_actor_wait_ready(tdm_actor *actor, int64_t timeout_ms)
{
    TDM__REQUIRE(actor);

    tdm_runtime *runtime = actor->runtime;
    char why[512] = "";
    const struct tdm__actor_channel *channel;
    tdm_status status;
    TDM__LOCK(runtime);

    status = tdm__runtime_wait(runtime, channel_is_settled, actor, timeout_ms);
    if (status == TDM_E_TIMEOUT && timeout_ms > 0) { /* With a timeout of 0 the user only polls. */
        actor_describe_not_ready(actor, why, sizeof(why));
    }
    channel = actor->channel;
    if (status == TDM_E_TIMEOUT && !channel_is_settled(actor)) {
        return tdm__fail(status, "actor %s is not ready after %lld ms%s", channel->label,
                         (long long)timeout_ms, why);
    }
    if (status != TDM_E_TIMEOUT) {
        TDM_TRY(status);
    }
    if (channel->state == TDM__CHANNEL_DEAD) {
        return tdm__fail(channel->death_status, "%s", channel->death_detail);
    }
    return TDM_OK;
}

/* ---- find ------------------------------------------------------------------------------- */

/* Returns the channel to the actor in `reply`, a message actor_found, with a holder. Creates it if
 * necessary, and connects it or awaits the actor. */
static tdm_status actor_open_found(tdm_runtime *runtime, const char *name, const tdm_value *reply,
                                   struct tdm__actor_channel **channel_out)
{
    struct tdm__actor_found_message found;
    struct tdm__id id;

    TDM_TRY(tdm__actor_found_decode(reply, &found));
    TDM_TRY(tdm__id_parse(found.id, &id));
    *channel_out = tdm__actor_channel_retain_by_id(runtime, &id);
    if (*channel_out == NULL) {
        TDM_TRY(tdm__actor_channel_create(runtime, &id, name, found.class_name, channel_out));
        tdm__actor_channel_use_found(*channel_out, &found);
    } else if (found.holds_name) {
        (*channel_out)->may_find_existing = false; /* The actor that was created has the name. */
    }
    return TDM_OK;
}

/* Sends "actor.find" and repeats it if the store failed, since the daemon's connection to it may
 * close at any time. */
static tdm_status request_actor_by_name(tdm_runtime *runtime, struct tdm_bytes name,
                                        int64_t timeout_ms, tdm_document **reply_out)
{
    int64_t deadline_ms = tdm__deadline_after(timeout_ms);
    tdm_status status = TDM_E_STORE;

    for (int i = 0; i < FIND_TRIES && status == TDM_E_STORE; i++) {
        status = tdm__runtime_call_daemon(runtime, "actor.find", name,
                                          tdm__deadline_remaining_ms(deadline_ms), reply_out);
    }
    return status;
}

tdm_status tdm_actor_find(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                          tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(name);

    return tdm_actor_find_in(runtime, runtime->name_space, name, timeout_ms, actor_out);
}

tdm_status tdm_actor_find_in(tdm_runtime *runtime, const char *name_space, const char *name,
                             int64_t timeout_ms, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE_RUNNING(runtime);
    TDM__REQUIRE(name_space);
    TDM__REQUIRE(name);

    const struct tdm__actor_find_message message = {name_space, name};
    tdm_document *reply = NULL;
    struct tdm__actor_channel *channel;
    tdm_writer *writer;
    tdm_status status;
    TDM__LOCK(runtime);

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_find_encode(&message, writer);
    if (status == TDM_OK) {
        status = request_actor_by_name(runtime, tdm_writer_bytes(writer), timeout_ms, &reply);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        status = actor_open_found(runtime, name, tdm_document_root(reply), &channel);
        tdm_document_destroy(reply);
    }
    return status == TDM_OK ? tdm__handle_create(channel, false, actor_out) : status;
}

/* ---- kill ------------------------------------------------------------------------------- */

/* Asks the daemon to kill the actor's process. `may_restart` says whether the actor may be
 * restarted after that. */
static tdm_status actor_kill_process(tdm_actor *actor, bool may_restart, int64_t timeout_ms)
{
    struct tdm__actor_query_message query = {.may_restart = may_restart};
    struct tdm__actor_channel *channel;
    tdm_writer *writer;
    tdm_status status;
    TDM__LOCK(actor->runtime);

    channel = actor->channel;
    query.actor = channel->id;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__actor_query_encode(&query, writer);
    if (status == TDM_OK) {
        channel->holders_count++;
        status = tdm__runtime_call_daemon(channel->runtime, "actor.kill", tdm_writer_bytes(writer),
                                          timeout_ms, NULL);
        tdm__actor_channel_release(channel);
    }
    tdm_writer_destroy(writer);
    return tdm__wrap(status, "killing actor %s", actor->channel->label);
}

tdm_status tdm_actor_kill(tdm_actor *actor, int64_t timeout_ms)
{
    TDM__REQUIRE(actor);

    return actor_kill_process(actor, false, timeout_ms);
}

tdm_status tdm_actor_restart(tdm_actor *actor, int64_t timeout_ms)
{
    TDM__REQUIRE(actor);

    return actor_kill_process(actor, true, timeout_ms);
}
