/* exchange_step.c - one step of an exchange whose parts go through staging memory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/exchange_step.h"

#include <stdbool.h>

void tdm__exchange_step_init(struct tdm__exchange_step *step, const struct tdm__comm *comm,
                             const struct tdm__comm_exchange *exchange, size_t done,
                             size_t part_bytes)
{
    for (uint32_t i = 0; i < comm->ranks_count; i++) {
        bool is_other = i != comm->rank;

        step->offsets[i] = i * part_bytes;
        step->send_bytes[i] =
            is_other ? tdm__comm_part_left(exchange->send_bytes[i], done, part_bytes) : 0;
        step->receive_bytes[i] =
            is_other ? tdm__comm_part_left(exchange->receive_bytes[i], done, part_bytes) : 0;
    }
    step->part_bytes_max = tdm__comm_part_left(exchange->part_bytes_max, done, part_bytes);
}

struct tdm__comm_exchange tdm__exchange_step_staged(const struct tdm__exchange_step *step,
                                                    const void *in, void *out)
{
    return (struct tdm__comm_exchange){.in = in,
                                       .out = out,
                                       .send_offsets = step->offsets,
                                       .send_bytes = step->send_bytes,
                                       .receive_offsets = step->offsets,
                                       .receive_bytes = step->receive_bytes,
                                       .part_bytes_max = step->part_bytes_max};
}
