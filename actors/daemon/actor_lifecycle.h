/* actor_lifecycle.h - the states of an actor in a daemon's table, as a pure state machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_ACTOR_LIFECYCLE_H
#define TDM_ACTORS_DAEMON_ACTOR_LIFECYCLE_H

#include <stdbool.h>
#include <stdint.h>
#include <tandem/error.h>

struct tdm__rpc_reply;

enum {
    /* Milliseconds that a worker which was told to exit gets before it is killed. */
    LEAVE_MS = 5000,
    /* Milliseconds that a worker gets to execute the calls it was sent and to exit, before it is
     * killed. */
    DRAIN_MS = 30000,
    ACTOR_ACTIONS_MAX = 4 /* Largest number of actions that one event can cause. */
};

enum actor_state {
    /* The actor is in the daemon's table, and no event has been handled. */
    ACTOR_NEW,
    /* The store has been asked to reserve the actor's resources and name. */
    ACTOR_PLACING,
    /* The actor's name is taken, and the actor that holds the name is looked up. */
    ACTOR_FINDING_HOLDER,
    /* The actor waits for resources, its name, or its constructor's arguments. */
    ACTOR_WAITING,
    /* A worker process exists, and the actor's constructor has not returned. */
    ACTOR_STARTING,
    /* The actor's constructor failed, and the worker process still exists. */
    ACTOR_CONSTRUCTOR_FAILED,
    ACTOR_ALIVE,           /* The actor is constructed, and its worker executes calls. */
    ACTOR_RESTARTING,      /* The worker died, and a timer will start the next one. */
    ACTOR_ENDING,          /* The worker still exists and is not replaced by another. */
    ACTOR_REMOTE_STARTING, /* Another daemon has been asked to start the actor. */
    /* The connection to the other daemon ended before its reply to the request to start the actor.
     */
    ACTOR_REMOTE_UNSURE,
    ACTOR_REMOTE, /* The actor runs on another node. */
    /* The other daemon failed to start the actor, but a request to end it is still pending there.
     */
    ACTOR_REMOTE_REFUSED,
    ACTOR_ENDED, /* The actor has ended and has left the daemon's table. */
    /* The actor has left the daemon's table, and another daemon records its end. */
    ACTOR_ENDED_ELSEWHERE
};

/* Whether the actor is still needed.  The value only grows, except that ACTOR_STOP_REQUESTED and
 * ACTOR_END_REQUESTED fall back to ACTOR_UNWANTED when the other daemon replies. */
enum actor_demand {
    ACTOR_WANTED,   /* The actor is needed. */
    ACTOR_RELEASED, /* The last handle is gone: the actor ends after its calls. */
    ACTOR_UNWANTED, /* The actor must end. */
    /* The actor must end, and the node on which it runs has been asked to end it gracefully. */
    ACTOR_STOP_REQUESTED,
    /* The actor must end, and the node on which it runs has been asked to end it at once. */
    ACTOR_END_REQUESTED
};

/* What the cluster's store holds for the actor: its resources and its name. */
enum actor_reservation {
    ACTOR_RESERVES_NOTHING, /* The store holds nothing for the actor. */
    /* The store may hold a reservation: a reply of the store, or a node, was lost. */
    ACTOR_RESERVES_UNKNOWN,
    ACTOR_RESERVES, /* The store holds a reservation for the actor. */
    /* The store may have lost the record of the actor's reservation. */
    ACTOR_RESERVATION_LOST,
    /* The daemon writes the lost record of the actor's reservation into the store again. */
    ACTOR_RESERVATION_REWRITTEN,
};

/* Why the daemon killed the actor's current worker, if it did. */
enum actor_kill {
    ACTOR_NOT_KILLED, /* The daemon has not killed the actor's current worker. */
    /* The daemon killed the worker, and the next one may start on the same resources. */
    ACTOR_KILLED,
    /* The daemon killed the worker because the node's lease ends; the next one needs a new
     * reservation, which the daemon of the creator makes for a guest. */
    ACTOR_KILLED_WITHOUT_LEASE,
};

