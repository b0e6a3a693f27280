/* job_scale.c - `tandem job scale`: asks a running job for another number of engines. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A job is the process of `tandem run`, which no daemon knows. Its trainer rank 0 is an actor whose
 * name follows from the model's (update.model): "trainer/0" for the model "policy", else
 * "MODEL/trainer/0". The command leaves the number of engines there (colocate/job/scale_mailbox.h)
 * and asks for the state of the job until all engines serve. The job looks at the request at the
 * start of its next step. If it restarts, its trainer rank 0 is another actor: the command finds
 * that one and asks again, which is safe, because a request is a number of engines. There is one
 * thread. */
#include "cli/job_scale.h"

#include "cli/cluster.h"
#include "colocate/job/rank.h"
#include "colocate/job/scale_mailbox.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Milliseconds: the time between two questions, and how long a job whose trainer rank 0 has ended
 * may take to start it again. Seconds that the command waits unless --timeout says otherwise. */
enum { POLL_MS = 200, RESTART_MS = 90000, TIMEOUT_S = 300, TIMEOUT_S_MAX = 24 * 60 * 60 };
/* Largest number of engines that the command line accepts, and capacity for the names of jobs. */
enum { ENGINES_MAX = 100000, NAMES_BYTES = 512 };

struct tdm__option cli_job_scale_options[] = {{"--address", true, NULL},
                                              {"--timeout", true, NULL},
                                              {"--no-wait", false, NULL},
                                              {NULL, false, NULL}};

/* A request to a job. */
struct scaling {
    tdm_runtime *runtime;                  /* Connection to the cluster; borrowed. */
    char model[TDM__MODEL_NAME_BYTES_MAX]; /* Name of the job's model. */
    uint32_t engines;                      /* Number of engines that is asked for. */
    bool waits;                            /* Whether the command waits until all serve. */
    int64_t timeout_s;                     /* Longest time to wait in seconds. */
    tdm_actor *trainer;                    /* Trainer rank 0 (owned); NULL while it is not found. */
    int64_t restart_deadline_ms;           /* Until when a restart of the job is awaited. */
    uint64_t number;                       /* Number of the request; 0 if it was not made yet. */
    /* What the job has last said, with its texts. */
    struct tdm__scale_state_message state;
    char job[64];
    char lack[TDM__SCALE_TEXT_BYTES];
    char refusal[TDM__SCALE_TEXT_BYTES];
};

/* ---- the command line -------------------------------------------------------------------- */

/* Reads a whole number from `low` to `high`. Returns false if the text is not such a number. */
static bool read_number(const char *text, long low, long high, long *number_out)
{
    char *end;

    *number_out = strtol(text, &end, 10);
    return end != text && *end == '\0' && *number_out >= low && *number_out <= high;
}

/* Reads the operands: an optional job, and engines=N. Prints the error and returns the exit code if
 * they are wrong. */
static int read_operands(const struct tdm__parsed_arguments *args, struct scaling *scaling)
{
    static const char prefix[] = "engines=";
    const char *wish = args->operands[args->operands_count - 1];
    const char *timeout = tdm__option_value(args, "--timeout");
    long number;

    if (strncmp(wish, prefix, sizeof(prefix) - 1) != 0 ||
        !read_number(wish + sizeof(prefix) - 1, 1, ENGINES_MAX, &number)) {
        return tdm__refuse_arguments("job",
                                     "\"%s\": expected engines=N, where N is the number of engines "
                                     "that the job is to have, 1 or more",
                                     wish);
    }
    scaling->engines = (uint32_t)number;
    number = TIMEOUT_S;
    if (timeout != NULL && !read_number(timeout, 1, TIMEOUT_S_MAX, &number)) {
        return tdm__refuse_arguments("job", "--timeout is \"%s\", expected seconds from 1 to %d",
                                     timeout, TIMEOUT_S_MAX);
    }
    scaling->timeout_s = number;
    scaling->waits = tdm__option_value(args, "--no-wait") == NULL;
    if (args->operands_count == 2) {
        (void)snprintf(scaling->model, sizeof(scaling->model), "%s", args->operands[0]);
    }
    return TDM__EXIT_SUCCESS;
}

/* ---- the job ----------------------------------------------------------------------------- */

