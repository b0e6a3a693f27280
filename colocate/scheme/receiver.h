/* receiver.h - the inside of tdm_weights_receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_RECEIVER_H
#define TDM_COLOCATE_SCHEME_RECEIVER_H

#include "colocate/scheme/carrier.h"
#include "colocate/scheme/contents.h"
#include "colocate/scheme/round.h"

#include <pthread.h>

/* One version's bytes. */
struct tdm__arrival {
    struct tdm__held *buckets; /* owned, buckets_count of the plan; NULL: none */
    uint64_t epoch;
    uint64_t version;
    int64_t deadline_ms;
};

/* Where a tensor lies in what arrives. */
struct tdm__place_in {
    uint32_t bucket;
    uint64_t offset; /* in bytes */
};

/* The thread that receives (the caller's, or `thread`) writes everything.  Under the mutex:
 * the gate and what `told` says; `serving` and `current` change while the gate is shut. */
struct tdm_weights_receiver {
    struct tdm__round round;
    struct tdm__member self;
    struct tdm_weights_tensor *tensors; /* owned, with their names */
    uint32_t tensors_count;
    int64_t timeout_ms;
    void (*on_version)(void *arg, uint64_t version);
    void *arg;

    tdm_actor *board;                   /* owned; NULL before connect */
    const struct tdm__carrier *carrier; /* NULL before connect */
    struct tdm__contents contents;      /* of the sender */
    struct tdm__place_in *places;       /* owned: of each tensor */
    bool background;                    /* a thread is to receive */
    bool announced;                     /* told the board that it is here … */
    bool joined;                        /* … and has its answer */
    tdm_group *group;                   /* owned */
    uint64_t group_epoch;
    char seen[TDM__ROUND_KEY_BYTES]; /* key of the last offer that was taken up */
    struct tdm__arrival arrival;     /* voted for, and its outcome not known yet */
    bool undecided;                  /* that it is so; under the mutex */
    uint64_t unreported;             /* epoch whose flip is to be reported; 0: none */
    struct tdm__arrival serving;     /* what tensors without an address lie in */
    const void **current;            /* owned: of each tensor */

    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint32_t readers_count;
    bool shut;        /* a version is going live: readers wait */
    uint64_t version; /* served; 0: none */
    tdm_ref *next;    /* owned: the wait for the next offer */
    bool stopping;
    bool running; /* the background thread is to be joined */
    pthread_t thread;
    uint64_t told;     /* by tdm_weights_receive() */
    tdm_status failed; /* what the background thread has to tell, once */
    char detail[512];

    tdm_weights_receiver *next_in_process;
};

/* Everything that is served, in the order of its own tensors, while a read is open. */
const struct tdm_weights_tensor *tdm__receiver_tensors(const tdm_weights_receiver *receiver,
                                                       uint32_t *count_out);

#endif
