/* placement_group_waits.h - the calls that wait until a placement group is placed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_PLACEMENT_GROUP_WAITS_H
#define TDM_ACTORS_DAEMON_PLACEMENT_GROUP_WAITS_H

#include "actors/daemon/node_state.h"
#include "scheduler/reserve.h"

/* Why a placement group is not placed yet. */
struct placement_group_pending {
    bool is_infeasible; /* True if the present nodes could not hold the group even if idle. */
    const char *cause;  /* What the group waits for, borrowed. */
};
/* Replies to a call with the description of a placement group. `pending` is NULL for a placed group
 * and if the cause is not known. */
void tdm__placement_group_reply(struct tdm__incoming_call *incoming,
                                const struct tdm__placement_group_record *record,
                                const struct placement_group_pending *pending);
/* Replies to the call that has requested a placement group with the description of the group, which
 * waits for resources. */
void tdm__placement_group_reply_pending(struct tdm__incoming_call *incoming,
                                        const struct tdm__placement_group_request *request,
                                        const struct placement_group_pending *pending);

/* Creates the empty list of waiting calls, which is stored in node->placement_group_waits. */
tdm_status tdm__placement_group_waits_create(struct tdm__node *node);
/* Fails all waiting calls and frees their list. */
void tdm__placement_group_waits_destroy(struct tdm__node *node);
/* Serves the call "placement_group.wait": replies when the group, which any node may have created,
 * is placed. Fails with TDM_E_NOT_FOUND if there is no such group, or it is removed. */
void tdm__placement_group_waits_serve(struct tdm__node *node, struct tdm__incoming_call *incoming);
/* Replies to the calls that wait for the group, which is placed now. */
void tdm__placement_group_waits_end(struct tdm__node *node,
                                    const struct tdm__placement_group_record *record);
/* Fails the calls that wait for the group with TDM_E_NOT_FOUND, because it is removed. */
void tdm__placement_group_waits_fail(struct tdm__node *node, const struct tdm__id *group,
                                     const char *detail);
/* Looks again for the groups for which calls wait, because other nodes may have placed them.
 * Called about once in a second. */
void tdm__placement_group_waits_retry(struct tdm__node *node);

#endif
