/* program.c - random programs: drivers that do anything with actors, checked by the model. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/program.h"

#include "actors/client/actor_channel.h"
#include "actors/client/client_records.h"
#include "actors/client/send_queue.h"
#include "actors/objects/export.h"
#include "actors/objects/large_value.h"
#include "actors/objects/objects.h"
#include "actors/objects/ref.h"
#include "actors/objects/ref_records.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/rpc/internal.h"
#include "tests/sim/daemon.h"
#include "tests/sim/driver.h"
#include "tests/sim/model.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- what befalls the world ---------------------------------------------------------------- */

/* Returns the model of the daemon's actor, or NULL while its creator's thread is interrupted
 * between the request to create the actor and the note of its ID. */
static struct model_actor *model_of(const struct daemon_actor *actor)
{
    char id[TDM__ID_TEXT_BYTES];

    (void)tdm__id_text(&actor->spec->id, id);
    for (uint32_t i = 0; i < model.actors_count; i++) {
        if (strcmp(model.actors[i].id, id) == 0) {
            return &model.actors[i];
        }
    }
    return NULL;
}

static void crash_some_actor(void)
{
    struct daemon_actor *actor;
    uint32_t chosen = sim_below(MODEL_ACTORS_MAX);
    uint32_t index = 0;

    TAILQ_FOREACH(actor, &daemon_here.actors, link)
    {
        struct model_actor *known = model_of(actor);

        if (index++ == chosen && daemon_can_crash(actor) && known != NULL) {
            known->ends_wanted++;
            model.ends_count++;
            sim_trace("actor %u is to crash", chosen);
            sim_process_kill(actor->process);
        }
    }
}

static void cut_some_call_line(tdm_runtime *runtime)
{
    struct tdm__actor_channel *channel;

    for (channel = runtime->client->actor_channels; channel != NULL; channel = channel->next) {
        if (channel->conn != NULL && channel->conn->fd >= 0 && sim_below(2) == 0) {
            sim_trace("the line to %s is cut", channel->label);
            model.cuts_count++;
            (void)shutdown(channel->conn->fd, SHUT_RDWR);
            return;
        }
    }
}

static void cut_some_owner_line(tdm_runtime *runtime)
{
    struct ref_owner *owner;

    TAILQ_FOREACH(owner, &runtime->objects->owners, link)
    {
        if (owner->conn != NULL && owner->conn->fd >= 0) {
            sim_trace("the line to the owner %s is cut", owner->address.label);
            model.owner_cuts_count++;
            (void)shutdown(owner->conn->fd, SHUT_RDWR);
            return;
        }
    }
}

void program_inject_fault(struct driver *driver, uint32_t what)
{
    if (what < 40) {
        cut_some_call_line(driver->runtime);
    } else if (what < 80) {
        crash_some_actor();
    } else {
        cut_some_owner_line(driver->runtime);
    }
}

/* ---- the end ---------------------------------------------------------------------------- */

static struct driver drivers[DRIVERS_MAX];
static uint32_t drivers_count;

static bool all_are_through(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < drivers_count; i++) {
        if (!drivers[i].is_finished) {
            return false;
        }
    }
    return true;
}

/* Those whose making is still on its way, too. */
static bool all_actors_ended(void *arg)
{
    struct daemon_actor *actor;
    uint32_t ended_count = 0;

    (void)arg;
    TAILQ_FOREACH(actor, &daemon_here.actors, link)
    {
        ended_count += actor->state == DAEMON_DEAD ? 1 : 0;
    }
    return ended_count == model.actors_count;
}

static bool holds_nothing(const struct driver *driver)
{
    const struct tdm__ref_table_counts *count = &driver->left;
    const struct tdm__object_memory_stats *use = &driver->left_memory;

    return count->owned + count->borrower_pins + count->borrowed + count->reply_pins == 0 &&
           use->used_bytes == 0 && use->exported_count + use->read_count == 0 &&
           driver->runtime->client->actor_channels == NULL;
}

static bool nothing_is_held(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < drivers_count; i++) {
        if (!holds_nothing(&drivers[i])) {
            return false;
        }
    }
    return true;
}

static bool all_have_ended(void *arg)
{
    (void)arg;
    for (uint32_t i = 0; i < drivers_count; i++) {
        if (!sim_process_has_ended(drivers[i].process)) {
            return false;
        }
    }
    return true;
}

/* What keeps a world from its end. */
static void print_left(const struct driver *driver)
{
    const struct tdm__ref_table_counts *left = &driver->left;
    const struct tdm__actor_channel *channel =
        driver->runtime == NULL ? NULL : driver->runtime->client->actor_channels;

    (void)printf(
        "driver %u: owned %u, borrower_pins %u, borrowed %u, kept %u, segments %llu bytes, lent "
        "%u, read %u\n",
        driver->number, left->owned, left->borrower_pins, left->borrowed, left->reply_pins,
        (unsigned long long)driver->left_memory.used_bytes, driver->left_memory.exported_count,
        driver->left_memory.read_count);
    for (; channel != NULL; channel = channel->next) {
        (void)printf("  channel to %s: state %d, holders %u, handles %u, pending %u, idle %d, hold "
                     "of %u\n",
                     channel->label, (int)channel->state, channel->holders_count,
                     channel->counted_handles, channel->pending_count,
                     tdm__send_queue_is_idle(channel),
                     channel->keep_alive == NULL ? 0 : channel->keep_alive->holders_count);
    }
}

static void run_until(bool (*done)(void *arg), const char *promise)
{
    enum sim_end end = sim_run(done, NULL);

    if (end == SIM_DONE) {
        return;
    }
    for (uint32_t i = 0; i < drivers_count; i++) {
        print_left(&drivers[i]);
    }
    model_fail("%s: %s", end == SIM_STUCK ? "nothing can happen any more" : "it has no end",
               promise);
}

void program_run(uint64_t seed, const char *directory)
{
    sim_begin(seed);
    model_begin(seed);
    daemon_start(directory);
    drivers_count = 1 + sim_below(DRIVERS_MAX);
    drivers_plan(drivers, drivers_count);
    for (uint32_t i = 0; i < drivers_count; i++) {
        driver_start(&drivers[i]);
    }
    run_until(all_are_through, "a driver waits for ever");
    run_until(all_actors_ended, "an actor lives on, though nobody has a handle");
    run_until(nothing_is_held, "something is counted, though nothing is used");
    for (uint32_t i = 0; i < drivers_count; i++) {
        drivers[i].may_leave = true;
    }
    run_until(all_have_ended, "a driver does not end");
    model_check_all();
    daemon_stop();
    if (sim_run_dry() != SIM_DONE) {
        model_fail("the daemon does not end");
    }
    daemon_destroy();
    sim_end();
}
