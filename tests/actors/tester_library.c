/* tester_library.c - a class in a shared library. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <tandem/tandem.h>

static tdm_status librarian_answer(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    return tdm_call_reply(call, "sb", "shh", info.actor_id, strlen(info.actor_id));
}

TDM_ACTOR_CLASS(librarian, .methods = {{"answer", librarian_answer}});
