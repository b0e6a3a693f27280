/* sender.h - the inside of tdm_weights_sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_SENDER_H
#define TDM_COLOCATE_SCHEME_SENDER_H

#include "colocate/scheme/model_buckets.h"
#include "colocate/scheme/transport.h"
#include "colocate/scheme/update_session.h"

#include <pthread.h>

enum { TDM__SENDER_DETAIL_BYTES = 512 };

/* Who takes part in a send, and who is known to be gone. */
struct tdm__membership {
    struct tdm__member members[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t members_count;
    struct tdm__member dead[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t dead_count;
};

/* One thread at a time: the caller's, or the one of a send under way. */
struct tdm_weights_sender {
    struct tdm__update_session session;
    enum tdm_weights_scheme scheme;
    const struct tdm__weight_transport *transport; /* a test may put another one in its place */
    struct tdm__model_buckets model_buckets;       /* owned, like what follows */
    const void **addresses;         /* of each tensor; filled at each send of a relay */
    void *image;                    /* of the bucket on its way */
    uint64_t *sums;                 /* of all tensors */
    tdm_weights_receiver *relay_of; /* borrowed; NULL: no relay */
    tdm_actor **modules;            /* the handles borrowed */
    tdm_ref **modules_refs;         /* their call under way; NULL: none yet */
    uint32_t modules_count;
    uint32_t receivers_count;
    int64_t timeout_ms;

    tdm_actor *mailbox; /* NULL before connect */
    struct tdm__membership membership;
    tdm_collective_group *group;       /* of transports that meet */
    struct tdm__member *group_members; /* who is in it */
    uint32_t group_members_count;
    uint64_t group_epoch;   /* when it met: its name */
    uint64_t epoch;         /* of the latest update begun */
    uint64_t version_begun; /* its number in the record */
    bool undecided;         /* that update */
    bool relay_open;        /* relay_of is being read */

    pthread_t thread;
    bool sending; /* the thread is to be joined */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool sent; /* guarded by the mutex, like the next three */
    tdm_status outcome;
    char detail[TDM__SENDER_DETAIL_BYTES];
    uint64_t version;
};

#endif
