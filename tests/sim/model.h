/* model.h - the expected results: every call, where it ran, and how it ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_MODEL_H
#define TDM_TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/actor.h>

enum { MODEL_CALLS_MAX = 512, MODEL_ACTORS_MAX = 8 };

enum model_class { MODEL_PLAIN, MODEL_ASYNCHRONOUS, MODEL_THREADED };

/* What the model knows about an actor. */
struct model_actor {
    char id[33];
    enum model_class actor_class;
    bool may_restart;
    int32_t max_task_retries;
    /* Number of expected ends, by a crash, a kill or a forced cancellation. */
    uint32_t ends_wanted;
    bool dropped; /* True: its creator has released the handle. */
};

/* What the model knows about a call. */
struct model_call {
    uint32_t actor;
    const void *caller; /* The process that made the call. */
    uint64_t order;     /* Position among the calls of that caller. */
    const char *method;
    int64_t expected;
    int32_t max_retries; /* Retries of the call, or the default of the actor. */
    bool has_deadline;
    bool has_uncounted_handle;
    int32_t handle_from; /* The call whose argument is the handle; -1: none. */
    bool canceled;
    bool fails;         /* True: the method fails on purpose. */
    bool reads_another; /* True: the method waits for another result, with a deadline of its own. */
    int32_t source;     /* The call whose result is the argument; -1: none. */
    /* True: the argument may be large; large arguments exist only as long as their connection. */
    bool may_be_large;

    bool is_watched; /* True: model_done() will be called for its reference. */
    uint32_t runs_count;
    uint32_t last_incarnation;
    uint32_t results_count;
    bool had_result;
    tdm_status result;
};

/* All actors and calls, and the faults that were injected. Without faults nothing may be lost. */
struct model {
    uint32_t actors_count;
    struct model_actor actors[MODEL_ACTORS_MAX];
    uint32_t calls_count;
    struct model_call calls[MODEL_CALLS_MAX];
    uint32_t cuts_count;       /* Cut connections to actors. */
    uint32_t owner_cuts_count; /* Cut connections to owners of values. */
    uint32_t ends_count;       /* Processes that were killed. */
    uint32_t failures_count;   /* Expected failures, for the summary. */
    uint32_t oks_count;
};
extern struct model model;

/* Prints the seed and the error, and ends the program. */
__attribute__((format(printf, 1, 2))) _Noreturn void model_fail(const char *format, ...);

void model_begin(uint64_t begun);
uint32_t model_actor_add(enum model_class actor_class, bool may_restart);
/* Adds a call and returns its number. The caller fills in the other fields. */
uint32_t model_call_add(uint32_t actor, const char *method);
bool model_is_full(void);
int64_t model_reply(uint32_t number, int64_t value);

/* Methods call this when a call starts to run. */
void model_ran(uint32_t number, const char *actor_id, uint32_t incarnation);
/* Callers call this with the result of a call. */
void model_result(uint32_t number, tdm_status status, int64_t value);
/* Is called when a reference is done. */
void model_done(uint32_t number);
/* Returns true if a reference from another process may have lost its value. */
bool model_may_lose(void);
/* Checks all calls after everything has ended. */
void model_check_all(void);

#endif
