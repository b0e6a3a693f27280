/* changes.h - the subscription: tells the watchers which keys changed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_CHANGES_H
#define TDM_REDIS_CHANGES_H

#include "runtime/redis/address.h"
#include "runtime/store/watchers.h"

#include <stdbool.h>

/* A connection of its own: on a subscribed one no other command is possible. */
struct tdm__redis_changes;

/* `watchers` and `outcomes` are borrowed. */
tdm_status tdm__redis_changes_create(struct tdm__loop *loop,
                                     const struct tdm__redis_address *address, const char *base,
                                     const struct tdm__watchers *watchers,
                                     struct tdm__outcomes *outcomes,
                                     struct tdm__redis_changes **changes_out);
void tdm__redis_changes_destroy(struct tdm__redis_changes *changes); /* NULL is allowed */
/* From the moment it is, no change is missed without its prefix being told. */
bool tdm__redis_changes_is_subscribed(const struct tdm__redis_changes *changes);

#endif
