/* lifecycle_simulator.h - what surrounds an actor's lifecycle: its worker, the store, another
 * daemon.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_LIFECYCLE_SIMULATOR_H
#define TDM_TESTS_SUPPORT_LIFECYCLE_SIMULATOR_H

#include "actors/daemon/actor_lifecycle.h"
#include "tests/support/state_explorer.h"

#include <stdbool.h>
#include <stdint.h>

/* The world carries out the actions of the machine as the daemon would, and notes each action
 * that breaks an invariant.  tests/actors/actor_lifecycle_test.c decides what happens next. */

/* ---- invariants ------------------------------------------------------------------------- */

enum violation {
    TWO_WORKERS = 1 << 0,          /* A worker is started while another one exists. */
    NO_RESOURCES = 1 << 1,         /* A worker is started without reserved resources. */
    RELEASED_IN_USE = 1 << 2,      /* Resources are released while a worker uses them. */
    RELEASED_TWICE = 1 << 3,       /* A reservation is released more than once. */
    NOT_RELEASED = 1 << 4,         /* The end is reported before resources and name are released,
                                      or they are never released. */
    REPORTED_TWICE = 1 << 5,       /* The end is reported more than once. */
    ENDED_TOO_EARLY = 1 << 6,      /* The entry goes while a worker or a reply needs it. */
    ACTIVE_AFTER_END = 1 << 7,     /* An action follows the end. */
    STARTED_UNWANTED = 1 << 8,     /* A worker is started for an actor that must not restart. */
    TOO_MANY_RESTARTS = 1 << 9,    /* More restarts than max_restarts. */
    NOTHING_PENDING = 1 << 10,     /* Nothing will ever happen to the actor. */
    NO_WAY_TO_END = 1 << 11,       /* A request to end the actor does not end it. */
    NOT_FENCED = 1 << 12,          /* A worker keeps what other nodes may claim. */
    KEPT_WITHOUT_HANDLE = 1 << 13, /* The actor stays although its last handle is gone. */
    REQUESTED_TWICE = 1 << 14,     /* A request is sent while the same one is pending. */
    WRONG_WORKER_ACTION = 1 << 15  /* An action is for a worker that does not exist. */
};

/* ---- mutations -------------------------------------------------------------------------- */

enum mutation {
    NO_MUTATION,
    FORGETS_RELEASE,          /* A reservation is not given back. */
    FORGETS_THAT_IT_RELEASED, /* The state still says that the reservation is held. */
    REPORTS_BEFORE_RELEASE,   /* The end is reported first. */
    FORGETS_KILL_IN_PLACING,  /* A kill that comes before the reservation has no effect. */
    RESTARTS_AFTER_KILL,      /* A kill for good is taken for a kill of the worker. */
    RESTARTS_ONCE_TOO_OFTEN,  /* The limit of restarts is off by one. */
    RESTARTS_BEFORE_THE_END,  /* The next worker starts before the last one is gone. */
    FORGETS_PATIENCE,         /* A worker that does not exit is not killed. */
    IGNORES_LEASE,            /* Workers survive the end of the lease. */
    FORGETS_LAST_HANDLE,      /* A handle that goes during the constructor is not noticed. */
    ENDS_UNDER_A_REPLY,       /* The reply to the end ends an actor that is being started. */
    KEEPS_REFUSED,            /* A refused start, whose end is requested, is still taken for a
                                 remote actor: the earlier code released it twice. */
    TRUSTS_UNSURE_START,      /* The other daemon is taken to release what it never started:
                                 the earlier code leaked the reservation. */
    STARTS_UNWANTED_AGAIN,    /* An unsure start is repeated although the actor must end: the
                                 earlier code did. */
    MUTATIONS_COUNT
};

/* ---- the world -------------------------------------------------------------------------- */

enum worker { NO_WORKER, FORKED, CONSTRUCTED, FAILED };
enum place { NOWHERE, HERE, ELSEWHERE };
enum guest { NO_GUEST, START_SENT, RUNNING, GONE };

/* The state of everything outside of the state machine. The explorer uses its bytes as the key of
 * the state, so the structure has no padding. */
struct lifecycle_simulator {
    struct actor_lifecycle actor;
    uint8_t worker;       /* enum worker */
    uint8_t is_attempted; /* The worker is being started, which may fail at once. */
    uint8_t is_killed;    /* The worker was sent SIGKILL. */
    uint8_t is_leaving;   /* The worker was asked to exit, or exits by itself. */
    uint8_t has_timer;
    uint8_t is_reserving;
    uint8_t place;     /* Where the store holds resources: enum place. */
    uint8_t is_owed;   /* This daemon has to release what the store holds. */
    uint8_t releasing; /* Number of releases in flight. */
    uint8_t is_finding;
    uint8_t is_rewriting;
    uint8_t guest;       /* State of the actor on the other node: enum guest. */
    uint8_t is_starting; /* The other daemon owes a reply to the start. */
    uint8_t is_ending;   /* The other daemon owes a reply to the end. */
    uint8_t is_reported; /* The other daemon's report of the end is in flight. */
    uint8_t other_is_lost;
    uint8_t awaits_creator_arguments;
    uint8_t must_not_start; /* The actor was ended for good. */
    uint8_t has_no_handle;
    uint8_t is_stopping;
    uint8_t starts_count;
    uint8_t ends_count;
    uint8_t unused[2];
};

_Static_assert(sizeof(struct lifecycle_simulator) == sizeof(struct actor_lifecycle) + 24,
               "has no padding");

/* What one exploration is about. */
struct kind_of_actor {
    const char *name;
    struct actor_facts facts;
    bool has_other; /* The store may reserve resources of another node. */
};

struct actor_exploration {
    struct state_explorer walk;
    const struct kind_of_actor *kind;
    enum mutation mutation;
    unsigned violations;
    uint32_t states; /* Bits of the values of enum actor_state that were reached. */
};

/* Notes the violation unless the condition holds. */
void lifecycle_world_check(struct actor_exploration *exploration, bool holds, unsigned violation);
/* Lets the event happen: steps the machine, mutated, and carries out its actions. */
void lifecycle_world_step(struct actor_exploration *exploration, struct lifecycle_simulator *world,
                          struct actor_event event);

#endif