/* Writes the model of a job if the actor is its living trainer rank 0. */
static bool read_model(const struct tdm_actor_state *actor, char model[TDM__MODEL_NAME_BYTES_MAX])
{
    static const char suffix[] = "trainer/0";
    size_t length = strlen(actor->name);

    if (strcmp(actor->class_name, "tandem.trainer") != 0 || strcmp(actor->state, "DEAD") == 0 ||
        length < sizeof(suffix) - 1 ||
        strcmp(actor->name + length - (sizeof(suffix) - 1), suffix) != 0) {
        return false;
    }
    length -= sizeof(suffix) - 1;
    if (length == 0) {
        (void)snprintf(model, TDM__MODEL_NAME_BYTES_MAX, "%s", TDM__JOB_MODEL);
    } else {
        (void)snprintf(model, TDM__MODEL_NAME_BYTES_MAX, "%.*s", (int)(length - 1), actor->name);
    }
    return true;
}

/* Chooses the job of the model that the user has named, or the only one. */
static tdm_status choose_job(struct scaling *scaling)
{
    const struct tdm_actor_state *actors;
    char names[NAMES_BYTES] = "";
    struct tdm__text text = tdm__text_init(names, sizeof(names));
    char model[TDM__MODEL_NAME_BYTES_MAX];
    char first[TDM__MODEL_NAME_BYTES_MAX] = "";
    bool is_there = false;
    uint32_t jobs = 0;
    uint32_t count;

    TDM_TRY(tdm_list_actors(scaling->runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        if (read_model(&actors[i], model)) {
            (void)snprintf(first, sizeof(first), "%s", model);
            tdm__text_add(&text, "%s%s", jobs == 0 ? "" : ", ", model);
            is_there = is_there || strcmp(model, scaling->model) == 0;
            jobs++;
        }
    }
    tdm_list_free(actors);
    if (scaling->model[0] == '\0' && jobs == 1) {
        (void)snprintf(scaling->model, sizeof(scaling->model), "%s", first);
        return TDM_OK;
    }
    if (jobs == 0) {
        return tdm__fail(TDM_E_NOT_FOUND,
                         "job scale failed: no job runs in this cluster; start one "
                         "with tandem run and TANDEM_ADDRESS");
    }
    if (scaling->model[0] == '\0') {
        return tdm__fail(TDM_E_INVAL,
                         "job scale failed: %u jobs run in this cluster; name one by its "
                         "update.model: %s",
                         jobs, names);
    }
    return is_there ? TDM_OK
                    : tdm__fail(TDM_E_NOT_FOUND,
                                "job scale failed: no job with update.model %s runs in this "
                                "cluster; there is: %s",
                                scaling->model, names);
}

/* Gets the handle of the job's trainer rank 0, unless it is there. */
static tdm_status find_trainer(struct scaling *scaling)
{
    char name[TDM__RANK_NAME_BYTES];

    if (scaling->trainer != NULL) {
        return TDM_OK;
    }
    tdm__rank_name(name, scaling->model, "trainer/0");
    return tdm_actor_find(scaling->runtime, name, TDM__CLUSTER_TIMEOUT_MS, &scaling->trainer);
}

/* Keeps the job's state and its texts. */
static void keep_state(struct scaling *scaling, const struct tdm__scale_reply_message *reply)
{
    scaling->number = reply->number;
    scaling->state = reply->state;
    (void)snprintf(scaling->job, sizeof(scaling->job), "%s", reply->state.job);
    (void)snprintf(scaling->lack, sizeof(scaling->lack), "%s", reply->state.lack);
    (void)snprintf(scaling->refusal, sizeof(scaling->refusal), "%s", reply->state.refusal);
}

/* Makes the request, or asks for the state if it was made, and keeps the reply. */
static tdm_status ask_trainer(struct scaling *scaling)
{
    const struct tdm__scale_message request = {scaling->number == 0 ? scaling->engines : 0};
    struct tdm__scale_reply_message reply;
    const tdm_value *value;
    tdm_ref *ref = NULL;
    tdm_status status;

    TDM_TRY(find_trainer(scaling));
    status = tdm__rank_call(scaling->trainer, "scale", tdm__scale_table(), &request, &ref);
    if (status == TDM_OK) {
        status = tdm_get_value(ref, TDM__CLUSTER_TIMEOUT_MS, &value);
    }
    if (status == TDM_OK) {
        status = tdm__scale_reply_decode(value, &reply);
    }
    if (status == TDM_OK) {
        keep_state(scaling, &reply);
    }
    tdm_ref_release(ref);
    return status;
}

/* Returns whether a failure means that the job's trainer rank 0 does not run now. */
static bool is_away(tdm_status status)
{
    return status == TDM_E_ACTOR_DIED || status == TDM_E_NODE_LOST || status == TDM_E_NOT_FOUND ||
           status == TDM_E_ACTOR_UNAVAILABLE || status == TDM_E_TIMEOUT;
}

/* Asks the job. If its trainer rank 0 has ended, the request is made again when the job has started
 * it again; fails if that takes too long. */
static tdm_status ask_job(struct scaling *scaling)
{
    tdm_status status = ask_trainer(scaling);

    if (status == TDM_OK) {
        scaling->restart_deadline_ms = tdm__deadline_after(RESTART_MS);
        return TDM_OK;
    }
    if (!is_away(status)) {
        return status;
    }
    tdm_actor_destroy(scaling->trainer);
    scaling->trainer = NULL;
    scaling->number = 0;
    scaling->state.answered = 0;
    return tdm__deadline_remaining_ms(scaling->restart_deadline_ms) > 0
               ? TDM_OK
               : tdm__fail(TDM_E_NOT_FOUND,
                           "job scale failed: job %s ended before it had %u engines, or has not "
                           "started again within %d s: %s",
                           scaling->model, scaling->engines, RESTART_MS / 1000, tdm_error_detail());
}

/* ---- the result --------------------------------------------------------------------------- */

/* Returns whether the job has answered the request. */
static bool is_answered(const struct scaling *scaling)
{
    return scaling->number != 0 && scaling->state.answered >= scaling->number;
}

/* Explains what the command has waited for in vain. */
static tdm_status fail_late(const struct scaling *scaling)
{
    const struct tdm__scale_state_message *state = &scaling->state;

    if (!is_answered(scaling)) {
        return tdm__fail(TDM_E_TIMEOUT,
                         "job scale failed: job %s has not looked at the request for %u engines "
                         "within %lld s, because it does so between two steps: %u of %u are done. "
                         "The request stays; a longer --timeout waits for the answer",
                         scaling->model, scaling->engines, (long long)scaling->timeout_s,
                         state->step, state->steps_count);
    }
    return tdm__fail(TDM_E_TIMEOUT,
                     "job scale failed: %u of %u engines of job %s serve after %lld s: %s. The job "
                     "goes on with those, and takes the others in as soon as it can. To take the "
                     "request back: tandem job scale %s engines=%u",
                     state->serving, state->engines, scaling->model, (long long)scaling->timeout_s,
                     scaling->lack, scaling->model, state->serving > 0 ? state->serving : 1);
}

/* Makes the request and waits for the answer, and then until all engines serve. */
static tdm_status scale(struct scaling *scaling)
{
    int64_t deadline_ms = tdm__deadline_after(scaling->timeout_s * 1000);

    scaling->restart_deadline_ms = tdm__deadline_after(RESTART_MS);
    for (;;) {
        TDM_TRY(ask_job(scaling));
        if (is_answered(scaling) && scaling->state.status != TDM_OK) {
            (void)tdm__fail((tdm_status)scaling->state.status, "job scale failed: %s",
                            scaling->refusal);
            return (tdm_status)scaling->state.status;
        }
        if (is_answered(scaling) && scaling->state.serving == scaling->state.engines) {
            (void)printf("job %s (%s): %u engines serve version %llu\n", scaling->model,
                         scaling->job, scaling->state.engines,
                         (unsigned long long)scaling->state.version);
            return TDM_OK;
        }
        if (!scaling->waits && scaling->number != 0) {
            (void)printf("job %s (%s): asked for %u engines; it has %u now\n", scaling->model,
                         scaling->job, scaling->engines, scaling->state.engines);
            return TDM_OK;
        }
        if (tdm__deadline_remaining_ms(deadline_ms) == 0) {
            return fail_late(scaling);
        }
        (void)poll(NULL, 0, POLL_MS);
    }
}

int cli_job_scale_run(const struct tdm__parsed_arguments *args)
{
    static struct scaling scaling;
    int code = read_operands(args, &scaling);
    tdm_status status;

    if (code != TDM__EXIT_SUCCESS) {
        return code;
    }
    status = tdm__cluster_join(args, &scaling.runtime);
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    status = choose_job(&scaling);
    if (status == TDM_OK) {
        status = scale(&scaling);
    }
    tdm_actor_destroy(scaling.trainer);
    return tdm__cluster_leave(scaling.runtime, status);
}
