/* actor_handle.c - handles to actors: how they are counted, packed and opened. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm_actor, the user's handle, and the reference `keep_alive` of a channel. In the
 * actor's creator this is an own reference, in other processes a borrowed one; it never
 * has a value. Each process holds it while it has a counted handle or a pending call. When all
 * processes have released it, on_keep_alive_end() runs in the creator and asks the daemon to
 * terminate the actor ("actor.release").
 *
 * A packed handle contains the keep-alive reference if the handle is counted. All functions need
 * the loop's lock, except that a handle may be destroyed after the runtime has stopped.
 * docs/lifetimes.md explains the rules to users. */

#include "actors/client/actor_handle.h"

#include "actors/client/actor_channel.h"
#include "actors/objects/portable.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_table.h"
#include "actors/objects/shared_ref.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdlib.h>
#include <string.h>

/* Milliseconds for the daemon to reply to "actor.release". */
enum { RELEASE_TIMEOUT_MS = 30000 };

/* ---- counting ---------------------------------------------------------------------------- */

tdm_status tdm__handle_create(struct tdm__actor_channel *channel, bool counted,
                              tdm_actor **actor_out)
{
    tdm_actor *actor = calloc(1, sizeof(*actor));

    if (actor == NULL) {
        tdm__actor_channel_release(channel);
        return tdm__fail(TDM_E_NOMEM, "a handle to an actor");
    }
    actor->runtime = channel->runtime;
    actor->channel = channel;
    actor->next = channel->handles;
    channel->handles = actor;
    actor->is_counted = counted;
    channel->counted_handles += counted ? 1 : 0;
    *actor_out = actor;
    return TDM_OK;
}

/* Removes the handle from its channel's list. */
static void channel_remove_handle(struct tdm__actor_channel *channel, tdm_actor *actor)
{
    tdm_actor **slot = &channel->handles;

    while (*slot != actor) {
        slot = &(*slot)->next;
    }
    *slot = actor->next;
}

void tdm_actor_destroy(tdm_actor *actor)
{
    struct tdm__actor_channel *channel;

    if (actor == NULL) {
        return;
    }
    if (actor->runtime == NULL) { /* The runtime has stopped; only the handle is left. */
        free(actor);
        return;
    }
    TDM__LOCK(actor->runtime);
    channel = actor->channel;
    channel_remove_handle(channel, actor);
    channel->counted_handles -= actor->is_counted ? 1 : 0;
    tdm__actor_channel_release(channel);
    free(actor);
}

/* Called in the actor's creator when no process has a counted handle any more: asks the daemon
 * to terminate the actor. */
