/* soak.h - a driver that does everything, at random, for as long as it is asked to. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_BENCH_SOAK_H
#define TDM_BENCH_SOAK_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/tandem.h>

enum { SOAK_TIMEOUT_MS = 60000, SOAK_MIB = 1 << 20, SOAK_ACTORS = 5 };

/* What all threads of a driver have done. */
struct soak_totals {
    _Atomic uint64_t acts;
    _Atomic uint64_t calls; /* whose replies were checked */
    _Atomic uint64_t bytes; /* of large arguments, replies and puts */
    _Atomic uint64_t actors;
    _Atomic uint64_t groups;
    _Atomic uint64_t failures_count;
};

/* The actors a thread keeps: replaced when an act has failed. */
enum soak_actor_role { SOAK_LOCAL, SOAK_REMOTE, SOAK_ASYNCHRONOUS, SOAK_THREADED, SOAK_RESTARTING };

/* One thread of a driver, and what it works with. */
struct soak_thread {
    tdm_runtime *runtime;       /* borrowed */
    struct soak_totals *counts; /* borrowed */
    const char *remote_node_id; /* borrowed; the own node where there is no other */
    uint64_t random_state;      /* state of the generator */
    uint64_t number;            /* of the driver_thread, unique in the cluster */
    uint64_t next_name;
    tdm_actor *actors[SOAK_ACTORS]; /* owned; enum soak_actor_role */
    int64_t restarts_count;         /* of SOAK_RESTARTING */
    uint64_t *words;                /* 1 MiB, owned */
};

/* An act does one thing and checks every reply.  Anything else than TDM_OK is a mistake of
 * Tandem's, with its words in tdm_error_detail(); nothing of the act is left either way. */
typedef tdm_status soak_operation_fn(struct soak_thread *driver_thread);

struct soak_operation {
    const char *name;
    soak_operation_fn *run;
    uint32_t weight;
};

/* soak_calls.c */
soak_operation_fn soak_call_one_by_one, soak_call_pipelined, soak_call_large_argument,
    soak_call_large_reply, soak_call_stream, soak_call_stream_abandoned, soak_call_canceled,
    soak_call_past_deadline, soak_call_asynchronous, soak_call_threaded, soak_call_failing;
/* soak_objects.c */
soak_operation_fn soak_put_small, soak_put_large, soak_borrow_reference, soak_chain_references,
    soak_pass_handle;
/* soak_lifecycles.c */
soak_operation_fn soak_create_and_kill, soak_create_and_release, soak_create_named,
    soak_create_broken, soak_create_in_actor, soak_restart, soak_force_cancel, soak_placement_group,
    soak_list_state, soak_replace_actor;

/* soak_thread.c */
tdm_status soak_thread_create_actors(
    struct soak_thread *driver_thread); /* makes the actors that are missing */
void soak_thread_destroy_actors(struct soak_thread *driver_thread); /* lets go of all of them */
uint64_t soak_random(struct soak_thread *driver_thread, uint64_t below);
/* TDM_OK if both are the same; else a mistake that names both. */
tdm_status soak_expect_equal(uint64_t wanted, uint64_t got, const char *what);
tdm_status soak_expect_status(tdm_status wanted, tdm_status got, const char *what);
/* A sum of all words that depends on their order. */
uint64_t soak_hash(const void *data, uint64_t size_bytes);
/* The driver_thread's words with a new stamp in front, as an array. */
struct tdm_ndarray soak_array(struct soak_thread *driver_thread);
/* Waits for a reply of one integer, which must be that; releases the reference. */
tdm_status soak_get_number(struct soak_thread *driver_thread, tdm_ref *ref, uint64_t wanted,
                           const char *what);

#endif
