/* actor_lifecycle.h - the states of an actor in a daemon's table, as a pure state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_LIFECYCLE_H
#define TDM_ACTORS_DAEMON_ACTOR_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

struct tdm__rpc_reply;

enum {
    LEAVE_MS = 5000,      /* Milliseconds that a worker gets to exit before it is killed. */
    DRAIN_MS = 30000,     /* The same for a worker that first executes the calls it was sent. */
    ACTOR_ACTIONS_MAX = 4 /* Largest number of actions that one event can cause. */
};

enum actor_state {
    ACTOR_NEW,                /* The entry exists, and no event has been handled. */
    ACTOR_PLACING,            /* The store has been asked for resources and the name. */
    ACTOR_FINDING_HOLDER,     /* The name is taken, and the holder of the name is looked up. */
    ACTOR_WAITING,            /* The actor waits for resources, its name, or its arguments. */
    ACTOR_STARTING,           /* A worker exists, and the constructor has not returned. */
    ACTOR_CONSTRUCTOR_FAILED, /* The constructor failed, and the worker still exists. */
    ACTOR_ALIVE,              /* The worker executes calls. */
    ACTOR_RESTARTING,         /* The worker died, and a timer will start the next one. */
    ACTOR_ENDING,             /* The worker still exists and is not replaced by another. */
    ACTOR_REMOTE_STARTING,    /* Another daemon has been asked to start the actor. */
    ACTOR_REMOTE_UNSURE,      /* The connection ended before that daemon replied. */
    ACTOR_REMOTE,             /* The actor runs on the other node. */
    ACTOR_REMOTE_REFUSED,     /* The start failed, but a request to end it is still pending. */
    ACTOR_ENDED,              /* The entry has left the table. */
    ACTOR_ENDED_ELSEWHERE     /* The same, and the end is another daemon's to record. */
};

/* Whether the actor is still needed.  The value only grows, except that ACTOR_END_REQUESTED
 * falls back to ACTOR_UNWANTED when the other daemon replies. */
enum actor_demand {
    ACTOR_WANTED,       /* The actor is needed. */
    ACTOR_RELEASED,     /* The last handle is gone: the actor ends after its calls. */
    ACTOR_UNWANTED,     /* The actor must end. */
    ACTOR_END_REQUESTED /* The same, and the other node has been asked to end the actor. */
};

/* What the cluster's store holds for the actor: its resources and its name. */
enum actor_reservation {
    ACTOR_RESERVES_NOTHING,      /* The store holds nothing for the actor. */
    ACTOR_RESERVES_UNKNOWN,      /* A reply of the store, or a node, was lost. */
    ACTOR_RESERVES,              /* The store holds a reservation. */
    ACTOR_RESERVATION_LOST,      /* The store may have lost the record of it. */
    ACTOR_RESERVATION_REWRITTEN, /* The same, and the record is being written again. */
};

/* Why the daemon killed the current worker, if it did. */
enum actor_kill {
    ACTOR_NOT_KILLED,           /* The daemon has not killed the current worker. */
    ACTOR_KILLED,               /* The next worker may start on the same resources. */
    ACTOR_KILLED_WITHOUT_LEASE, /* The next worker needs a new reservation. */
};

/* A value: it is copied by assignment, and all zeros is a new actor. */
struct actor_lifecycle {
    enum actor_state state;             /* State of the actor. */
    enum actor_demand demand;           /* Whether the actor is still needed. */
    enum actor_reservation reservation; /* What the store holds for the actor. */
    enum actor_kill kill;               /* Why the daemon killed the current worker, if it did. */
    uint32_t incarnation;               /* Number of workers before the current one. */
    uint32_t quick_end_count;           /* Workers in a row that died soon after their start. */
};

/* What the machine is told about the actor and its node with each event. */
struct actor_facts {
    int32_t max_restarts;          /* -1 for no limit. */
    bool has_group;                /* The resources belong to a placement group. */
    bool is_detached;              /* The actor outlives its creator and its handles. */
    bool is_guest;                 /* The creator is on another node. */
    bool is_claimable;             /* Other nodes may claim what it has when the lease ends. */
    bool takes_name_holder;        /* A taken name is no error: its holder is meant. */
    bool awaits_creator_arguments; /* The creator still owes arguments of the constructor. */
    bool is_releasing;             /* A release of the resources or the name is not finished. */
    bool node_is_stopping;         /* The daemon ends: nothing is started any more. */
    bool lease_was_lost_recently;  /* Other nodes may not have joined again yet. */
};

