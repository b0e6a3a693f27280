/* exchange_round.h - runs one round in which trainer ranks exchange what crosses between nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_EXCHANGE_ROUND_H
#define TDM_COLOCATE_JOB_EXCHANGE_ROUND_H

#include "colocate/weights/exchange_rounds.h"

#include <tandem/collective.h>

/* Exchanges the pieces of a round and then their checksums. All ranks of the group call it together
 * for the same round. Fails like the functions of tandem/collective.h. */
tdm_status tdm__exchange_round_run(tdm_collective_group *group,
                                   const struct tdm__exchange_round *round);

#endif
