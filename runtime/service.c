/* service.c - the parts of a daemon: each answers the calls of one prefix. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/service.h"

#include "runtime/assert.h"

#include <stdio.h>
#include <string.h>

void tdm__services_add(struct tdm__services *services, const struct tdm__service_ops *ops,
                       void *self)
{
    TDM_ASSERT(services->count < TDM__SERVICES_MAX);
    services->entries[services->count].ops = ops;
    services->entries[services->count].self = self;
    services->count++;
}

void tdm__services_serve(struct tdm__services *services, struct tdm__incoming *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    char detail[128];

    for (uint32_t i = 0; i < services->count; i++) {
        const struct tdm__service_ops *ops = services->entries[i].ops;
        size_t length = strlen(ops->prefix);

        if (strncmp(method, ops->prefix, length) == 0 && method[length] == '.') {
            ops->serve(services->entries[i].self, incoming);
            return;
        }
    }
    (void)snprintf(detail, sizeof(detail), "this process has no service for %s", method);
    tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, detail);
}

void tdm__services_peer_gone(struct tdm__services *services, const struct tdm__identity *peer)
{
    for (uint32_t i = 0; i < services->count; i++) {
        if (services->entries[i].ops->peer_gone != NULL) {
            services->entries[i].ops->peer_gone(services->entries[i].self, peer);
        }
    }
}

void tdm__services_destroy(struct tdm__services *services)
{
    while (services->count > 0) {
        services->count--;
        if (services->entries[services->count].ops->destroy != NULL) {
            services->entries[services->count].ops->destroy(
                services->entries[services->count].self);
        }
    }
}
