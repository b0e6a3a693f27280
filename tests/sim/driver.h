/* driver.h - a simulated process that makes actors and calls them, at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_DRIVER_H
#define TDM_TESTS_SIM_DRIVER_H

#include "actors/objects/large_value.h"
#include "actors/objects/ref_table.h"
#include "actors/runtime.h"
#include "tests/sim/sim.h"

enum { DRIVERS_MAX = 2, DRIVER_SLOTS = 24, DRIVER_ACTORS = 4, DRIVER_STREAMS = 3 };

/* A reference the driver has, and what it must be. */
struct reference_slot {
    tdm_ref *ref; /* NULL: free */
    int64_t expected;
    int32_t call; /* its result; -1: put, -2: given by an actor */
    bool gives;   /* its result contains a reference */
    int64_t given_expected;
};

struct handle_slot {
    tdm_actor *actor; /* NULL: free */
    uint32_t index;   /* in the model */
    bool counted;
};

struct stream_slot {
    tdm_stream *stream; /* NULL: free */
    uint32_t call;
    int64_t taken;
    int64_t items;
};

struct driver {
    uint32_t number;
    uint32_t steps;
    uint32_t faults_per_mille; /* of 1000 steps, how many befall the world */
    struct sim_process *process;
    tdm_runtime *runtime;
    struct reference_slot slots[DRIVER_SLOTS];
    struct handle_slot handles[DRIVER_ACTORS];
    struct stream_slot streams[DRIVER_STREAMS];
    bool is_finished; /* its program is over, all is released */
    bool may_leave;
    struct tdm__ref_table_counts left; /* looked at last */
    struct tdm__object_memory_stats left_memory;
};

void drivers_plan(struct driver *drivers, uint32_t count);
void driver_start(struct driver *driver);

/* program.c: something bad happens, of `what` from 0 to 99. */
void program_inject_fault(struct driver *driver, uint32_t what);

#endif
