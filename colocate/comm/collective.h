/* collective.h - public groups (tandem/collective.h) and the communicators behind them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_COLLECTIVE_H
#define TDM_COLOCATE_COMM_COLLECTIVE_H

#include "colocate/comm/comm.h"

/* Creates a public group around a communicator, which the group owns from TDM_OK on. */
tdm_status tdm__collective_wrap(struct tdm__comm *comm, tdm_collective_group **group_out);
/* Exchanges bytes between every two ranks, which all call it together. Fails like the functions of
 * tandem/collective.h, also if the ranks name different largest parts. */
tdm_status tdm__collective_exchange(tdm_collective_group *group,
                                    const struct tdm__comm_exchange *exchange);
/* Returns the number of operations that this process has begun in the group. */
uint64_t tdm__collective_calls_count(const tdm_collective_group *group);
/* Returns the communicator of a group, which the group owns. */
struct tdm__comm *tdm__collective_comm(tdm_collective_group *group);

#endif
