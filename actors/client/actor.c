/* actor.c - actors: create, find, kill. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/client/call_arguments.h"
#include "actors/objects/ref.h"
#include "actors/runtime.h"
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

enum { FIND_TRIES = 8, WHY_MS = 200 };

/* ---- create ----------------------------------------------------------------------------- */

/* `answer` is a message actor_found about the actor that has the name. */
static void channel_redirect_to_existing(struct tdm__actor_channel *channel,
                                         const tdm_value *answer)
{
    struct tdm__actor_found_message found;
    struct tdm__id id;
    tdm_status status = tdm__actor_found_decode(answer, &found);

    if (status == TDM_OK) {
        status = tdm__id_parse(found.id, &id);
    }
    if (status == TDM_OK) {
        tdm__actor_channel_redirect(channel, &id, found.class_name, found.description.value);
    } else {
        tdm__actor_channel_fail(channel, TDM_E_PROTOCOL, tdm_error_detail());
    }
}

/* The daemon's answer to "actor.create" or "actor.await": a description, or the actor that has
 * the name already, or why there is none. */
static void on_described(void *arg, struct tdm__rpc_reply *reply)
{
    struct tdm__actor_channel *channel = arg;
    tdm_document *document = NULL;

    if (reply->status == TDM_E_CLOSED) {
        (void)tdm__runtime_set_daemon_lost(channel->runtime, reply->detail);
        tdm__actor_channel_fail(channel, TDM_E_NODE_LOST, tdm_error_detail());
    } else if (reply->status != TDM_OK) {
        tdm__actor_channel_fail(channel, reply->status, reply->detail);
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
    status = tdm__conn_call(daemon, request, on_described, channel, NULL);
    if (status != TDM_OK) {
        channel->holders_count--;
    }
    return status;
}

static tdm_status ask_for_actor(struct tdm__actor_channel *channel,
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

static tdm_status send_constructor_arguments(struct tdm__actor_channel *channel,
                                             const struct tdm_bytes *packed, const char *failure)
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
        channel->runtime->calls_blocked = true;
        return;
    }
    channel->owes_constructor_arguments = false;
    status = tdm__call_arguments_pack(channel->arguments, NULL, false, &request);
    if (status == TDM_OK) {
        status = send_constructor_arguments(channel, &request.packed, "");
    }
    if (status != TDM_OK) {
        (void)snprintf(failure, sizeof(failure), "%s", tdm_error_detail());
        status = send_constructor_arguments(channel, NULL, failure);
    }
    if (status != TDM_OK) {
        channel->holders_count++; /* it may be idle with that, and is not through */
        tdm__actor_channel_fail(channel, TDM_E_ACTOR_DIED, tdm_error_detail());
        channel->holders_count--;
    }
}

/* What concerns the callers and not the actor. */
static void use_options(struct tdm__actor_channel *channel, const struct tdm_actor_options *options)
{
    if (options != NULL) {
        channel->max_task_retries = options->max_task_retries;
        channel->max_pending_calls = options->max_pending_calls;
        channel->out_of_order = options->allow_out_of_order != 0;
        channel->may_find_existing = options->get_if_exists != 0;
    }
}

/* The child of an actor that captures its children is in its group, unless it says where. */
static void capture_into_group(const tdm_runtime *runtime, struct tdm__actor_spec *spec)
{
    bool says_where = !tdm__id_is_none(&spec->group) || spec->wish.labels.count > 0 ||
                      spec->wish.scheduling != TDM_SCHEDULE_DEFAULT;

    if (runtime->captures_child_actors && !says_where) {
        spec->group = runtime->group;
        spec->bundle = TDM_BUNDLE_ANY;
        spec->captures_child_actors = true;
    }
}

static tdm_status make_spec(const tdm_runtime *runtime, const char *class_name,
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
    capture_into_group(runtime, spec);
    if (spec->name_space[0] == '\0') {
        memcpy(spec->name_space, runtime->name_space, sizeof(spec->name_space));
    }
    *spec_out = spec;
    return TDM_OK;
}

/* Takes `arguments`: they are kept for as long as the actor may be constructed. */
static tdm_status channel_create_new(tdm_runtime *runtime, const struct tdm__actor_spec *spec,
                                     const struct tdm_actor_options *options,
                                     struct tdm__call_arguments *arguments,
                                     struct tdm__actor_channel **link_out)
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
    use_options(channel, options);
    status = spec->detached ? TDM_OK : tdm__handle_start_counting(channel);
    if (status == TDM_OK) {
        status = ask_for_actor(channel, spec);
    }
    if (status != TDM_OK) {
        tdm__actor_channel_release(channel);
        return status;
    }
    channel->owes_constructor_arguments = spec->awaits_creator_arguments;
    *link_out = channel;
    return TDM_OK;
}

