/* version_set.c - one step of the commit protocol for several models that are committed together.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* Pure functions over several version records, built from those over one (commit_core.h). BEGIN
 * raises the floor of every request to the highest number that any of the records has given out.
 * DECIDE first finds out, on copies, what each record would do, and then applies the one outcome
 * that follows for all of them. The protocol is docs/protocols/commit.md. */

#include "colocate/weights/version_set.h"

#include "colocate/weights/remedies.h"
#include "runtime/error.h"

#include <inttypes.h>

/* ---- begin --------------------------------------------------------------------------- */

/* Returns the highest version number that any of the records has given out, or any request names as
 * its floor. */
static uint64_t find_common_floor(const struct tdm__version_record *records,
                                  const struct tdm__version_request *requests, uint32_t count)
{
    uint64_t floor = 0;

    for (uint32_t i = 0; i < count; i++) {
        floor = records[i].version_highest > floor ? records[i].version_highest : floor;
        floor = requests[i].version_floor > floor ? requests[i].version_floor : floor;
    }
    return floor;
}

/* Applies BEGIN requests. An update that has begun before keeps its version, so that a repetition
 * changes nothing. */
static tdm_status begin_all(struct tdm__version_record *records,
                            const struct tdm__version_request *requests, uint32_t count,
                            bool *changed_out, uint32_t *refused_out)
{
    uint64_t floor = find_common_floor(records, requests, count);

    for (uint32_t i = 0; i < count; i++) {
        struct tdm__version_request request = requests[i];

        *refused_out = i;
        request.version_floor = floor;
        TDM_TRY(tdm__version_apply_request(&records[i], &request, &changed_out[i]));
        if (records[i].update.version != records[0].update.version) {
            return tdm__fail(
                TDM_E_CONFLICT,
                "beginning the update of several models failed: version %" PRIu64
                " was begun for model %" PRIu32 " of the set and version %" PRIu64
                " for the first. Decide both by themselves, and begin the set with new IDs",
                records[i].update.version, i + 1, records[0].update.version);
        }
    }
    return TDM_OK;
}

/* ---- decide -------------------------------------------------------------------------- */

/* What a set of DECIDE requests leads to. */
struct common_outcome {
    enum tdm__update_outcome outcome; /* The outcome that all updates get. */
    /* Outcome that each request leads to by itself; undecided while a vote is missing. */
    enum tdm__update_outcome alone[TDM__VERSION_SET_MAX];
};

/* Finds the outcome that all updates get. On refusal `refused_out` is the index of the model for
 * which a vote is missing, or whose record refuses the request. */
static tdm_status find_common_outcome(const struct tdm__version_record *records,
                                      const struct tdm__version_request *requests, uint32_t count,
                                      struct common_outcome *common, uint32_t *refused_out)
{
    struct tdm__version_record next;
    uint32_t missing = count; /* Index of the first model for which a vote is missing. */
    bool changed;

    common->outcome = TDM__UPDATE_COMMITTED;
    for (uint32_t i = 0; i < count; i++) {
        tdm_status status;

        *refused_out = i;
        common->alone[i] = TDM__UPDATE_UNDECIDED;
        next = records[i];
        status = tdm__version_apply_request(&next, &requests[i], &changed);
        if (status == TDM_E_STATE) {
            missing = missing == count ? i : missing;
            continue;
        }
        TDM_TRY(status);
        TDM_TRY(tdm__version_outcome(&next, &requests[i].update, &common->alone[i]));
        if (common->alone[i] == TDM__UPDATE_ABORTED) {
            common->outcome = TDM__UPDATE_ABORTED;
        }
    }
    if (common->outcome == TDM__UPDATE_ABORTED || missing == count) {
        return TDM_OK;
    }
    *refused_out = missing;
    next = records[missing];
    return tdm__version_apply_request(&next, &requests[missing],
                                      &changed); /* For its error text. */
}

/* Applies DECIDE requests. A request that leads to the common outcome by itself is applied as it
 * is, so that its record keeps the reason. */
static tdm_status decide_all(struct tdm__version_record *records,
                             const struct tdm__version_request *requests, uint32_t count,
                             bool *changed_out, uint32_t *refused_out)
{
    struct common_outcome common;

    TDM_TRY(find_common_outcome(records, requests, count, &common, refused_out));
    for (uint32_t i = 0; i < count; i++) {
        struct tdm__version_request request = requests[i];
        enum tdm__update_outcome outcome = TDM__UPDATE_UNDECIDED;

        *refused_out = i;
        if (common.alone[i] != common.outcome) {
            request.proposal = common.outcome;
        }
        TDM_TRY(tdm__version_apply_request(&records[i], &request, &changed_out[i]));
        TDM_TRY(tdm__version_outcome(&records[i], &request.update, &outcome));
        if (outcome != common.outcome) {
            return tdm__fail(
                TDM_E_CONFLICT,
                "deciding the update of several models failed: it is %s for model %" PRIu32
                " of the set and %s for another, so they were not decided together. Let only the "
                "source decide about the set",
                tdm__update_outcome_name(outcome), i + 1, tdm__update_outcome_name(common.outcome));
        }
    }
    return TDM_OK;
}

tdm_status tdm__version_apply_set(struct tdm__version_record *records,
                                  const struct tdm__version_request *requests, uint32_t count,
                                  bool *changed_out, uint32_t *refused_out)
{
    *refused_out = 0;
    if (count == 0 || count > TDM__VERSION_SET_MAX) {
        return tdm__fail(TDM_E_INVAL,
                         "requesting a version of several models failed: the request names %" PRIu32
                         " models, expected 1 to %d. Commit at most %d models together",
                         count, TDM__VERSION_SET_MAX, TDM__VERSION_SET_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (requests[i].kind != requests[0].kind) {
            *refused_out = i;
            return tdm__fail(TDM_E_INVAL,
                             "requesting a version of several models failed: the request is of "
                             "kind %d for the first model and %d for model %" PRIu32
                             ". " TDM__REMEDY_DEFECT,
                             (int)requests[0].kind, (int)requests[i].kind, i + 1);
        }
    }
    switch (requests[0].kind) {
    case TDM__VERSION_BEGIN:
        return begin_all(records, requests, count, changed_out, refused_out);
    case TDM__VERSION_DECIDE:
        return decide_all(records, requests, count, changed_out, refused_out);
    case TDM__VERSION_READ:
    case TDM__VERSION_PREPARED:
    case TDM__VERSION_FLIPPED:
    case TDM__VERSION_DEAD:
    case TDM__VERSION_LOST:
    case TDM__VERSION_JOIN:
    case TDM__VERSION_FORGET:
    case TDM__VERSION_RESTORE:
        break;
    }
    return tdm__fail(TDM_E_INVAL,
                     "requesting a version of several models failed: the request is of kind %d, "
                     "expected %d (begin) or %d (decide). " TDM__REMEDY_DEFECT,
                     (int)requests[0].kind, (int)TDM__VERSION_BEGIN, (int)TDM__VERSION_DECIDE);
}