/* State of an actor in its state machine. It is a value, copied by assignment; all zeros is a new
 * actor. */
struct actor_lifecycle {
    enum actor_state state;             /* What the actor does now. */
    enum actor_demand demand;           /* Whether the actor is still needed. */
    enum actor_reservation reservation; /* What the cluster's store holds for the actor. */
    /* Why the daemon killed the actor's current worker, if it did. */
    enum actor_kill kill;
    /* Number of workers that the actor had before the current one. */
    uint32_t incarnation;
    /* Number of the actor's workers in a row that died soon after their start. */
    uint32_t quick_end_count;
};

/* What each event tells the state machine about the actor and its node. */
struct actor_facts {
    int32_t max_restarts; /* How often the actor may be restarted; -1 for no limit. */
    bool has_group;       /* True if the actor's resources belong to a placement group. */
    bool is_detached;     /* True if the actor outlives its creator and its handles. */
    bool is_guest;        /* True if the actor's creator is on another node. */
    /* True if other nodes may claim the actor's name, GPUs or restarts when this node's lease ends.
     */
    bool is_claimable;
    /* True if the creator accepts the actor that already has the name (get_if_exists). */
    bool takes_name_holder;
    /* True if the creator has not sent the constructor's arguments yet. */
    bool awaits_creator_arguments;
    /* True while the store has not taken back earlier resources of the actor, or its name. */
    bool is_releasing;
    bool node_is_stopping; /* True if the daemon ends: no worker is started any more. */
    /* True if this node lost its lease recently; other nodes may not have joined again yet. */
    bool lease_was_lost_recently;
};

enum actor_event_kind {
    ACTOR_ON_CREATE, /* A process of this node asks for the actor. */
    /* Another daemon reserved resources of this node for the start of incarnation `incarnation` of
     * the actor. */
    ACTOR_ON_START_HERE,
    ACTOR_ON_ARGUMENTS, /* The arguments of the constructor have arrived. */
    /* The constructor's arguments will not arrive; `detail` says why. */
    ACTOR_ON_ARGUMENTS_FAILED,
    ACTOR_ON_RETRY,              /* Resources for which the actor waits may have come free. */
    ACTOR_ON_RESERVED_HERE,      /* The store has reserved resources of this node. */
    ACTOR_ON_RESERVED_ELSEWHERE, /* The store has reserved resources of another node. */
    /* The store has not reserved resources or the name: `status`, `detail`. */
    ACTOR_ON_NOT_RESERVED,
    ACTOR_ON_HOLDER_FOUND, /* The creator has been told which actor holds the name. */
    /* No holder of the name was found: `status`, `detail`; TDM_E_NOT_FOUND: the name is free. */
    ACTOR_ON_HOLDER_NOT_FOUND,
    ACTOR_ON_WORKER_FAILED,      /* The worker process cannot be started: `detail`. */
    ACTOR_ON_CONSTRUCTED,        /* The actor's constructor has returned. */
    ACTOR_ON_CONSTRUCTOR_FAILED, /* The actor's constructor has failed: `detail`. */
    ACTOR_ON_EXIT,               /* The worker has announced that it will exit by itself. */
    ACTOR_ON_SILENCE,            /* The worker has not answered a ping in time: `detail`. */
    ACTOR_ON_WORKER_ENDED,       /* The kernel has reported the end of the worker:
                                    `exited_normally`, `lifetime_ms`, `detail`. */
    ACTOR_ON_TIMER,              /* The actor's timer has expired; an action had set it. */
    ACTOR_ON_LAST_HANDLE_GONE,   /* No handle to the actor is left. */
    ACTOR_ON_END,                /* The actor is asked to end gracefully, without a restart. */
    ACTOR_ON_KILL,               /* The actor is asked to end at once, without a restart. */
    ACTOR_ON_KILL_WORKER,        /* The worker is to be killed; the actor may be restarted. */
    ACTOR_ON_STARTED_ELSEWHERE,  /* The other daemon has started the actor: `reply`. */
    /* The other daemon has not started the actor: `status`, `detail`, `reply`. TDM_E_NODE_LOST and
     * TDM_E_STORE: the outcome is unknown. TDM_E_AGAIN: the other node has no lease now.
     * TDM_E_NO_RESOURCES: the other node cannot hold the actor. */
    ACTOR_ON_REFUSED_ELSEWHERE,
    /* Reply to ACTOR_DO_END_ELSEWHERE or ACTOR_DO_STOP_ELSEWHERE: `status`, `detail`. */
    ACTOR_ON_END_REPLY,
    /* The other daemon reports that the actor has ended: `status`, `detail`. */
    ACTOR_ON_ENDED_ELSEWHERE,
    /* The other daemon reports that no process of the actor is left, because the lease of its node
     * has ended: `detail`. */
    ACTOR_ON_FENCED_ELSEWHERE,
    ACTOR_ON_NODE_SEEN, /* The node on which the actor runs still has its lease. */
    /* The node on which the actor runs has lost its lease: `detail`. */
    ACTOR_ON_NODE_LOST,
    ACTOR_ON_CREATOR_NODE_LOST, /* The node of the creator has lost its lease. */
    ACTOR_ON_DISOWNED,          /* The creator's daemon has given the actor up: `detail`. */
    ACTOR_ON_LEASE_ENDING,      /* The lease of this node ends: `detail`. */
    ACTOR_ON_RECORD_LOST,       /* The store may have lost the record of the actor. */
    /* The actor's lost record can be written into the store again now. */
    ACTOR_ON_REWRITE_DUE,
    /* Writing the actor's lost record again has succeeded or failed: `status`, `is_overdue`,
     * `detail`. */
    ACTOR_ON_REWRITTEN,
    ACTOR_EVENTS_COUNT /* Number of kinds of events, not an event. */
};

