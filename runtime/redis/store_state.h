/* store_state.h - the state of a store in Redis; only store.c uses it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_REDIS_STORE_STATE_H
#define TDM_REDIS_STORE_STATE_H

#include "runtime/redis/command.h"
#include "runtime/redis/commit_session.h"
#include "runtime/redis/connection.h"
#include "runtime/redis/subscription.h"
#include "runtime/store/completion.h"
#include "runtime/store/watchers.h"

#include <sys/queue.h>

/* What an operation on the Redis server calls: a Lua function, or a command. */
enum operation_kind {
    OPERATION_READ,    /* The Lua function that reads records. */
    OPERATION_COMMIT,  /* The Lua function that commits writes. */
    OPERATION_RENEW,   /* The Lua function that renews the lease of a member. */
    OPERATION_SESSION, /* The Lua function that opens a session for commits. */
    OPERATION_WAIT,    /* WAIT, which counts the replicas that have what was written. */
    OPERATION_LOAD     /* FUNCTION LOAD, which loads the library of Lua functions. */
};

/* One command for the Redis server. It is in exactly one of the store's lists. */
struct operation {
    TAILQ_ENTRY(operation) entry; /* Links the operation into one of the store's lists. */
    struct redis_store *redis;    /* Store that owns the operation. */
    enum operation_kind kind;     /* What the operation calls on the server. */
    /* Position of the operation in the order of requests, from 1; 0 for renewals, which come first.
     */
    uint64_t sequence;
    struct tdm__redis_numbered_commit numbered; /* Number of a commit while it is sent. */
    /* Result to report to the user of the store (owned); NULL once it is reported, and for FUNCTION
     * LOAD and the opening of a session. */
    struct tdm__store_completion *completion;
    struct tdm__redis_command command; /* Encoded command of the operation. */
    /* Time at which the operation fails or, if the server refused it, its error is reported; in
     * milliseconds on CLOCK_MONOTONIC. */
    int64_t deadline_ms;
    /* Time at which the command was last sent, in milliseconds on CLOCK_MONOTONIC. */
    int64_t sent_ms;
    uint32_t sends_count; /* Number of times that the command was sent. */
    /* Number of replicas that WAIT wants; 0 for other operations. */
    uint32_t replicas_count;
    /* Error reply of the server (owned), only while the operation is in `refused`; else NULL. */
    char *refusal;
};

/* Largest number of different missing rights that a store logs. */
enum { TDM__REDIS_LOGGED_REFUSALS_MAX = 8 };

/* A list of operations of a store. */
TAILQ_HEAD(operation_list, operation);

/* A store in a Redis server. The user of the store owns it. */
struct redis_store {
    /* The store as its users see it; first field, because pointers to it are cast to this
     * structure. */
    struct tdm__store store;
    struct tdm__loop *loop;            /* Event loop on which the store runs (borrowed). */
    struct tdm__redis_address address; /* Address of the Redis server. */
    /* The master that sentinels have named for the last connection; "" without any. */
    struct tdm__redis_host master;
    /* Beginnings of the replies of the server that were logged because the user of Redis lacks a
     * right. */
    char logged_refusals[TDM__REDIS_LOGGED_REFUSALS_MAX][160];
    uint32_t logged_refusals_count;               /* Number of entries of `logged_refusals`. */
    char key_prefix[TDM__REDIS_KEY_PREFIX_BYTES]; /* Prefix of all keys of the cluster. */
    struct tdm__redis_connection *connection; /* Connection to the server for commands (owned). */
    /* Subscription to the keys of changed records (owned); NULL before the first watcher. */
    struct tdm__redis_subscription *subscription;
    /* Queue of results that wait to be reported by the loop (owned). */
    struct tdm__store_completions *completions;
    struct tdm__watchers watchers; /* Watchers and the key prefixes that they watch. */
    struct operation_list waiting; /* Operations to be sent, by sequence. */
    /* Operations that were sent and have no reply, by the time of sending. */
    struct operation_list sent;
    /* Operations whose error reply is not reported yet, by the time of reporting. */
    struct operation_list refused;
    uint64_t last_sequence; /* `sequence` of the newest operation; 0 before the first. */
    bool loading;           /* Whether FUNCTION LOAD is in progress. */
    struct tdm__redis_commit_session session; /* Session and numbers of the store's commits. */
    /* Callback at each new connection, or NULL. */
    void (*connected)(void *arg);
    void *connected_arg;      /* First argument of `connected`. */
    struct tdm__timer *timer; /* Timer of the next deadline of an operation (owned). */
    /* Time for which `timer` is set, not later than the next deadline, in milliseconds on
     * CLOCK_MONOTONIC; TDM__NEVER if it is not set. */
    int64_t timer_ms;
};

#endif
