/* driver.h - a simulated process that makes actors and calls them, at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_DRIVER_H
#define TDM_TESTS_SIM_DRIVER_H

#include "actors/objects/large.h"
#include "actors/objects/objects.h"
#include "actors/runtime.h"
#include "tests/sim/sim.h"

enum { DRIVERS_MAX = 2, DRIVER_SLOTS = 24, DRIVER_ACTORS = 4, DRIVER_STREAMS = 3 };

/* A reference the driver has, and what it must be. */
struct slot {
    tdm_ref *ref; /* NULL: free */
    int64_t expected;
    int32_t call; /* its result; -1: put, -2: given by an actor */
    bool gives;   /* its result contains a reference */
    int64_t given_expected;
};

struct handle {
    tdm_actor *actor; /* NULL: free */
    uint32_t index;   /* in the model */
    bool counted;
};

struct streaming {
    tdm_stream *stream; /* NULL: free */
    uint32_t call;
    int64_t taken;
    int64_t items;
};

struct driver {
    uint32_t number;
    uint32_t steps;
    uint32_t rough; /* of 1000 steps, how many befall the world */
    struct sim_process *process;
    tdm_runtime *runtime;
    struct slot slots[DRIVER_SLOTS];
    struct handle handles[DRIVER_ACTORS];
    struct streaming streams[DRIVER_STREAMS];
    bool is_through; /* its program is over, all is released */
    bool may_leave;
    struct tdm__objects_count left; /* looked at last */
    struct tdm__memory_use left_memory;
};

void drivers_plan(struct driver *drivers, uint32_t count);
void driver_start(struct driver *driver);

/* program.c: something bad happens, of `what` from 0 to 99. */
void program_befall(struct driver *driver, uint32_t what);

#endif
