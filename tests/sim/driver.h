/* driver.h - a simulated process that creates actors and calls them at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_DRIVER_H
#define TDM_TESTS_SIM_DRIVER_H

#include "actors/objects/export.h"
#include "actors/objects/objects.h"
#include "actors/objects/ref_table.h"
#include "actors/process/runtime.h"
#include "tests/sim/sim.h"

enum { DRIVERS_MAX = 2, DRIVER_SLOTS = 24, DRIVER_ACTORS = 4, DRIVER_STREAMS = 3 };

/* In place of the call of a reference: the driver has put the value, or an actor has given it. */
enum { SLOT_PUT = -1, SLOT_GIVEN = -2 };

/* A reference of the driver and its expected value. */
struct reference_slot {
    tdm_ref *ref; /* The reference; NULL if the slot is free. */
    int64_t expected;
    int32_t call; /* The call whose result it is, SLOT_PUT or SLOT_GIVEN. */
    bool gives;   /* True: the result contains a reference. */
    int64_t given_expected;
};

/* A handle of the driver. */
struct handle_slot {
    tdm_actor *actor; /* The handle; NULL if the slot is free. */
    uint32_t index;   /* Index of the actor in the model. */
    bool counted;
};

/* A stream that the driver reads. */
struct stream_slot {
    tdm_stream *stream; /* The stream; NULL if the slot is free. */
    uint32_t call;
    int64_t taken;
    int64_t items;
};

/* A simulated driver. */
struct driver {
    uint32_t number;
    uint32_t steps;
    uint32_t faults_per_mille; /* Of 1000 steps, the number that inject a fault. */
    struct sim_process *process;
    tdm_runtime *runtime;
    struct reference_slot slots[DRIVER_SLOTS];
    struct handle_slot handles[DRIVER_ACTORS];
    struct stream_slot streams[DRIVER_STREAMS];
    bool is_finished; /* True: its program has ended and released everything. */
    bool may_leave;
    /* The counters of its reference table when they were last read. */
    struct tdm__ref_table_counts left;
    struct tdm__object_memory_stats left_memory;
};

void drivers_plan(struct driver *drivers, uint32_t count);
void driver_start(struct driver *driver);

/* Injects a fault of kind `what`, from 0 to 99 (program.c). */
void program_inject_fault(struct driver *driver, uint32_t what);

#endif
