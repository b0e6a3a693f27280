/* replay_guard.c - which messages of an update an engine rank accepts. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/replay_guard.h"

#include "runtime/error.h"

#include <inttypes.h>

tdm_status tdm__replay_guard_accept_bucket(struct tdm__replay_guard *guard,
                                           const struct tdm__id *update, uint64_t epoch,
                                           bool *begun_out)
{
    *begun_out = epoch > guard->epoch;
    if (*begun_out) {
        /* The update before is over; otherwise the new update would not have begun. */
        *guard = (struct tdm__replay_guard){TDM__REPLAY_GUARD_STAGING, *update, epoch};
        return TDM_OK;
    }
    if (epoch < guard->epoch || !tdm__id_equal(update, &guard->update)) {
        return tdm__fail(TDM_E_STATE,
                         "receiving a bucket failed: it is of epoch %" PRIu64
                         ", but this rank takes part in another update, of epoch %" PRIu64
                         ". Send buckets of the newest update only",
                         epoch, guard->epoch);
    }
    if (guard->phase != TDM__REPLAY_GUARD_STAGING) {
        return tdm__fail(TDM_E_STATE,
                         "receiving a bucket failed: this rank has %s the update of epoch %" PRIu64
                         ", which has no more buckets. Begin another update",
                         guard->phase == TDM__REPLAY_GUARD_VOTED ? "voted for" : "left", epoch);
    }
    return TDM_OK;
}

tdm_status tdm__replay_guard_check_vote(const struct tdm__replay_guard *guard,
                                        const struct tdm__id *update)
{
    if ((guard->phase != TDM__REPLAY_GUARD_STAGING && guard->phase != TDM__REPLAY_GUARD_VOTED) ||
        !tdm__id_equal(update, &guard->update)) {
        return tdm__fail(TDM_E_STATE,
                         "voting for a weight update failed: no bucket of this update has arrived; "
                         "the last was of epoch %" PRIu64 ". Send its buckets before the vote",
                         guard->epoch);
    }
    return TDM_OK;
}

void tdm__replay_guard_vote(struct tdm__replay_guard *guard)
{
    guard->phase = TDM__REPLAY_GUARD_VOTED;
}

tdm_status tdm__replay_guard_flip(struct tdm__replay_guard *guard, const struct tdm__id *update,
                                  bool *swap_out)
{
    if ((guard->phase != TDM__REPLAY_GUARD_VOTED && guard->phase != TDM__REPLAY_GUARD_FLIPPED) ||
        !tdm__id_equal(update, &guard->update)) {
        return tdm__fail(TDM_E_STATE,
                         "flipping to a version failed: this rank has not voted for its update; "
                         "the last one it knows is of epoch %" PRIu64 ". Let it vote first",
                         guard->epoch);
    }
    *swap_out = guard->phase == TDM__REPLAY_GUARD_VOTED;
    guard->phase = TDM__REPLAY_GUARD_FLIPPED;
    return TDM_OK;
}

bool tdm__replay_guard_abort(struct tdm__replay_guard *guard, uint64_t epoch)
{
    if (guard->epoch <= epoch && guard->phase != TDM__REPLAY_GUARD_FLIPPED) {
        guard->phase = TDM__REPLAY_GUARD_IDLE;
    }
    if (guard->epoch < epoch) {
        guard->epoch = epoch;
    }
    return guard->phase == TDM__REPLAY_GUARD_IDLE || guard->phase == TDM__REPLAY_GUARD_FLIPPED;
}
