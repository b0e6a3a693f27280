/* soak.h - a load generator that performs random operations and checks every result. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SOAK_H
#define TDM_BENCH_SOAK_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/tandem.h>

/* Timeout of every wait in milliseconds, bytes of a large value, and number of actors that a
 * thread keeps. */
enum { SOAK_TIMEOUT_MS = 60000, SOAK_MIB = 1 << 20, SOAK_ACTORS = 5 };

/* Counts of what all threads of a driver have done. */
struct soak_totals {
    /* Number of operations that were performed. */
    _Atomic uint64_t acts;
    /* Number of calls whose replies were checked. */
    _Atomic uint64_t calls;
    /* Bytes of large arguments, replies and puts. */
    _Atomic uint64_t bytes;
    /* Number of actors that were created. */
    _Atomic uint64_t actors;
    /* Number of placement groups that were created. */
    _Atomic uint64_t groups;
    /* Number of operations that failed. */
    _Atomic uint64_t failures_count;
};

/* The actors that each thread keeps between operations. They are replaced after an operation has
 * failed. LOCAL and REMOTE say on which node the actor runs. */
enum soak_actor_role { SOAK_LOCAL, SOAK_REMOTE, SOAK_ASYNCHRONOUS, SOAK_THREADED, SOAK_RESTARTING };

/* One thread of a driver process with everything that it works with. Only that thread uses it. */
struct soak_thread {
    /* Borrowed runtime of the process. */
    tdm_runtime *runtime;
    /* Borrowed counts of the process. */
    struct soak_totals *counts;
    /* Borrowed ID of another node; that of this node if it is the only one. */
    const char *remote_node_id;
    /* State of the random number generator. */
    uint64_t random_state;
    /* Number of the thread, unique in the cluster. */
    uint64_t number;
    /* Number for the next actor name of this thread. */
    uint64_t next_name;
    /* Owned actors by enum soak_actor_role; NULL if not created yet. */
    tdm_actor *actors[SOAK_ACTORS];
    /* How often the actor SOAK_RESTARTING has been restarted. */
    int64_t restarts_count;
    /* Owned array of 1 MiB of random numbers, used as a large value. */
    uint64_t *words;
};

/* An operation does one thing and checks every result. A result other than TDM_OK is a bug of
 * Tandem, described by tdm_error_detail(). The operation releases everything that it created in
 * either case. */
typedef tdm_status soak_operation_fn(struct soak_thread *driver_thread);

/* An operation and how often it is chosen. */
struct soak_operation {
    /* Name on the command line and in messages. */
    const char *name;
    /* Function that performs it. */
    soak_operation_fn *run;
    /* Relative frequency among all operations. */
    uint32_t weight;
};

/* Calls of every kind; defined in soak_calls.c. */
soak_operation_fn soak_call_one_by_one, soak_call_pipelined, soak_call_large_argument,
    soak_call_large_reply, soak_call_stream, soak_call_stream_abandoned, soak_call_canceled,
    soak_call_past_deadline, soak_call_asynchronous, soak_call_threaded, soak_call_failing;
/* Values that are put, passed on, borrowed and released; defined in soak_objects.c. */
soak_operation_fn soak_put_small, soak_put_large, soak_borrow_reference, soak_chain_references,
    soak_pass_handle;
/* Actors and placement groups that are created and ended; defined in soak_lifecycles.c. */
soak_operation_fn soak_create_and_kill, soak_create_and_release, soak_create_named,
    soak_create_broken, soak_create_in_actor, soak_restart, soak_force_cancel, soak_placement_group,
    soak_list_state, soak_replace_actor;

/* Creates the thread's actors that do not exist. Defined in soak_thread.c, like the functions
 * below. */
tdm_status soak_thread_create_actors(struct soak_thread *driver_thread);
/* Releases all actors of the thread. */
void soak_thread_destroy_actors(struct soak_thread *driver_thread);
/* Returns a random number less than `below`. */
uint64_t soak_random(struct soak_thread *driver_thread, uint64_t below);
/* Returns TDM_OK if both numbers are equal, else an error that names both. */
tdm_status soak_expect_equal(uint64_t wanted, uint64_t got, const char *what);
/* Returns TDM_OK if both statuses are equal, else an error that names both. */
tdm_status soak_expect_status(tdm_status wanted, tdm_status got, const char *what);
/* Returns a hash of all 64-bit words that depends on their order. */
uint64_t soak_hash(const void *data, uint64_t size_bytes);
/* Returns the thread's words as an array, after setting the first word to a new random number. */
struct tdm_ndarray soak_array(struct soak_thread *driver_thread);
/* Waits for a reply of one integer and checks that it is `wanted`. Releases the reference. */
tdm_status soak_get_number(struct soak_thread *driver_thread, tdm_ref *ref, uint64_t wanted,
                           const char *what);

#endif
