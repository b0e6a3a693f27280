/* model.h - what must have happened: every call, where it ran, and how it ended. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_MODEL_H
#define TDM_TESTS_SIM_MODEL_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/actor.h>

enum { MODEL_CALLS_MAX = 512, MODEL_ACTORS_MAX = 8 };

enum model_class { MODEL_PLAIN, MODEL_ASYNCHRONOUS, MODEL_THREADED };

struct model_actor {
    char id[33];
    enum model_class actor_class;
    bool may_restart;
    int32_t max_task_retries;
    uint32_t ends_wanted; /* by a crash, a kill, a cancel by force */
    bool dropped;         /* its creator has let go of it */
};

struct model_call {
    uint32_t actor;
    const void *caller; /* the process */
    uint64_t order;     /* of the calls of that caller */
    const char *method;
    int64_t expected;
    int32_t max_retries; /* the call's own, or the actor's */
    bool has_deadline;
    bool has_uncounted_handle;
    bool canceled;
    bool fails;         /* on purpose */
    bool reads_another; /* waits for some other result, with a deadline of its own */
    int32_t source;     /* the call whose result is its argument; -1: none */
    bool may_be_large;  /* its argument: that lives no longer than its connection */

    bool is_watched; /* model_done() will be told */
    uint32_t runs_count;
    uint32_t last_incarnation;
    uint32_t results_count;
    bool had_result;
    tdm_status result;
};

/* What has been done to the world; nothing of it, and nothing may be lost. */
struct model {
    uint32_t actors_count;
    struct model_actor actors[MODEL_ACTORS_MAX];
    uint32_t calls_count;
    struct model_call calls[MODEL_CALLS_MAX];
    uint32_t cuts_count;       /* of connections to actors */
    uint32_t owner_cuts_count; /* of connections to owners */
    uint32_t ends_count;       /* of processes, at once */
    uint32_t failures_count;   /* that were expected, for the summary */
    uint32_t oks_count;
};
extern struct model model;

/* Ends the program with the seed and what is wrong. */
__attribute__((format(printf, 1, 2))) _Noreturn void model_fail(const char *format, ...);

void model_begin(uint64_t begun);
uint32_t model_actor_add(enum model_class actor_class, bool may_restart);
/* A new call; the caller fills in the rest.  Returns its number. */
uint32_t model_call_add(uint32_t actor, const char *method);
bool model_is_full(void);
int64_t model_reply(uint32_t number, int64_t value);

/* Told by methods: this call runs now. */
void model_ran(uint32_t number, const char *actor_id, uint32_t incarnation);
/* Told by callers: this is its result. */
void model_result(uint32_t number, tdm_status status, int64_t value);
/* Told when a reference is done. */
void model_done(uint32_t number);
/* May a reference that came from another process have lost its value? */
bool model_may_lose(void);
/* Everything has ended. */
void model_check_all(void);

#endif
