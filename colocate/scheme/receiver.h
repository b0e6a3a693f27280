/* receiver.h - the inside of tdm_weights_receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_RECEIVER_H
#define TDM_COLOCATE_SCHEME_RECEIVER_H

#include "colocate/scheme/model_buckets.h"
#include "colocate/scheme/transport.h"
#include "colocate/scheme/update_session.h"

#include <pthread.h>

/* One version's bytes. */
struct tdm__incoming_version {
    struct tdm__received_bucket *buckets; /* owned, buckets_count of the plan; NULL: none */
    uint64_t epoch;
    uint64_t version;
    int64_t deadline_ms;
};

/* Where a tensor lies in what arrives. */
struct tdm__bucket_location {
    uint32_t bucket;
    uint64_t offset; /* in bytes */
};

/* The thread that receives (the caller's, or `thread`) writes everything.  Under the mutex:
 * the gate and what `told` says; `serving` and `current` change while the gate is shut. */
struct tdm_weights_receiver {
    struct tdm__update_session session;
    struct tdm__member self;
    struct tdm_weights_tensor *tensors; /* owned, with their names */
    uint32_t tensors_count;
    int64_t timeout_ms;
    void (*on_version)(void *arg, uint64_t version);
    void *arg;

    tdm_actor *mailbox;                            /* owned; NULL before connect */
    const struct tdm__weight_transport *transport; /* NULL before connect */
    struct tdm__model_buckets model_buckets;       /* of the sender */
    struct tdm__bucket_location *tensor_locations; /* owned: of each tensor */
    bool background;                               /* a thread is to receive */
    bool announced;                                /* told the mailbox that it is here … */
    bool joined;                                   /* … and has its answer */
    tdm_collective_group *group;                   /* owned */
    uint64_t group_epoch;
    char last_offer_key[TDM__UPDATE_KEY_BYTES]; /* key of the last offer that was taken up */
    struct tdm__incoming_version incoming;      /* voted for, and its outcome not known yet */
    bool undecided;                             /* that it is so; under the mutex */
    uint64_t unreported_epoch;                  /* epoch whose flip is to be reported; 0: none */
    struct tdm__incoming_version serving;       /* what tensors without an address lie in */
    const void **tensor_addresses;              /* owned: of each tensor */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t readers_count;
    bool gate_is_shut; /* a version is going live: readers wait */
    uint64_t version;  /* served; 0: none */
    tdm_ref *next;     /* owned: the wait for the next offer */
    bool stopping;
    bool running; /* the background thread is to be joined */
    pthread_t thread;
    uint64_t reported_version; /* by tdm_weights_receive() */
    tdm_status failed;         /* what the background thread has to tell, once */
    char detail[512];

    tdm_weights_receiver *next_in_process;
};

/* Everything that is served, in the order of its own tensors, while a read is open. */
const struct tdm_weights_tensor *tdm__weights_receiver_tensors(const tdm_weights_receiver *receiver,
                                                               uint32_t *count_out);

#endif
