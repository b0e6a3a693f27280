/* controller_scaling.c - carries out requests for another number of engines, at the start of steps.
 */
/* SPDX-License-Identifier: Apache-2.0 */
/* The controller tells trainer rank 0 how many engines the job has and what they wait for, and gets
 * the last request of `tandem job scale` (scale_mailbox.h). It carries out a new request and tells
 * the answer. The settings of the controller then have the new number of engines, with which the
 * ranks are also started again after a restart of the job. */
#include "colocate/job/controller.h"

#include "colocate/job/engine_scaling.h"
#include "colocate/job/rank.h"
#include "colocate/job/rank_trace.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <string.h>

/* ---- the exchange with trainer rank 0 --------------------------------------------------- */

/* Calls "report_scale" on trainer rank 0 and reads the last request from the reply. */
static tdm_status exchange(struct tdm__controller *controller,
                           const struct tdm__scale_state_message *state,
                           struct tdm__scale_request_message *request_out)
{
    struct tdm__worker_group *workers = &controller->workers;
    const tdm_value *reply;
    tdm_ref *ref = NULL;
    tdm_status status =
        tdm__rank_call(workers->trainers[0], "report_scale", tdm__scale_state_table(), state, &ref);

    if (status == TDM_OK) {
        status =
            tdm__worker_group_await(workers, &ref, 1, (int64_t)controller->spec->step_timeout_ms);
    }
    if (status == TDM_OK) {
        status = tdm_get_value(ref, 0, &reply);
    }
    if (status == TDM_OK) {
        status = tdm__scale_request_decode(reply, request_out);
    }
    tdm_ref_release(ref);
    return tdm__wrap(status, "report_scale");
}

/* Tells trainer rank 0 the state of the job's engines, and gets the last request. */
static tdm_status report_state(struct tdm__controller *controller,
                               struct tdm__scale_request_message *request_out)
{
    const struct tdm__scale_answer *answer = &controller->scale_answer;
    char lack[TDM__SCALE_TEXT_BYTES];
    const struct tdm__scale_state_message state = {
        .job = controller->spec->name,
        .engines = controller->spec->num_engines,
        .serving = tdm__engine_scaling_serving(&controller->workers),
        .step = controller->step,
        .steps_count = controller->spec->num_rollout,
        .version = controller->phase.committed_version,
        .lack = lack,
        .answered = answer->number,
        .status = (int64_t)answer->status,
        .refusal = answer->refusal};

    tdm__engine_scaling_lack(&controller->workers, lack, sizeof(lack));
    return exchange(controller, &state, request_out);
}

/* ---- a request -------------------------------------------------------------------------- */

/* Tells the phase machine that the job has one engine more or fewer. */
static tdm_status tell_phases(struct tdm__controller *controller, enum tdm__phase_event_kind kind)
{
    const struct tdm__phase_event event = {.kind = kind};
    enum tdm__phase_action action;

    return tdm__phase_handle_event(&controller->phase, &event, &action);
}

/* Names the rows of an engine in the trace. */
static void name_trace_rows(struct tdm__controller *controller, uint32_t engine)
{
    uint32_t ranks_per_engine = controller->workers.ranks_per_engine;
    char name[48];

    for (uint32_t i = 0; controller->trace != NULL && i < ranks_per_engine; i++) {
        (void)snprintf(name, sizeof(name), "engine/%u/%u", engine, i);
        tdm__trace_name_thread(controller->trace, TDM__TRACE_ENGINES, engine * ranks_per_engine + i,
                               name);
    }
}

/* Adds one engine to the job. */
static tdm_status add_engine(struct tdm__controller *controller)
{
    TDM_TRY(tell_phases(controller, TDM__PHASE_ENGINE_ADDED));
    tdm__engine_scaling_add(&controller->workers);
    name_trace_rows(controller, controller->spec->num_engines);
    controller->own_spec.num_engines++;
    return TDM_OK;
}

/* Ends the last engine of the job. */
static tdm_status remove_engine(struct tdm__controller *controller, uint32_t wanted)
{
    char why[64];

    (void)snprintf(why, sizeof(why), "the job is to have %u engines", wanted);
    TDM_TRY(tdm__engine_scaling_remove(&controller->workers, why));
    controller->own_spec.num_engines--;
    return tell_phases(controller, TDM__PHASE_ENGINE_REMOVED);
}

/* Gives the job the number of engines that was asked for. A failure other than a refusal ends the
 * ranks, because the job then does not know what runs. */
static tdm_status change_engines(struct tdm__controller *controller, uint32_t wanted)
{
    uint32_t before = controller->spec->num_engines;

    if (wanted == before) {
        return TDM_OK;
    }
    while (controller->spec->num_engines < wanted) {
        TDM_TRY(add_engine(controller));
    }
    while (controller->spec->num_engines > wanted) {
        TDM_TRY(remove_engine(controller, wanted));
    }
    tdm__log(TDM__INFO, "job", "scaled from %u to %u engines", before, wanted);
    tdm__progress_note(&controller->progress, "scaled from %u to %u engines", before, wanted);
    return TDM_OK;
}

/* Answers a request: refuses it or carries it out. */
static tdm_status answer_request(struct tdm__controller *controller,
                                 const struct tdm__scale_request_message *request)
{
    struct tdm__scale_answer *answer = &controller->scale_answer;

    *answer = (struct tdm__scale_answer){.number = request->number};
    answer->status = tdm__engine_scaling_check(&controller->workers, request->engines);
    if (answer->status != TDM_OK) {
        (void)snprintf(answer->refusal, sizeof(answer->refusal), "%s", tdm_error_detail());
        tdm__log(TDM__WARN, "job", "not scaled: %s", answer->refusal);
        return TDM_OK;
    }
    return change_engines(controller, request->engines);
}

tdm_status tdm__controller_scale(struct tdm__controller *controller)
{
    struct tdm__scale_request_message request = {.number = 0};

    TDM_TRY(report_state(controller, &request));
    if (request.number == controller->scale_answer.number) {
        return TDM_OK;
    }
    TDM_TRY(answer_request(controller, &request));
    return report_state(controller, &request);
}

void tdm__controller_forget_scale_requests(struct tdm__controller *controller)
{
    controller->scale_answer = (struct tdm__scale_answer){.number = 0};
}
