/* lease_machine.c - the state of a node's own lease, as a pure state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A request counts from the moment before it was sent. So the node never believes in its lease for
 * longer than the store, which counts from the moment when it carries the request out, by a clock
 * that is never faster. Another node takes over only after the end of the lease and a grace.
 *
 * Whatever event comes first after the end of the lease, the machine fences before it does anything
 * else, because the supervisor has killed the actors' processes at that time. So a renewal whose
 * reply comes late, or after the daemon was stopped, does not bring them back. */

#include "actors/daemon/lease_machine.h"

void tdm__lease_machine_init(struct lease_machine *machine, int64_t lease, bool is_alone,
                             int64_t now)
{
    *machine = (struct lease_machine){.lease = lease,
                                      .sent_at = now,
                                      .ends_at = now + lease,
                                      .request = LEASE_JOINS,
                                      .is_lost = true,
                                      .is_alone = is_alone};
}

int64_t tdm__lease_machine_fence_at(const struct lease_machine *machine)
{
    return machine->is_alone ? LEASE_NEVER : machine->ends_at;
}

/* Handles the success of the request that was sent last: the lease counts from its sending. */
static void extend(struct lease_machine *machine, int64_t now, struct lease_actions *actions)
{
    machine->request = LEASE_ASKS_NOTHING;
    if (machine->sent_at + machine->lease > machine->ends_at) {
        machine->ends_at = machine->sent_at + machine->lease;
        actions->publishes = true;
    }
    machine->may_have_joined = false;
    if (machine->is_lost) {
        machine->is_lost = false;
        actions->has_joined = true;
    }
    machine->is_fenced = machine->is_fenced && now >= machine->ends_at;
}

/* Sends the next request, unless one has no reply yet. A renewal shows whether a request to join
 * was carried out whose reply was lost. */
static void ask(struct lease_machine *machine, int64_t now, struct lease_actions *actions)
{
    bool joins = machine->is_lost && !machine->may_have_joined;

    if (machine->request != LEASE_ASKS_NOTHING) {
        return;
    }
    machine->request = joins ? LEASE_JOINS : LEASE_RENEWS;
    machine->sent_at = now;
    actions->joins = joins;
    actions->renews = !joins;
}

struct lease_actions tdm__lease_machine_step(struct lease_machine *machine, enum lease_event event,
                                             int64_t now)
{
    struct lease_actions actions = {.fences = false};

    if (event == LEASE_ON_SHARED && machine->is_alone) {
        machine->is_alone = false;
        actions.publishes = true;
    }
    if (now >= tdm__lease_machine_fence_at(machine) && !machine->is_fenced) {
        machine->is_fenced = true;
        actions.fences = true;
    }
    switch (event) {
    case LEASE_ON_TIMER:
        ask(machine, now, &actions);
        break;
    case LEASE_ON_RENEWED:
    case LEASE_ON_JOINED:
        extend(machine, now, &actions);
        break;
    case LEASE_ON_REFUSED:
        machine->request = LEASE_ASKS_NOTHING;
        machine->is_lost = true;
        machine->may_have_joined = false;
        ask(machine, now, &actions);
        break;
    case LEASE_ON_FAILED:
        machine->may_have_joined = machine->may_have_joined || machine->request == LEASE_JOINS;
        machine->request = LEASE_ASKS_NOTHING;
        break;
    case LEASE_ON_SHARED:
        break;
    }
    return actions;
}
