/* call.h - one call inside the actor that runs it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_CALL_H
#define TDM_ACTORS_CALL_H

#include "actors/objects/holds.h"
#include "runtime/rpc/rpc.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* Lives on the stack of whoever runs the method. */
struct tdm_call {
    struct tdm__incoming *incoming; /* NULL for a constructor, and once it has been answered */
    const tdm_value *arguments;     /* borrowed; they outlive the answer */
    struct tdm__holds holds;        /* the references among them */
    struct tdm__holds replied_with; /* those in the reply, until it is sent */
    int64_t deadline_ms;
    struct tdm__loop *loop; /* borrowed; let go of while the method runs; NULL in a test */
    bool replied;
};

/* Runs a method of `actor_class` and answers, whatever happens.  Takes `incoming`. */
void tdm__call_run(struct tdm__loop *loop, const struct tdm_actor_class *actor_class,
                   void *self, struct tdm__incoming *incoming);
/* Runs the constructor, if there is one. */
tdm_status tdm__call_construct(struct tdm__loop *loop,
                               const struct tdm_actor_class *actor_class, void *self,
                               const tdm_value *arguments);

#endif
