/* mailbox_actor.h - an actor class that has the scale mailbox of trainer rank 0 and nothing else.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_MAILBOX_ACTOR_H
#define TDM_TESTS_SUPPORT_MAILBOX_ACTOR_H

#include "colocate/job/scale_mailbox.h"

#include <tandem/tandem.h>

/* A program that includes this header has the class "mailbox_of_test". One file of a program may
 * include it. */

static tdm_status mailbox_actor_open(tdm_call *call, void *self)
{
    (void)call;
    tdm__scale_mailbox_init(self);
    return TDM_OK;
}

static void mailbox_actor_close(void *self)
{
    tdm__scale_mailbox_fini(self);
}

static tdm_status mailbox_actor_scale(tdm_call *call, void *self)
{
    return tdm__scale_mailbox_request(self, call);
}

static tdm_status mailbox_actor_report(tdm_call *call, void *self)
{
    return tdm__scale_mailbox_report(self, call);
}

TDM_ACTOR_CLASS(mailbox_of_test, .state_bytes = sizeof(struct tdm__scale_mailbox),
                .construct = mailbox_actor_open, .destruct = mailbox_actor_close,
                .methods = {{"scale", mailbox_actor_scale},
                            {"report_scale", mailbox_actor_report}});

#endif
