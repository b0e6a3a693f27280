/* object_callbacks.h - what references and values need from the side that calls actors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_OBJECT_CALLBACKS_H
#define TDM_ACTORS_OBJECTS_OBJECT_CALLBACKS_H

#include <tandem/actor.h>

struct tdm__pending_call;

/* What references and values need from the side that calls actors, which lies above actors/objects:
 * actor handles inside of values, and calls that wait for references. actors/client/client.c
 * provides the table, and tdm__objects_create() installs it. All functions are called with the
 * loop's lock. */
struct tdm__object_callbacks {
    /* Packs an actor handle. Fails with TDM_E_STATE while it is unknown which actor it belongs to.
     */
    tdm_status (*handle_write)(tdm_writer *writer, tdm_actor *actor);
    /* Opens a packed handle. The caller owns `*actor_out`. */
    tdm_status (*handle_open)(tdm_runtime *runtime, struct tdm_bytes bytes, tdm_actor **actor_out);
    /* Opens the keep-alive reference in a packed handle and adds a holder; NULL if the handle does
     * not keep its actor alive. */
    tdm_status (*handle_keep_alive)(tdm_runtime *runtime, struct tdm_bytes bytes,
                                    tdm_ref **keep_alive_out);
    /* Destroys a handle that handle_open() has opened. */
    void (*handle_destroy)(tdm_actor *actor);
    /* Records that a reference of another process has completed. Calls that wait for it as an
     * argument leave at the next send_ready_calls(). */
    void (*result_arrived)(tdm_runtime *runtime);
    /* Writes which call will complete a reference and how far it is, such as "method add of actor
     * a, call 7, made 20 ms ago, probably started". */
    void (*describe_call)(const struct tdm__pending_call *pending_call, char *text,
                          size_t text_bytes);
    /* Sends the calls whose arguments have completed since the last time. Called last in each event
     * that may have completed references. */
    void (*send_ready_calls)(tdm_runtime *runtime);
};

#endif