/* An event for the state machine. Only the members that enum actor_event_kind names for `kind` are
 * read, besides `facts`. */
struct actor_event {
    enum actor_event_kind kind; /* What has happened to the actor. */
    struct actor_facts facts;   /* Facts about the actor and its node at the time of the event. */
    tdm_status status;          /* Outcome of a request, which the event reports. */
    /* Error text or reason that the event reports, borrowed; actions point to it. */
    const char *detail;
    /* The other daemon's reply to the request to start the actor, borrowed; passed on unread. */
    const struct tdm__rpc_reply *reply;
    /* Number of workers that other nodes have started for the actor. */
    uint32_t incarnation;
    int64_t lifetime_ms;  /* Milliseconds that the ended worker existed. */
    bool exited_normally; /* True if the exit status of the ended worker is 0. */
    /* True if the actor's record has been missing in the store for too long. */
    bool is_overdue;
};

enum actor_action_kind {
    ACTOR_DO_RESERVE, /* Ask the store to reserve the actor's resources and name. */
    /* Give the actor's resources and name back to the store; `reservation` says what the store
     * holds. */
    ACTOR_DO_RELEASE,
    ACTOR_DO_FIND_HOLDER,  /* Look up the actor that holds the wanted name. */
    ACTOR_DO_EXPLAIN_WAIT, /* Remember what the actor waits for: `text`, maybe "". */
    ACTOR_DO_START_WORKER, /* Start a worker on the reserved resources. */
    /* Set the actor's timer to `delay_ms`; when it expires, the next worker is started. */
    ACTOR_DO_RESTART_LATER,
    /* Reply to the calls that wait for the actor's start: with the reply of the event, or else with
     * the actor's description. */
    ACTOR_DO_ANSWER_WAITERS,
    /* Ask the actor's worker to exit after it has executed the calls that it was sent. */
    ACTOR_DO_DRAIN_WORKER,
    ACTOR_DO_STOP_WORKER,     /* Ask the actor's worker to exit; its queued calls fail. */
    ACTOR_DO_EXPECT_EXIT,     /* Expect the worker to exit without being asked. */
    ACTOR_DO_KILL_WORKER,     /* Send SIGKILL to the actor's worker. */
    ACTOR_DO_START_ELSEWHERE, /* Ask the daemon of the reserved node to start the actor. */
    ACTOR_DO_END_ELSEWHERE,   /* Ask the daemon of the actor's node to end the actor at once. */
    ACTOR_DO_STOP_ELSEWHERE,  /* Ask the daemon of the actor's node to end the actor gracefully. */
    /* Ask the daemon of the actor's node to end at once an actor that it was asked to end already;
     * the reply to the earlier request is the one that counts. */
    ACTOR_DO_HURRY_ELSEWHERE,
    /* Tell the daemon of the actor's node that the last handle is gone. */
    ACTOR_DO_RELEASE_ELSEWHERE,
    ACTOR_DO_REWRITE_RECORD, /* Write the actor's lost record into the store again. */
    /* As ACTOR_DO_END, for an actor that cannot be created; `text` says why. */
    ACTOR_DO_REFUSE,
    /* Report `status` and `text` to all waiting calls and to the daemon of the creator, and remove
     * the actor from the table. */
    ACTOR_DO_END
};

