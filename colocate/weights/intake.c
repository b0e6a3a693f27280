/* intake.c - which messages of an update a member takes, and what its shadow is for. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/weights/intake.h"

#include "runtime/error.h"

#include <inttypes.h>

tdm_status tdm__intake_bucket(struct tdm__intake *intake, const struct tdm__id *update,
                              uint64_t epoch, bool *begun_out)
{
    *begun_out = epoch > intake->epoch;
    if (*begun_out) {
        /* The one before is over, or this one would not have begun. */
        *intake = (struct tdm__intake){TDM__INTAKE_STAGING, *update, epoch};
        return TDM_OK;
    }
    if (epoch < intake->epoch || !tdm__id_equal(update, &intake->update)) {
        return tdm__fail(TDM_E_STATE,
                         "a bucket of epoch %" PRIu64 ", after one of epoch %" PRIu64, epoch,
                         intake->epoch);
    }
    if (intake->phase != TDM__INTAKE_STAGING) {
        return tdm__fail(TDM_E_STATE, "a bucket of epoch %" PRIu64 ", which this rank has %s",
                         epoch,
                         intake->phase == TDM__INTAKE_VOTED ? "voted for" : "left behind");
    }
    return TDM_OK;
}

tdm_status tdm__intake_check(const struct tdm__intake *intake, const struct tdm__id *update)
{
    if ((intake->phase != TDM__INTAKE_STAGING && intake->phase != TDM__INTAKE_VOTED) ||
        !tdm__id_equal(update, &intake->update)) {
        return tdm__fail(TDM_E_STATE, "nothing of this update has come");
    }
    return TDM_OK;
}

void tdm__intake_vote(struct tdm__intake *intake)
{
    intake->phase = TDM__INTAKE_VOTED;
}

tdm_status tdm__intake_flip(struct tdm__intake *intake, const struct tdm__id *update,
                            bool *swap_out)
{
    if ((intake->phase != TDM__INTAKE_VOTED && intake->phase != TDM__INTAKE_FLIPPED) ||
        !tdm__id_equal(update, &intake->update)) {
        return tdm__fail(TDM_E_STATE, "this rank has not voted for that update");
    }
    *swap_out = intake->phase == TDM__INTAKE_VOTED;
    intake->phase = TDM__INTAKE_FLIPPED;
    return TDM_OK;
}

bool tdm__intake_drop(struct tdm__intake *intake, uint64_t epoch)
{
    if (intake->epoch <= epoch && intake->phase != TDM__INTAKE_FLIPPED) {
        intake->phase = TDM__INTAKE_IDLE;
    }
    return intake->phase == TDM__INTAKE_IDLE || intake->phase == TDM__INTAKE_FLIPPED;
}
