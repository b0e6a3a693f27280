/* daemon.h - a model of the daemon: it starts, watches and ends the actors' processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SIM_DAEMON_H
#define TDM_TESTS_SIM_DAEMON_H

#include "actors/common/actor_spec.h"
#include "runtime/rpc/rpc.h"
#include "tests/sim/sim.h"

#include <sys/queue.h>

enum daemon_state { DAEMON_STARTING, DAEMON_ALIVE, DAEMON_RESTARTING, DAEMON_ENDING, DAEMON_DEAD };

struct daemon_question;
TAILQ_HEAD(daemon_questions, daemon_question);

/* One actor, which is never removed. The model keeps the promises of the real daemon
 * (actors/daemon): a request about the actor's start waits until it is constructed or dead, one
 * about its end until it is dead. */
struct daemon_actor {
    TAILQ_ENTRY(daemon_actor) link;
    struct tdm__actor_spec *spec; /* owned */
    enum daemon_state state;
    uint32_t incarnation;
    int64_t pid;
    struct sim_process *process; /* The process of this incarnation; NULL while there is none. */
    struct tdm__conn *conn;      /* The actor's connection to the daemon. */
    char address[TDM__ADDRESS_BYTES];
    bool released;
    bool killed; /* True: a process has requested a kill. */
    tdm_status death_status;
    char death[256];
    struct daemon_questions questions;
};

/* The daemon of the simulation. */
struct daemon {
    char directory[64];
    char address[TDM__ADDRESS_BYTES];
    struct tdm__id node;
    struct tdm__loop *loop; /* The loop (owned); the daemon is a process without a runtime. */
    struct tdm__rpc *rpc;   /* owned */
    struct sim_process *process;
    bool listens;
    bool stopping;
    int64_t last_pid;
    TAILQ_HEAD(, daemon_actor) actors;
    struct daemon_questions early; /* Requests about actors that were not created yet. */
};
extern struct daemon daemon_here;
extern const uint8_t daemon_token[TDM__TOKEN_BYTES];

void daemon_start(const char *directory);
/* Asks the daemon to end; sim_run_dry() completes this. */
void daemon_stop(void);
void daemon_destroy(void);

struct daemon_actor *daemon_find(const struct tdm__id *id);
/* Returns true if the actor lives in a process that can be killed. */
bool daemon_can_crash(const struct daemon_actor *actor);

/* Is called when the actor's process has ended. `own_will`: it ended gracefully. */
void daemon_ended(struct daemon_actor *actor, bool own_will);

#endif
