/* meet_service.h - the daemon's service "meet": where the members of a group find each other.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_MEET_SERVICE_H
#define TDM_COLOCATE_COMM_MEET_SERVICE_H

#include "runtime/service.h"

/*   method      arguments                                             reply
 *   meet.join   name s, rank u, ranks_count u, slot_bytes u,          generation u, the segment
 *               timeout_ms i
 *
 * All members are answered when the last has come, and the name is free again; or, at the
 * first one's deadline, all who came are told who did not (TDM_E_TIMEOUT).  A member that
 * dies before is out of the meeting; one that dies after ends the group for the others. */
extern const struct tdm__service_ops tdm__meet_service;

/* The service's `self`. */
tdm_status tdm__meet_create(struct tdm__loop *loop, void **self_out);

#endif
