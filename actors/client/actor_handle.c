/* actor_handle.c - handles to actors: who counts, and how they travel. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/client/actor_handle.h"

#include "actors/client/send_queue.h"
#include "actors/objects/ref_table_internal.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdlib.h>
#include <string.h>

enum { RELEASE_TIMEOUT_MS = 30000 };

/* ---- counting --------------------------------------------------------------------------- */

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

static void forget_handle(struct tdm__actor_channel *channel, tdm_actor *actor)
{
    tdm_actor **place = &channel->handles;

    while (*place != actor) {
        place = &(*place)->next;
    }
    *place = actor->next;
}

void tdm_actor_destroy(tdm_actor *actor)
{
    struct tdm__actor_channel *channel;

    if (actor == NULL) {
        return;
    }
    if (actor->channel ==
        NULL) { /* The runtime has stopped, and this handle is all that is left. */
        free(actor);
        return;
    }
    TDM__LOCK(actor->runtime);
    channel = actor->channel;
    forget_handle(channel, actor);
    channel->counted_handles -= actor->is_counted ? 1 : 0;
    tdm__actor_channel_release(channel);
    free(actor);
}

static tdm_status write_id(tdm_writer *writer, const struct tdm__id *id)
{
    return tdm_pack(writer, "b", (const void *)id->bytes, sizeof(id->bytes));
}