/* Takes `arguments`.  They travel with the description of the actor, or after it when they are
 * there. */
static tdm_status actor_create(tdm_runtime *runtime, const char *class_name,
                               const struct tdm_actor_options *options,
                               struct tdm__call_arguments *arguments, tdm_actor **actor_out)
{
    struct tdm__actor_spec *spec;
    struct tdm__actor_channel *channel = NULL;
    tdm_status status = make_spec(runtime, class_name, options, arguments, &spec);

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
    TDM__REQUIRE(runtime);
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
    TDM__REQUIRE(runtime);
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

/* Its channel may be another one in the end. */
static bool channel_is_settled(void *arg)
{
    const struct tdm__actor_channel *channel = ((const tdm_actor *)arg)->channel;

    return channel->state == TDM__CHANNEL_OPEN || channel->state == TDM__CHANNEL_DEAD;
}

/* The daemon's words for why it takes so long; "" if it does not say. */
static void request_pending_reason(const struct tdm__actor_channel *channel, char *text,
                                   size_t room)
{
    tdm_document *answer;
    tdm_writer *writer;

    text[0] = '\0';
    if (tdm_writer_create(&writer) != TDM_OK) {
        return;
    }
    if (tdm_pack(writer, "b", (const void *)channel->id.bytes, sizeof(channel->id.bytes)) ==
            TDM_OK &&
        tdm__runtime_call_daemon(channel->runtime, "actor.why", tdm_writer_bytes(writer), WHY_MS,
                                 &answer) == TDM_OK) {
        (void)snprintf(text, room, ": %s",
                       tdm_value_string(tdm_value_at(tdm_document_root(answer), 0), "?"));
        tdm_document_destroy(answer);
    }
    tdm_writer_destroy(writer);
}

/* The actor may have another channel afterwards: the one that had its name before. */
static void describe_not_ready(const tdm_actor *actor, char *text, size_t room)
{
    struct tdm__actor_channel *channel = actor->channel;

    channel->holders_count++;
    request_pending_reason(channel, text, room);
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
    if (status == TDM_E_TIMEOUT && timeout_ms > 0) { /* else it is only looked at */
        describe_not_ready(actor, why, sizeof(why));
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

/* `answer` is a message actor_found. */
static tdm_status actor_open_found(tdm_runtime *runtime, const char *name, const tdm_value *answer,
                                   struct tdm__actor_channel **link_out)
{
    struct tdm__actor_found_message found;
    struct tdm__id id;

    TDM_TRY(tdm__actor_found_decode(answer, &found));
    TDM_TRY(tdm__id_parse(found.id, &id));
    *link_out = tdm__actor_channel_retain_by_id(runtime, &id);
    if (*link_out == NULL) {
        TDM_TRY(tdm__actor_channel_create(runtime, &id, name, found.class_name, link_out));
        tdm__actor_channel_connect(*link_out, found.description.value);
    }
    return TDM_OK;
}

/* The connection to the store may drop at any time: to ask once more harms nobody. */
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
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(name);

    return tdm_actor_find_in(runtime, runtime->name_space, name, timeout_ms, actor_out);
}

tdm_status tdm_actor_find_in(tdm_runtime *runtime, const char *name_space, const char *name,
                             int64_t timeout_ms, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE(runtime);
    TDM__REQUIRE(name_space);
    TDM__REQUIRE(name);

    tdm_document *answer = NULL;
    struct tdm__actor_channel *channel;
    tdm_writer *writer;
    tdm_status status;
    TDM__LOCK(runtime);

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "ss", name_space, name);
    if (status == TDM_OK) {
        status = request_actor_by_name(runtime, tdm_writer_bytes(writer), timeout_ms, &answer);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK) {
        status = actor_open_found(runtime, name, tdm_document_root(answer), &channel);
        tdm_document_destroy(answer);
    }
    return status == TDM_OK ? tdm__handle_create(channel, false, actor_out) : status;
}

/* ---- kill ------------------------------------------------------------------------------- */

static tdm_status kill_process(tdm_actor *actor, bool may_restart, int64_t timeout_ms)
{
    struct tdm__actor_channel *channel;
    tdm_writer *writer;
    tdm_status status;
    TDM__LOCK(actor->runtime);

    channel = actor->channel;
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b?", (const void *)channel->id.bytes, sizeof(channel->id.bytes),
                      may_restart);
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

    return kill_process(actor, false, timeout_ms);
}

tdm_status tdm_actor_restart(tdm_actor *actor, int64_t timeout_ms)
{
    TDM__REQUIRE(actor);

    return kill_process(actor, true, timeout_ms);
}
