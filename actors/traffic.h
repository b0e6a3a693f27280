/* traffic.h - the calls of a link: their order, what is sent again, when they are given up. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_TRAFFIC_H
#define TDM_ACTORS_TRAFFIC_H

#include "actors/outgoing.h"

struct tdm__link;

/* Each call gets a sequence number when it is sent first.  The actor keeps its answer until a
 * later call acknowledges it, so a call that is sent again over a new connection, with the same
 * number, is answered and not run again.  An actor that was restarted knows nothing: there the
 * numbers begin anew, with the calls that may be run twice. */

/* Queues a call, which is this module's from here on, and sends what can be sent. */
void tdm__traffic_push(struct tdm__link *link, struct tdm__outgoing *outgoing);
void tdm__traffic_pump(struct tdm__link *link);
/* What waits on a link that was never open goes to the end of another. */
void tdm__traffic_move(struct tdm__link *from, struct tdm__link *to);
/* Neither waiting nor flying calls. */
bool tdm__traffic_is_idle(const struct tdm__link *link);

/* Without a connection.  What flew waits again, in front and in its old order. */
void tdm__traffic_recall(struct tdm__link *link);
/* The actor was restarted, or will be: calls that have flown and may not be run again fail. */
void tdm__traffic_fail_unrepeatable(struct tdm__link *link, const char *reason);
/* The process that got those that waited again is not the one that will get them next. */
void tdm__traffic_renumber(struct tdm__link *link);
/* All of them fail. */
void tdm__traffic_fail_all(struct tdm__link *link, tdm_status status, const char *reason);

/* Settles it as canceled and tells the actor, if it has been sent: to cancel what its method
 * has called, too, if `children`. */
void tdm__traffic_cancel(struct tdm__outgoing *outgoing, bool children);
/* Items up to that one have been taken. */
void tdm__traffic_credit(struct tdm__outgoing *outgoing, uint64_t items_taken);

void tdm__traffic_init(struct tdm__link *link);
void tdm__traffic_fini(struct tdm__link *link);

#endif
