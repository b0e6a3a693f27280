/* world.c - one simulated cluster from its start to its end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/world.h"

#include "runtime/assert.h"
#include "tests/cluster_sim/cluster_store.h"
#include "tests/cluster_sim/driver.h"
#include "tests/cluster_sim/machine.h"
#include "tests/cluster_sim/processes.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

enum { LIMIT_MS = 120000, SIM_BEGAN_MS = 1000000 };

const uint8_t world_token[TDM__TOKEN_BYTES] = {9};
struct world_totals world_totals;
static uint64_t world_seed;

void world_fail(const char *format, ...)
{
    va_list args;

    (void)printf("seed %" PRIu64 ", step %" PRIu64 ", %" PRId64 " ms: ", world_seed,
                 sim_steps_count(), sim_now_ms());
    va_start(args, format);
    (void)vprintf(format, args);
    va_end(args);
    (void)printf("\n");
    invariants_describe();
    (void)printf("repeat with TANDEM_SEED=%" PRIu64 " TANDEM_TRACE=1\n", world_seed);
    (void)fflush(stdout);
    _exit(1);
}

/* ---- waiting ----------------------------------------------------------------------------- */

/* What the world waits for. */
struct goal {
    bool (*is_reached)(void);
    const char *text;
    int64_t limit_ms;
};

static bool goal_is_reached(void *arg)
{
    const struct goal *goal = arg;

    invariants_check();
    if (goal->is_reached()) {
        return true;
    }
    if (sim_now_ms() > goal->limit_ms) {
        char text[256] = "";

        if (faults_are_over()) {
            (void)invariants_hold_at_the_end(text, sizeof(text));
        }
        world_fail("%s: not after %d ms. %s", goal->text, (int)LIMIT_MS, text);
    }
    return false;
}

static void await(bool (*is_reached)(void), const char *text)
{
    struct goal goal = {is_reached, text, sim_now_ms() + LIMIT_MS};

    sim_trace("---- %s", text);
    if (sim_run(goal_is_reached, &goal) != SIM_DONE) {
        world_fail("%s: nothing happens any more, or too much", text);
    }
}

/* ---- the parts of a world ------------------------------------------------------------------ */

static bool all_have_joined(void)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        if (!machines[i].is_off_for_good &&
            (machines[i].daemon == NULL || !machines[i].daemon->has_joined)) {
            return false;
        }
    }
    return true;
}

static bool all_drivers_have_ended(void)
{
    return drivers_count() == 0;
}

static bool all_is_clean(void)
{
    char text[256];

    return invariants_hold_at_the_end(text, sizeof(text));
}

static bool all_have_left(void)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        if (machines[i].daemon != NULL) {
            return false;
        }
    }
    return TAILQ_EMPTY(processes_all()) && drivers_count() == 0;
}

static void start_all(void)
{
    for (uint32_t i = 0; i < machines_count; i++) {
        machine_start_daemon(&machines[i]);
    }
    await(all_have_joined, "all daemons join");
    for (uint32_t i = 0; i < machines_count; i++) {
        driver_start(&machines[i]);
    }
}

static void end_all(void)
{
    struct machine *living = NULL;

    drivers_finish();
    await(all_drivers_have_ended, "all drivers end");
    for (uint32_t i = 0; i < machines_count && living == NULL; i++) {
        living = machines[i].is_off_for_good ? NULL : &machines[i];
    }
    driver_start_cleaner(living);
    await(all_drivers_have_ended, "all names are free");
    await(all_is_clean, "nothing is left");
    for (uint32_t i = 0; i < machines_count; i++) {
        if (machines[i].is_off_for_good) { /* Only its memory is freed. */
            drivers_kill(&machines[i]);
            machine_kill_daemon(&machines[i]);
            processes_kill_machine(machines[i].number);
            machines[i].is_off_for_good = false;
        } else {
            machine_ask_to_leave(&machines[i]);
        }
    }
    await(all_have_left, "all daemons leave");
}

static void count(void)
{
    const struct driver_call *call;

    TAILQ_FOREACH(call, drivers_calls(), link)
    {
        world_totals.calls++;
        world_totals.refused_calls += call->status != TDM_OK ? 1 : 0;
    }
    world_totals.steps += sim_steps_count();
    world_totals.simulated_ms += (uint64_t)(sim_now_ms() - SIM_BEGAN_MS);
    world_totals.workers += processes_started_count();
}

void world_run(uint64_t seed, const char *directory)
{
    static const uint32_t losses[] = {0, 0, 200, 40};

    world_seed = seed;
    sim_begin(seed);
    network_begin(directory);
    processes_begin();
    cluster_store_begin();
    drivers_begin();
    machines_begin(2 + sim_below(2), sim_below(3) > 0 ? LEASE_SHORT_MS : LEASE_LONG_MS, directory);
    faults_begin();
    start_all();
    cluster_store_set_losses(losses[sim_below(4)]);
    await(faults_are_over, "all faults are repaired");
    end_all();
    count();
    machines_end();
    drivers_end();
    cluster_store_end();
    processes_end();
    network_end();
    sim_end();
}
