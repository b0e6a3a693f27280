/* client.c - the side of a runtime that calls actors: its creation, its end, and blocked calls. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Ties the files of actors/client together. It owns struct tdm__client with the list of channels,
 * and installs what lower files call: the send queues of the channels (client_records.h), and the
 * references of actors/objects (object_callbacks.h). Everything runs with the loop's lock. */

#include "actors/client/client.h"

#include "actors/client/actor.h"
#include "actors/client/actor_channel.h"
#include "actors/client/actor_handle.h"
#include "actors/client/call_arguments.h"
#include "actors/client/node_changes.h"
#include "actors/client/send_queue.h"
#include "runtime/error.h"

#include <stdlib.h>

/* ---- blocked calls --------------------------------------------------------------------------- */

/* Frees channels without holders whose last call ended because one of its arguments failed. */
static void channels_release_unused(tdm_runtime *runtime)
{
    struct tdm__actor_channel *channel = runtime->client->actor_channels;

    while (channel != NULL) {
        struct tdm__actor_channel *next = channel->next;

        if (tdm__actor_channel_free_if_unused(channel)) {
            next =
                runtime->client->actor_channels; /* Destroying the channel may have freed others. */
        }
        channel = next;
    }
}

void tdm__actor_channels_flush(tdm_runtime *runtime)
{
    bool pumped = false;

    while (runtime->client->calls_blocked && runtime->client->results_arrived) {
        pumped = true;
        runtime->client->calls_blocked = false;
        runtime->client->results_arrived = false;
        for (struct tdm__actor_channel *channel = runtime->client->actor_channels; channel != NULL;
             channel = channel->next) {
            tdm__actor_channel_send_arguments(channel);
            tdm__send_queue_flush(channel);
        }
    }
    if (pumped) {
        channels_release_unused(runtime);
    }
}

/* Records that calls may wait for a result that has arrived. */
static void on_result_arrived(tdm_runtime *runtime)
{
    runtime->client->results_arrived = true;
}

/* ---- creation and end ------------------------------------------------------------------------ */

const struct tdm__object_callbacks *tdm__client_object_callbacks(void)
{
    static const struct tdm__object_callbacks callbacks = {
        .handle_write = tdm__handle_write,
        .handle_open = tdm__handle_open,
        .handle_keep_alive = tdm__handle_bytes_keep_alive,
        .handle_destroy = tdm_actor_destroy,
        .describe_call = tdm__send_queue_describe_call,
        .result_arrived = on_result_arrived,
        .send_ready_calls = tdm__actor_channels_flush};

    return &callbacks;
}

tdm_status tdm__client_create(tdm_runtime *runtime)
{
    static const struct tdm__send_queue_callbacks callbacks = {
        .release_channel = tdm__actor_channel_release,
        .send_ready_calls = tdm__actor_channels_flush};

    runtime->client = calloc(1, sizeof(*runtime->client));
    if (runtime->client == NULL) {
        return tdm__fail(TDM_E_NOMEM, "the client side of a runtime");
    }
    runtime->client->callbacks = &callbacks;
    return TDM_OK;
}

void tdm__client_destroy(tdm_runtime *runtime)
{
    struct tdm__client *client = runtime->client;

    if (client == NULL) {
        return;
    }
    while (client->actor_channels != NULL) {
        tdm__actor_channel_destroy(client->actor_channels);
    }
    tdm__node_changes_forget(runtime);
    tdm__call_arguments_free_cached(runtime);
    runtime->client = NULL;
    free(client);
}
