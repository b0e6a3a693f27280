/* sender.h - the state of a tdm_weights_sender. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_SENDER_H
#define TDM_COLOCATE_SCHEME_SENDER_H

#include "colocate/scheme/attachment.h"
#include "colocate/scheme/model_buckets.h"
#include "colocate/scheme/transport.h"
#include "colocate/scheme/update_session.h"

#include <pthread.h>

/* Size in bytes of an error text that a sender keeps. */
enum { TDM__SENDER_DETAIL_BYTES = 512 };

/* The receivers that take part in an update, and those that are known to be dead. */
struct tdm__membership {
    struct tdm__member members[TDM_WEIGHTS_RECEIVERS_MAX]; /* Living receivers. */
    uint32_t members_count;                                /* Number of living receivers. */
    /* Receivers that have shut down or were fenced. */
    struct tdm__member dead[TDM_WEIGHTS_RECEIVERS_MAX];
    uint32_t dead_count; /* Number of dead receivers. */
};

/* A sender of weights. One thread at a time uses it: the caller's, or that of an asynchronous send.
 * Only the members after `mutex` are shared between both. */
struct tdm_weights_sender {
    struct tdm__update_session session; /* Model and version record. */
    /* Senders of the models that are committed together, in the order of their names; only this one
     * if it sends alone. The first of them is the caller's handle, and owns the others. The others
     * have an empty list. */
    tdm_weights_sender *set[TDM__VERSION_SET_MAX];
    uint32_t set_count;             /* Number of entries of `set`. */
    enum tdm_weights_scheme scheme; /* Scheme of the sender's options. */
    /* Transport of the scheme; a test may replace it. */
    const struct tdm__weight_transport *transport;
    struct tdm__model_buckets model_buckets; /* Manifest and buckets of the model; owned. */
    /* Address of each tensor; for a relay they are set at each send. Owned array. */
    const void **addresses;
    void *image;                        /* Contents of the bucket that is being sent; owned. */
    void *description;                  /* Encoded tensor handles of that bucket; owned. */
    struct tdm__tensor_record *records; /* Room for the records of its tensors; owned. */
    uint64_t *sums;                     /* Checksum of each tensor of the manifest; owned. */
    struct tdm__attachment attached;    /* Bytes that each version carries; owned. */
    struct tdm__id node;                /* ID of this process's node. */
    /* Receiver whose version a relay sends on; NULL if the sender is not a relay. Borrowed. */
    tdm_weights_receiver *relay_of;
    /* Handles of the module actors; the array is owned, the handles are borrowed. */
    tdm_actor **modules;
    /* For each module the reference of its running receive call; NULL if none exists. Owned. */
    tdm_ref **modules_refs;
    uint32_t modules_count;   /* Number of modules. */
    uint32_t receivers_count; /* Number of receivers for which connect waits. */
    int64_t timeout_ms;       /* Timeout of connect and send in milliseconds. */

    tdm_actor *mailbox;                /* Mailbox of this sender; NULL before connect. Owned. */
    struct tdm__membership membership; /* Receivers of the latest update. */
    /* Collective group of sender and receivers; NULL if none exists. Owned. */
    tdm_collective_group *group;
    struct tdm__member *group_members; /* Receivers that are in the group. Owned array. */
    uint32_t group_members_count;      /* Number of receivers in the group. */
    uint64_t group_epoch;   /* Epoch at which the group was formed; a part of its name. */
    uint64_t epoch;         /* Epoch of the latest update that was begun; 0 if none exists. */
    uint64_t version_begun; /* Version number that this update got in the record. */
    bool undecided;         /* True while the outcome of this update is not known. */
    bool relay_open;        /* True while a read of `relay_of` is open. */

    pthread_t thread; /* Thread of an asynchronous send; valid while `sending` is true. */
    bool sending;     /* True from the start of an asynchronous send until its thread is joined. */
    pthread_mutex_t mutex;  /* Protects the members after `changed`. */
    pthread_cond_t changed; /* Condition that is signalled when an asynchronous send ends. */
    bool sent;              /* True if the asynchronous send has ended. */
    tdm_status outcome;     /* Result of the asynchronous send. */
    char detail[TDM__SENDER_DETAIL_BYTES]; /* Error text of that result. */
    uint64_t version;                      /* Version that the asynchronous send has sent. */
};

#endif