static void on_keep_alive_end(tdm_ref *keep_alive)
{
    struct tdm__rpc_request request = {.method = "actor.release",
                                       .deadline_ms = tdm__deadline_after(RELEASE_TIMEOUT_MS)};
    const struct tdm__actor_query_message query = {.actor = keep_alive->actor};
    struct tdm__conn *daemon;
    tdm_writer *writer;

    if (keep_alive->runtime->is_stopping ||
        tdm__runtime_daemon(keep_alive->runtime, &daemon) != TDM_OK ||
        tdm_writer_create(&writer) != TDM_OK) {
        return; /* The actor then ends with its creator. */
    }
    if (tdm__actor_query_encode(&query, writer) == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        (void)tdm__conn_call(daemon, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
}

tdm_status tdm__handle_start_counting(struct tdm__actor_channel *channel)
{
    TDM_ASSERT(channel->keep_alive == NULL);
    TDM_TRY(tdm__ref_create(channel->runtime, &channel->keep_alive));
    channel->keep_alive->actor = channel->id;
    channel->keep_alive->on_end = on_keep_alive_end;
    return TDM_OK;
}

/* ---- packing and opening ----------------------------------------------------------------- */

/* Encodes the message packed_handle. `keep_alive` is an empty writer for the keep-alive reference.
 */
static tdm_status handle_encode(tdm_writer *writer, const tdm_actor *actor, tdm_writer *keep_alive)
{
    const struct tdm__actor_channel *channel = actor->channel;
    struct tdm__packed_handle_message message = {
        .actor = channel->id, .name = channel->info.name, .class_name = channel->info.class_name};

    if (actor->is_counted && channel->keep_alive != NULL) {
        TDM_TRY(tdm__reference_write(keep_alive, channel->keep_alive));
        message.keep_alive.packed = tdm_writer_bytes(keep_alive);
    }
    return tdm__packed_handle_encode(&message, writer);
}

tdm_status tdm__handle_write(tdm_writer *writer, tdm_actor *actor)
{
    const struct tdm__actor_channel *channel = actor->channel;
    tdm_writer *keep_alive = NULL;
    tdm_writer *bytes;
    tdm_status status;

    if (channel->may_find_existing) {
        return tdm__fail(TDM_E_STATE,
                         "actor %s: it is not known yet which one has the name: wait for it "
                         "(tdm_actor_wait_ready) before you pass it on",
                         channel->label);
    }
    TDM_TRY(tdm_writer_create(&bytes));
    status = tdm_writer_create(&keep_alive);
    if (status == TDM_OK) {
        status = handle_encode(bytes, actor, keep_alive);
    }
    if (status == TDM_OK) {
        tdm__write_ext(writer, TDM__EXT_HANDLE, tdm_writer_bytes(bytes));
        status = tdm_writer_status(writer);
    }
    tdm_writer_destroy(keep_alive);
    tdm_writer_destroy(bytes);
    return status;
}

/* The contents of a packed handle. */
struct handle_contents {
    struct tdm__id id;      /* Id of the actor. */
    const char *name;       /* Name of the actor, borrowed from the parsed document. */
    const char *class_name; /* Class of the actor, borrowed from the parsed document. */
    /* Packed keep-alive reference, borrowed from the parsed document; {NULL, 0} if the handle is
     * not counted. */
    struct tdm_bytes keep_alive;
};

/* Parses a packed handle. */
static tdm_status handle_parse(const tdm_document *document,
                               struct handle_contents *handle_contents)
{
    struct tdm__packed_handle_message message;

    TDM_TRY(tdm__packed_handle_decode(tdm_document_root(document), &message));
    handle_contents->id = message.actor;
    handle_contents->name = message.name;
    handle_contents->class_name = message.class_name;
    handle_contents->keep_alive = tdm_value_kind_of(message.keep_alive.value) == TDM_REFERENCE
                                      ? tdm__value_ext(message.keep_alive.value)
                                      : (struct tdm_bytes){NULL, 0};
    return TDM_OK;
}

/* Opens the keep-alive reference of a packed handle; NULL if absent. */
static tdm_status handle_open_keep_alive(tdm_runtime *runtime,
                                         const struct handle_contents *handle_contents,
                                         tdm_ref **keep_alive_out)
{
    *keep_alive_out = NULL;
    return handle_contents->keep_alive.data == NULL
               ? TDM_OK
               : tdm__reference_open(runtime, handle_contents->keep_alive, keep_alive_out);
}

tdm_status tdm__handle_bytes_keep_alive(tdm_runtime *runtime, struct tdm_bytes bytes,
                                        tdm_ref **keep_alive_out)
{
    tdm_document *document;
    struct handle_contents handle_contents;
    tdm_status status;

    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "a handle"));
    status = handle_parse(document, &handle_contents);
    if (status == TDM_OK) {
        status = handle_open_keep_alive(runtime, &handle_contents, keep_alive_out);
    }
    tdm_document_destroy(document);
    return status;
}

/* Awaits the actor of a packed handle, which may arrive before the actor has been created; the
 * daemon of the creator's node learns of the actor first. */
static tdm_status channel_await_with(struct tdm__actor_channel *channel, const tdm_ref *keep_alive)
{
    return tdm__actor_channel_await(channel, keep_alive == NULL || keep_alive->shared == NULL
                                                 ? NULL
                                                 : tdm__shared_ref_owner_node(keep_alive->shared));
}

