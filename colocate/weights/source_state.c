/* source_state.c - what the source of updates knows of its record, so that it can restore it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/source_state.h"

void tdm__source_state_on_begin(struct tdm__source_state *source_state,
                                const struct tdm__id *update, uint64_t epoch,
                                uint64_t update_version, uint64_t version,
                                const struct tdm__hash *hash)
{
    *source_state = (struct tdm__source_state){.update = *update,
                                               .epoch = epoch,
                                               .update_version = update_version,
                                               .base = version,
                                               .outcome = TDM__UPDATE_UNDECIDED,
                                               .version = version,
                                               .hash = *hash};
}

void tdm__source_state_on_decide(struct tdm__source_state *source_state,
                                 enum tdm__update_outcome outcome, uint64_t version,
                                 const struct tdm__hash *hash)
{
    source_state->outcome = outcome;
    source_state->version = version;
    source_state->hash = *hash;
}

void tdm__source_state_on_settled(struct tdm__source_state *source_state)
{
    source_state->settled = source_state->outcome == TDM__UPDATE_COMMITTED;
}

bool tdm__source_state_is_ahead(const struct tdm__source_state *source_state, uint64_t record_epoch)
{
    return record_epoch < source_state->epoch;
}

struct tdm__version_request
tdm__source_state_restore_request(const struct tdm__source_state *source_state)
{
    return (struct tdm__version_request){.kind = TDM__VERSION_RESTORE,
                                         .update = source_state->update,
                                         .epoch = source_state->epoch,
                                         .update_version = source_state->update_version,
                                         .base = source_state->base,
                                         .proposal = source_state->outcome == TDM__UPDATE_COMMITTED
                                                         ? TDM__UPDATE_COMMITTED
                                                         : TDM__UPDATE_ABORTED,
                                         .settled = source_state->settled,
                                         .overwrites = source_state->overwrites,
                                         .version = source_state->version,
                                         .hash = source_state->hash};
}