enum actor_event_kind {
    ACTOR_ON_CREATE,             /* A process of this node asks for the actor. */
    ACTOR_ON_START_HERE,         /* Another daemon reserved resources of this node for it:
                                    `incarnation`. */
    ACTOR_ON_ARGUMENTS,          /* The arguments of the constructor have arrived. */
    ACTOR_ON_ARGUMENTS_FAILED,   /* They will not arrive; `detail` says why. */
    ACTOR_ON_RETRY,              /* Resources may have come free. */
    ACTOR_ON_RESERVED_HERE,      /* The store has reserved resources of this node. */
    ACTOR_ON_RESERVED_ELSEWHERE, /* The store has reserved resources of another node. */
    ACTOR_ON_NOT_RESERVED,       /* The reservation failed: `status`, `detail`. */
    ACTOR_ON_HOLDER_FOUND,       /* The creator has been told of the holder of the name. */
    ACTOR_ON_HOLDER_NOT_FOUND,   /* `status`, `detail`; TDM_E_NOT_FOUND: the name is free. */
    ACTOR_ON_WORKER_FAILED,      /* The worker cannot be started: `detail`. */
    ACTOR_ON_CONSTRUCTED,        /* The constructor has returned. */
    ACTOR_ON_CONSTRUCTOR_FAILED, /* The constructor has failed: `detail`. */
    ACTOR_ON_EXIT,               /* The worker says that it ends itself. */
    ACTOR_ON_SILENCE,            /* The worker has not answered a ping in time: `detail`. */
    ACTOR_ON_WORKER_ENDED,       /* The kernel has reported the end of the worker:
                                    `exited_normally`, `lifetime_ms`, `detail`. */
    ACTOR_ON_TIMER,              /* The timer of the last action that set one has expired. */
    ACTOR_ON_LAST_HANDLE_GONE,   /* No handle to the actor is left. */
    ACTOR_ON_END,                /* The actor has to end gracefully and is not restarted. */
    ACTOR_ON_KILL,               /* The actor has to end at once and is not restarted. */
    ACTOR_ON_KILL_WORKER,        /* Only the worker has to end: the actor may restart. */
    ACTOR_ON_STARTED_ELSEWHERE,  /* The other daemon has started the actor: `reply`. */
    ACTOR_ON_REFUSED_ELSEWHERE,  /* The start failed: `status`, `detail`, `reply`.
                                    TDM_E_NODE_LOST and TDM_E_STORE say that it is unknown. */
    ACTOR_ON_END_REPLY,          /* Reply to ACTOR_DO_END_ELSEWHERE: `status`, `detail`. */
    ACTOR_ON_ENDED_ELSEWHERE,    /* The other daemon reports the end: `status`, `detail`. */
    ACTOR_ON_NODE_SEEN,          /* The other node still has its lease. */
    ACTOR_ON_NODE_LOST,          /* The other node has lost its lease: `detail`. */
    ACTOR_ON_CREATOR_NODE_LOST,  /* The node of the creator has lost its lease. */
    ACTOR_ON_DISOWNED,           /* The creator's daemon has given the actor up: `detail`. */
    ACTOR_ON_LEASE_ENDING,       /* The lease of this node is about to end: `detail`. */
    ACTOR_ON_RECORD_LOST,        /* The store may have lost the record of the actor. */
    ACTOR_ON_REWRITE_DUE,        /* A lost record can be written again now. */
    ACTOR_ON_REWRITTEN,          /* The rewriting is over: `status`, `is_overdue`, `detail`. */
    ACTOR_EVENTS_COUNT           /* Number of kinds of events. */
};

/* A member that an event of this kind does not name above is not read. */
struct actor_event {
    enum actor_event_kind kind; /* What has happened. */
    struct actor_facts facts;   /* Facts about the actor and its node at the time of the event. */
    tdm_status status;          /* Outcome that the event reports. */
    const char *detail;         /* Borrowed; actions point to it. */
    const struct tdm__rpc_reply *reply; /* Borrowed; the machine never reads it. */
    uint32_t incarnation;               /* Number of workers that other nodes have started. */
    int64_t lifetime_ms;                /* Milliseconds that the worker has existed. */
    bool exited_normally;               /* The exit status of the worker is 0. */
    bool is_overdue;                    /* The record has been missing for too long. */
};