/* Finds or creates the channel to the actor of a packed handle, with a holder. */
static tdm_status handle_get_channel(tdm_runtime *runtime,
                                     const struct handle_contents *handle_contents,
                                     const tdm_ref *keep_alive,
                                     struct tdm__actor_channel **channel_out)
{
    tdm_status status;

    *channel_out = tdm__actor_channel_retain_by_id(runtime, &handle_contents->id);
    if (*channel_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(tdm__actor_channel_create(runtime, &handle_contents->id, handle_contents->name,
                                      handle_contents->class_name, channel_out));
    status = channel_await_with(*channel_out, keep_alive);
    if (status != TDM_OK) {
        tdm__actor_channel_release(*channel_out);
    }
    return status;
}

/* Creates a handle from the parsed contents. */
static tdm_status handle_open_contents(tdm_runtime *runtime,
                                       const struct handle_contents *handle_contents,
                                       tdm_actor **actor_out)
{
    struct tdm__actor_channel *channel;
    tdm_ref *keep_alive;
    tdm_status status;

    TDM_TRY(handle_open_keep_alive(runtime, handle_contents, &keep_alive));
    status = handle_get_channel(runtime, handle_contents, keep_alive, &channel);
    if (status != TDM_OK) {
        tdm_ref_release(keep_alive);
        return status;
    }
    if (channel->keep_alive == NULL) {
        channel->keep_alive = keep_alive;
    } else {
        tdm_ref_release(keep_alive); /* The channel has a keep-alive reference already. */
    }
    return tdm__handle_create(channel, handle_contents->keep_alive.data != NULL, actor_out);
}

tdm_status tdm__handle_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out)
{
    tdm_document *document;
    struct handle_contents handle_contents;
    tdm_status status;

    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "a handle"));
    status = handle_parse(document, &handle_contents);
    if (status == TDM_OK) {
        status = handle_open_contents(runtime, &handle_contents, actor_out);
    }
    tdm_document_destroy(document);
    return status;
}

tdm_status tdm_actor_export(tdm_actor *actor, struct tdm_portable *portable_out)
{
    TDM__REQUIRE(portable_out);
    portable_out->size_bytes = 0;
    TDM__REQUIRE(actor);

    tdm_writer *writer;
    tdm_status status;

    if (actor->runtime == NULL) {
        return tdm__fail(TDM_E_STATE, "the runtime of the handle has stopped");
    }
    TDM__LOCK(actor->runtime);
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__handle_write(writer, actor);
    if (status == TDM_OK) {
        status = tdm__portable_write(tdm_writer_bytes(writer), portable_out);
    }
    tdm_writer_destroy(writer);
    if (status == TDM_OK && actor->is_counted && actor->channel->keep_alive != NULL) {
        tdm__reference_keep(actor->channel->keep_alive);
    }
    return status;
}

tdm_status tdm_actor_import(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE(runtime);

    struct tdm_bytes object;
    tdm_document *document;
    tdm_status status;
    TDM__LOCK(runtime);

    TDM_TRY(tdm__portable_read(bytes, TDM_HANDLE, &document, &object));
    status = tdm__handle_open(runtime, object, actor_out);
    tdm_document_destroy(document);
    return status;
}

tdm_status tdm_actor_current(tdm_runtime *runtime, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE(runtime);

    struct handle_contents handle_contents = {.name = runtime->actor_name,
                                              .class_name = runtime->class_name};
    TDM__LOCK(runtime);

    if (runtime->worker == NULL) {
        return tdm__fail(TDM_E_STATE, "this process is a driver, not an actor");
    }
    handle_contents.id = runtime->self.id;
    return handle_open_contents(runtime, &handle_contents, actor_out);
}

tdm_status tdm_value_actor(tdm_runtime *runtime, const tdm_value *value, tdm_actor **actor_out)
{
    TDM__REQUIRE(actor_out);
    *actor_out = NULL;
    TDM__REQUIRE(runtime);

    TDM__LOCK(runtime);

    if (value == NULL || tdm_value_kind_of(value) != TDM_HANDLE) {
        return tdm__fail(TDM_E_TYPE, "wanted a handle to an actor");
    }
    return tdm__handle_open(runtime, tdm__value_ext(value), actor_out);
}