/* Nobody in the cluster has a counted handle any more. */
static void on_last_hold(tdm_ref *hold)
{
    struct tdm__rpc_request request = {.method = "actor.release",
                                       .deadline_ms = tdm__deadline_after(RELEASE_TIMEOUT_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;

    if (hold->runtime->is_stopping || tdm__runtime_daemon(hold->runtime, &daemon) != TDM_OK ||
        tdm_writer_create(&writer) != TDM_OK) {
        return; /* the creator's end ends it, too */
    }
    if (write_id(writer, &hold->actor) == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        (void)tdm__conn_call(daemon, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
}

tdm_status tdm__handle_start_counting(struct tdm__actor_channel *channel)
{
    TDM_ASSERT(channel->hold == NULL);
    TDM_TRY(tdm__ref_create(channel->runtime, &channel->hold));
    channel->hold->actor = channel->id;
    channel->hold->on_end = on_last_hold;
    return TDM_OK;
}

void tdm__handle_release_unused(struct tdm__actor_channel *channel)
{
    tdm_ref *hold = channel->hold;

    if (channel->counted_handles == 0 && hold != NULL && tdm__send_queue_is_idle(channel)) {
        channel->hold = NULL;
        tdm_ref_release(hold);
    }
}

/* ---- travelling ------------------------------------------------------------------------- */

/* (actor, name, class, hold or nil) */
tdm_status tdm__handle_write(tdm_writer *writer, tdm_actor *actor)
{
    const struct tdm__actor_channel *channel = actor->channel;
    tdm_writer *bytes;
    tdm_status status;

    if (channel->may_find_existing) {
        return tdm__fail(TDM_E_STATE,
                         "actor %s: it is not known yet which one has the name: wait for it "
                         "(tdm_actor_wait_ready) before you pass it on",
                         channel->label);
    }
    TDM_TRY(tdm_writer_create(&bytes));
    tdm_write_array(bytes, 4);
    tdm_write_bytes(bytes, channel->id.bytes, sizeof(channel->id.bytes));
    tdm_write_string(bytes, channel->info.name);
    tdm_write_string(bytes, channel->info.class_name);
    status = TDM_OK;
    if (actor->is_counted && channel->hold != NULL) {
        status = tdm__reference_write(bytes, channel->hold);
    } else {
        tdm_write_nil(bytes);
    }
    if (status == TDM_OK) {
        tdm__write_ext(writer, TDM__EXT_HANDLE, tdm_writer_bytes(bytes));
        status = tdm_writer_status(writer);
    }
    tdm_writer_destroy(bytes);
    return status;
}

struct parts {
    struct tdm__id id;
    const char *name; /* borrowed from the document, like the next two */
    const char *class_name;
    struct tdm_bytes hold; /* {NULL, 0}: none */
};

static tdm_status read_parts(const tdm_document *document, struct parts *parts)
{
    const tdm_value *hold;
    struct tdm_bytes id;

    TDM_TRY(tdm_unpack(tdm_document_root(document), "bssv", &id.data, &id.size_bytes, &parts->name,
                       &parts->class_name, &hold));
    if (id.size_bytes != sizeof(parts->id.bytes) || parts->name == NULL ||
        parts->class_name == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "a handle without an actor");
    }
    memcpy(parts->id.bytes, id.data, sizeof(parts->id.bytes));
    parts->hold = tdm_value_kind_of(hold) == TDM_REFERENCE ? tdm__value_ext(hold)
                                                           : (struct tdm_bytes){NULL, 0};
    return TDM_OK;
}

static tdm_status open_hold(tdm_runtime *runtime, const struct parts *parts, tdm_ref **hold_out)
{
    *hold_out = NULL;
    return parts->hold.data == NULL ? TDM_OK : tdm__reference_open(runtime, parts->hold, hold_out);
}

tdm_status tdm__handle_bytes_keep_alive(tdm_runtime *runtime, struct tdm_bytes bytes,
                                        tdm_ref **hold_out)
{
    tdm_document *document;
    struct parts parts;
    tdm_status status;

    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "a handle"));
    status = read_parts(document, &parts);
    if (status == TDM_OK) {
        status = open_hold(runtime, &parts, hold_out);
    }
    tdm_document_destroy(document);
    return status;
}

/* (actor, false, its creator's node): a handle may overtake the creation of its actor, which
 * that node's daemon hears of first. */
static tdm_status write_question(tdm_writer *writer, const struct tdm__actor_channel *channel,
                                 const tdm_ref *hold)
{
    const struct ref_owner *creator =
        hold == NULL || hold->shared == NULL ? NULL : hold->shared->owner;

    tdm_write_array(writer, creator == NULL ? 2 : 3);
    tdm_write_bytes(writer, channel->id.bytes, sizeof(channel->id.bytes));
    tdm_write_bool(writer, false);
    if (creator != NULL) {
        tdm_write_bytes(writer, creator->address.node.bytes, sizeof(creator->address.node.bytes));
    }
    return tdm_writer_status(writer);
}

/* The daemon knows where it lives, or will. */
static tdm_status ask_for_place(struct tdm__actor_channel *channel, const tdm_ref *hold)
{
    struct tdm__rpc_request request = {.method = "actor.await", .deadline_ms = TDM__NEVER};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(channel->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = write_question(writer, channel, hold);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__actor_channel_request(channel, daemon, &request);
    }
    tdm_writer_destroy(writer);
    return status;
}

static tdm_status channel_to_actor(tdm_runtime *runtime, const struct parts *parts,
                                   const tdm_ref *hold, struct tdm__actor_channel **link_out)
{
    tdm_status status;

    *link_out = tdm__actor_channel_retain_by_id(runtime, &parts->id);
    if (*link_out != NULL) {
        return TDM_OK;
    }
    TDM_TRY(
        tdm__actor_channel_create(runtime, &parts->id, parts->name, parts->class_name, link_out));
    status = ask_for_place(*link_out, hold);
    if (status != TDM_OK) {
        tdm__actor_channel_release(*link_out);
    }
    return status;
}

static tdm_status open_parts(tdm_runtime *runtime, const struct parts *parts, tdm_actor **actor_out)
{
    struct tdm__actor_channel *channel;
    tdm_ref *hold;
    tdm_status status;

    TDM_TRY(open_hold(runtime, parts, &hold));
    status = channel_to_actor(runtime, parts, hold, &channel);
    if (status != TDM_OK) {
        tdm_ref_release(hold);
        return status;
    }
    if (channel->hold == NULL) {
        channel->hold = hold;
    } else {
        tdm_ref_release(hold); /* one is enough */
    }
    return tdm__handle_create(channel, parts->hold.data != NULL, actor_out);
}

tdm_status tdm__handle_open(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out)
{
    tdm_document *document;
    struct parts parts;
    tdm_status status;

    TDM_TRY(tdm__wrap(tdm_document_parse(bytes, &document), "a handle"));
    status = read_parts(document, &parts);
    if (status == TDM_OK) {
        status = open_parts(runtime, &parts, actor_out);
    }
    tdm_document_destroy(document);
    return status;
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
