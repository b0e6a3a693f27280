/* service.h - the parts of a daemon: each answers the calls of one prefix. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_SERVICE_H
#define TDM_RUNTIME_SERVICE_H

#include "runtime/rpc/rpc.h"

/* cli/tandemd.c assembles the daemon from services that the layers provide, so that no lower
 * layer knows a higher one.  A call "block.create" without a target goes to the service
 * "block". */
struct tdm__service_ops {
    const char *prefix; /* without the dot */
    void (*serve)(void *self, struct tdm__incoming *incoming);
    /* A process (worker or driver) of this node is dead and reaped, or has left: everything it
     * held returns now.  May be NULL. */
    void (*peer_gone)(void *self, const struct tdm__identity *peer);
    void (*destroy)(void *self); /* may be NULL */
};

enum { TDM__SERVICES_MAX = 16 };

struct tdm__services {
    struct {
        const struct tdm__service_ops *ops;
        void *self; /* owned, given to destroy */
    } entries[TDM__SERVICES_MAX];
    uint32_t count;
};

void tdm__services_add(struct tdm__services *services, const struct tdm__service_ops *ops,
                       void *self);
/* Hands the call to the service of its prefix; TDM_E_NOT_FOUND to the caller if none has it. */
void tdm__services_serve(struct tdm__services *services, struct tdm__incoming *incoming);
void tdm__services_peer_gone(struct tdm__services *services, const struct tdm__identity *peer);
void tdm__services_destroy(struct tdm__services *services); /* in reverse order */

#endif
