/* standing.c - what the source of updates has heard of its record, to write it again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/standing.h"

void tdm__standing_begun(struct tdm__standing *standing, const struct tdm__id *update,
                         uint64_t epoch, uint64_t update_version, uint64_t version,
                         const struct tdm__hash *hash)
{
    *standing = (struct tdm__standing){.update = *update,
                                       .epoch = epoch,
                                       .update_version = update_version,
                                       .base = version,
                                       .outcome = TDM__UPDATE_UNDECIDED,
                                       .version = version,
                                       .hash = *hash};
}

void tdm__standing_decided(struct tdm__standing *standing, enum tdm__update_outcome outcome,
                           uint64_t version, const struct tdm__hash *hash)
{
    standing->outcome = outcome;
    standing->version = version;
    standing->hash = *hash;
}

void tdm__standing_settled(struct tdm__standing *standing)
{
    standing->settled = standing->outcome == TDM__UPDATE_COMMITTED;
}

bool tdm__standing_is_ahead(const struct tdm__standing *standing, uint64_t record_epoch)
{
    return record_epoch < standing->epoch;
}

struct tdm__version_request tdm__standing_restore(const struct tdm__standing *standing)
{
    return (struct tdm__version_request){.kind = TDM__VERSION_RESTORE,
                                         .update = standing->update,
                                         .epoch = standing->epoch,
                                         .update_version = standing->update_version,
                                         .base = standing->base,
                                         .proposal = standing->outcome == TDM__UPDATE_COMMITTED
                                                         ? TDM__UPDATE_COMMITTED
                                                         : TDM__UPDATE_ABORTED,
                                         .settled = standing->settled,
                                         .version = standing->version,
                                         .hash = standing->hash};
}
