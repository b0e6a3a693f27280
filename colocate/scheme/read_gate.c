/* read_gate.c - keeps reads of served weights and the change to the next version apart. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each receiver has a gate. A read passes the gates of all models of its set and counts as a reader
 * of each until it ends. The receiving thread shuts the gate of a model and waits for its readers
 * before it votes for a version. It opens the gate when the version is served or was aborted.
 *
 * While a gate is shut, new reads wait. They are readers of no model then, so that no vote waits
 * for them. They wait at most until the deadline of the update and the time to learn its outcome.
 * If the outcome cannot be learned, reads fail. */

#include "colocate/scheme/read_gate.h"

#include "runtime/clock.h"
#include "runtime/error.h"

#include <time.h>

/* ---- the receiving thread ---------------------------------------------------------------- */

tdm_status tdm__read_gate_shut(tdm_weights_receiver *receiver, int64_t deadline_ms)
{
    const struct timespec until = {.tv_sec = deadline_ms / 1000,
                                   .tv_nsec = deadline_ms % 1000 * 1000000};
    uint32_t readers_count;

    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->gate_is_shut = true;
    while (receiver->readers_count > 0 && tdm__clock_ms() < deadline_ms) {
        (void)pthread_cond_timedwait(&receiver->changed, &receiver->mutex, &until);
    }
    readers_count = receiver->readers_count;
    receiver->gate_is_shut = readers_count == 0;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
    return readers_count == 0 ? TDM_OK
                              : tdm__fail(TDM_E_TIMEOUT, "%u readers of %s have not ended",
                                          readers_count, receiver->session.model);
}

void tdm__read_gate_open(tdm_weights_receiver *receiver, uint64_t version, bool undecided)
{
    (void)pthread_mutex_lock(&receiver->mutex);
    receiver->gate_is_shut = undecided;
    receiver->undecided = undecided;
    receiver->version = version;
    (void)pthread_cond_broadcast(&receiver->changed);
    (void)pthread_mutex_unlock(&receiver->mutex);
}

/* ---- readers ----------------------------------------------------------------------------- */

/* Becomes a reader of one model, unless its gate is shut or it has no version. Returns the version
 * that is read, or 0. */
static uint64_t enter_gate(tdm_weights_receiver *receiver)
{
    uint64_t version = 0;

    (void)pthread_mutex_lock(&receiver->mutex);
    if (!receiver->gate_is_shut && !receiver->undecided) {
        version = receiver->version;
    }
    receiver->readers_count += version != 0;
    (void)pthread_mutex_unlock(&receiver->mutex);
    return version;
}

/* Ends being a reader of the first `count` models of a set. */
static void leave_gates(const tdm_weights_receiver *head, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tdm_weights_receiver *receiver = head->set[i];

        (void)pthread_mutex_lock(&receiver->mutex);
        receiver->readers_count--;
        (void)pthread_cond_broadcast(&receiver->changed);
        (void)pthread_mutex_unlock(&receiver->mutex);
    }
}

/* Waits until a gate is open. The caller is no reader of any model of the set, so that no vote
 * waits for it. Returns TDM_E_STATE if the model has no version that may be read. */
static tdm_status await_gate(tdm_weights_receiver *receiver)
{
    bool undecided;
    uint64_t version;

    (void)pthread_mutex_lock(&receiver->mutex);
    /* This wait ends with the deadline of the update. */
    while (receiver->gate_is_shut && !receiver->undecided) {
        (void)pthread_cond_wait(&receiver->changed, &receiver->mutex);
    }
    undecided = receiver->undecided;
    version = receiver->version;
    (void)pthread_mutex_unlock(&receiver->mutex);
    if (undecided) {
        return tdm__fail(TDM_E_STATE, "this receiver of %s has voted and does not know the outcome",
                         receiver->session.model);
    }
    return version != 0
               ? TDM_OK
               : tdm__fail(TDM_E_STATE, "no version of %s has come yet", receiver->session.model);
}

/* Passes all gates of a set, or waits at the first that is shut and begins again. `versions_out`
 * are the versions that are read then. */
static tdm_status enter_all_gates(const tdm_weights_receiver *head,
                                  uint64_t versions_out[TDM__VERSION_SET_MAX])
{
    uint32_t entered_count = 0;

    while (entered_count < head->set_count) {
        tdm_weights_receiver *receiver = head->set[entered_count];

        versions_out[entered_count] = enter_gate(receiver);
        if (versions_out[entered_count] != 0) {
            entered_count++;
        } else {
            leave_gates(head, entered_count);
            entered_count = 0;
            TDM_TRY(await_gate(receiver));
        }
    }
    return TDM_OK;
}

tdm_status tdm_weights_read_begin(tdm_weights_receiver *receiver, uint64_t *version_out)
{
    TDM__REQUIRE(receiver);

    uint64_t versions[TDM__VERSION_SET_MAX] = {0};

    TDM_TRY(enter_all_gates(receiver, versions));
    for (uint32_t i = 1; i < receiver->set_count; i++) {
        if (versions[i] != versions[0]) {
            leave_gates(receiver, receiver->set_count);
            return tdm__fail(TDM_E_STATE,
                             "version %llu of %s and version %llu of %s are no set: receive again",
                             (unsigned long long)versions[0], receiver->set[0]->session.model,
                             (unsigned long long)versions[i], receiver->set[i]->session.model);
        }
    }
    if (version_out != NULL) {
        *version_out = versions[0];
    }
    return TDM_OK;
}

void tdm_weights_read_end(tdm_weights_receiver *receiver)
{
    TDM__REQUIRE_OR(receiver, );

    leave_gates(receiver, receiver->set_count);
}