struct actor_action {
    enum actor_action_kind kind; /* What the daemon has to do for the actor. */
    /* For ACTOR_DO_RELEASE: what the store held for the actor until now. */
    enum actor_reservation reservation;
    /* For ACTOR_DO_END and ACTOR_DO_REFUSE: status with which calls of the actor fail. */
    tdm_status status;
    /* Reason to report, static or borrowed from the event. For actions on the worker: why the
     * worker ends, or NULL to keep the reason that was given before. */
    const char *text;
    /* Milliseconds until the actor's timer expires, for actions that set the timer; 0 leaves it
     * alone, except for ACTOR_DO_RESTART_LATER. */
    int64_t delay_ms;
};

/* Actions that one event causes, to be carried out in this order. An action that can end the actor
 * at once, because it fails or is answered immediately, is the last one. */
struct actor_actions {
    uint32_t count;                                 /* Number of actions in `entries`. */
    struct actor_action entries[ACTOR_ACTIONS_MAX]; /* The actions; the first `count` are used. */
};

/* Handles one event of an actor: changes the actor's state `lifecycle` and sets `actions_out`.
 * Every event may come in every state; an event that means nothing in a state changes nothing and
 * asks for no action. */
void tdm__actor_lifecycle_step(struct actor_lifecycle *lifecycle, const struct actor_event *event,
                               struct actor_actions *actions_out);

/* Returns the text of a state for lists and metrics, such as "starting"; several states share a
 * text. */
const char *tdm__actor_state_text(enum actor_state state);
/* True if the actor runs, or is being started, on another node. */
bool tdm__actor_state_is_remote(enum actor_state state);
/* True if the actor holds a reservation of resources of this node. */
bool tdm__actor_lifecycle_holds_resources(const struct actor_lifecycle *lifecycle);
/* True if the daemon itself has asked the actor's current worker to end, or killed it. */
bool tdm__actor_lifecycle_wants_worker_end(const struct actor_lifecycle *lifecycle);
/* True if the actor gets another worker after `ended`, an event ACTOR_ON_WORKER_ENDED. */
bool tdm__actor_lifecycle_restarts(const struct actor_lifecycle *lifecycle,
                                   const struct actor_event *ended);
/* True if the actor runs on another node and is created again when that node is lost. */
bool tdm__actor_lifecycle_outlives_node(const struct actor_lifecycle *lifecycle,
                                        const struct actor_facts *facts);

#endif
