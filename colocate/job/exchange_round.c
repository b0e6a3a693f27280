/* exchange_round.c - runs one round in which trainer ranks exchange what crosses between nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/exchange_round.h"

#include "colocate/comm/collective.h"
#include "runtime/error.h"

/* Exchanges the parts of one memory. */
static tdm_status exchange_parts(tdm_collective_group *group, const void *in, void *out,
                                 const struct tdm__exchange_parts *parts)
{
    const struct tdm__comm_exchange exchange = {.in = in,
                                                .out = out,
                                                .send_offsets = parts->send_offsets,
                                                .send_bytes = parts->send_bytes,
                                                .receive_offsets = parts->receive_offsets,
                                                .receive_bytes = parts->receive_bytes,
                                                .part_bytes_max = parts->part_bytes_max};

    return tdm__collective_exchange(group, &exchange);
}

tdm_status tdm__exchange_round_run(tdm_collective_group *group,
                                   const struct tdm__exchange_round *round)
{
    TDM_TRY(exchange_parts(group, round->send, round->receive, &round->pieces));
    return exchange_parts(group, round->sent_sums, round->received_sums, &round->sums);
}
