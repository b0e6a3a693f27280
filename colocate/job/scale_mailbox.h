/* scale_mailbox.h - where a command leaves the request for another number of engines. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_SCALE_MAILBOX_H
#define TDM_COLOCATE_JOB_SCALE_MAILBOX_H

#include "runtime/error.h"

#include <pthread.h>
#include <tandem/actor.h>

/* Size with its NUL of the texts that the controller says: what engines wait for, and a refusal. */
enum { TDM__SCALE_TEXT_BYTES = 512 };

/* No daemon knows the process that runs a job, but its trainer ranks are actors with names. Trainer
 * rank 0 keeps the last request of `tandem job scale` until the controller asks for it, at the
 * start of each step, and keeps for the command what the controller has last said. Both sides call
 * methods with a thread of their own, so that neither waits for the training. A request is a number
 * of engines, so that it may be repeated, also after a restart of the job has lost it. */
struct tdm__scale_mailbox {
    pthread_mutex_t lock; /* Protects all fields; tdm__scale_mailbox_init() creates it. */
    uint64_t number;      /* Number of the last request; 0 if there was none. */
    uint32_t engines;     /* Number of engines that it asks for. */
    /* What the controller has last said: the packed message scale_state. Owned; NULL if nothing. */
    void *state;
    size_t state_bytes; /* Size of `state` in bytes. */
};

/* Initializes an empty mailbox. */
void tdm__scale_mailbox_init(struct tdm__scale_mailbox *mailbox);
/* Frees the mailbox. */
void tdm__scale_mailbox_fini(struct tdm__scale_mailbox *mailbox);

/* Serves the method "scale" of a command: notes the request (message scale) and replies with its
 * number and with what the controller has last said (scale_reply). A request for the same number of
 * engines as the last one that is not yet answered is that request. */
tdm_status tdm__scale_mailbox_request(struct tdm__scale_mailbox *mailbox, tdm_call *call);
/* Serves the method "report_scale" of the controller: notes the state (scale_state) and replies
 * with the last request (scale_request). */
tdm_status tdm__scale_mailbox_report(struct tdm__scale_mailbox *mailbox, tdm_call *call);

#endif