enum actor_action_kind {
    ACTOR_DO_RESERVE,           /* Ask the store for resources and the name. */
    ACTOR_DO_RELEASE,           /* Give `reservation` back to the store. */
    ACTOR_DO_FIND_HOLDER,       /* Look up the holder of the name. */
    ACTOR_DO_EXPLAIN_WAIT,      /* Remember what the actor waits for: `text`, maybe "". */
    ACTOR_DO_START_WORKER,      /* Start a worker on the reserved resources. */
    ACTOR_DO_RESTART_LATER,     /* Set the timer to `delay_ms`. */
    ACTOR_DO_ANSWER_WAITERS,    /* Answer those who wait for the actor to be alive: with the
                                   reply of the event, or else with the address. */
    ACTOR_DO_DRAIN_WORKER,      /* Ask the worker to exit after the calls that it was sent. */
    ACTOR_DO_STOP_WORKER,       /* Ask the worker to exit; its queued calls fail. */
    ACTOR_DO_EXPECT_EXIT,       /* The worker exits without being asked. */
    ACTOR_DO_KILL_WORKER,       /* Send SIGKILL to the worker. */
    ACTOR_DO_START_ELSEWHERE,   /* Ask the other daemon to start the actor. */
    ACTOR_DO_END_ELSEWHERE,     /* Ask the other daemon to end the actor. */
    ACTOR_DO_RELEASE_ELSEWHERE, /* Tell the other daemon that the last handle is gone. */
    ACTOR_DO_REWRITE_RECORD,    /* Write the record in the store again. */
    ACTOR_DO_REFUSE,            /* As ACTOR_DO_END; `text` says why it cannot be created. */
    ACTOR_DO_END                /* Report `status` and `text` to all who wait and to the daemon
                                   of the creator, and remove the entry. */
};

struct actor_action {
    enum actor_action_kind kind;        /* What the daemon has to do. */
    enum actor_reservation reservation; /* ACTOR_DO_RELEASE: what the store held until now. */
    tdm_status status; /* ACTOR_DO_END and ACTOR_DO_REFUSE: why the actor has ended. */
    /* Static, or borrowed from the event.  For actions on the worker: why it ends, or NULL to
     * keep the reason that was given before. */
    const char *text;
    /* Milliseconds until the timer expires, for actions that set it; 0 sets none, except for
     * ACTOR_DO_RESTART_LATER. */
    int64_t delay_ms;
};

/* To be carried out in this order.  An action that can end the actor at once, because it fails
 * or is answered immediately, is the last one. */
struct actor_actions {
    uint32_t count;                                 /* Number of actions. */
    struct actor_action entries[ACTOR_ACTIONS_MAX]; /* The actions; the first `count` are used. */
};

/* Handles one event: changes `lifecycle` and sets `actions_out`.  Every event may come in every
 * state; an event that means nothing in a state changes nothing and asks for no action. */
void tdm__actor_lifecycle_step(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                               struct actor_actions *actions_out);

/* "starting": the state as it is shown in lists and metrics, which know fewer states. */
const char *tdm__actor_state_text(enum actor_state state);
/* True if the actor runs, or is being started, on another node. */
bool tdm__actor_state_is_remote(enum actor_state state);
/* True if the actor holds a reservation of resources of this node. */
bool tdm__actor_lifecycle_holds_resources(const struct actor_lifecycle *lifecycle);
/* True if the end of the current worker is what the daemon wanted. */
bool tdm__actor_lifecycle_wants_worker_end(const struct actor_lifecycle *lifecycle);
/* True if another worker is started after ACTOR_ON_WORKER_ENDED with this event. */
bool tdm__actor_lifecycle_restarts(const struct actor_lifecycle *lifecycle,
                                   const struct actor_event *ended);
/* True if the actor runs on another node and is created again when that node is lost. */
bool tdm__actor_lifecycle_outlives_node(const struct actor_lifecycle *lifecycle,
                                        const struct actor_facts *facts);

#endif
