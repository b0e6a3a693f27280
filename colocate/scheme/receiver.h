/* receiver.h - the state of a tdm_weights_receiver. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_RECEIVER_H
#define TDM_COLOCATE_SCHEME_RECEIVER_H

#include "colocate/scheme/attachment.h"
#include "colocate/scheme/model_buckets.h"
#include "colocate/scheme/transport.h"
#include "colocate/scheme/update_session.h"
#include "colocate/weights/receiver.h"

#include <pthread.h>

/* A version that is being received or served, with its bytes. */
struct tdm__incoming_version {
    /* Buckets of the model's plan, in its order; NULL if absent. Owned. */
    struct tdm__received_bucket *buckets;
    struct tdm__attachment attached; /* Bytes of the offer of this version; owned. */
    uint64_t epoch;                  /* Epoch of the update. */
    uint64_t version;                /* Version number. */
    int64_t deadline_ms; /* When the update expires, in milliseconds of tdm__clock_ms(). */
    bool voted;          /* True from the vote for this version until its outcome is obeyed. */
};

/* What a receiver needs of the sender's offer of a version. */
struct tdm__version_offer {
    uint64_t version;           /* Version number that is offered; 0 if there is no offer. */
    uint64_t epoch;             /* Epoch of the update. */
    uint64_t group_epoch;       /* Epoch at which the collective group was or will be formed. */
    struct tdm__id sender_node; /* Node of the sender, at which the collective group is formed. */
    int64_t deadline_ms;        /* When the update expires, in milliseconds of tdm__clock_ms(). */
    uint32_t members_count;     /* Number of members of the update. */
    uint32_t self; /* Index of this receiver among the members; members_count if it is not one. */
};

/* A wanted tensor in the list that is searched by name. */
struct tdm__wanted_tensor {
    const char *name; /* Name of the tensor; borrowed from the receiver's list of tensors. */
    uint32_t index;   /* Index of the tensor in the receiver's list. */
};

/* A receiver of weights. The receiving thread (the caller's, or `thread`) writes all members. The
 * members from `readers_count` to `stopping`, `undecided`, `failed` and `detail` are protected by
 * the mutex. `serving`, `attached` and the tensors' contents change only while the gate is shut,
 * when no reader exists. */
struct tdm_weights_receiver {
    struct tdm__update_session session; /* Model and version record. */
    /* Receivers of the models of a set, in the order of their names; only this one if it receives
     * alone. The first of them is the caller's handle, has the background thread and owns the
     * others, whose list is empty. */
    tdm_weights_receiver *set[TDM__VERSION_SET_MAX];
    const tdm_weights_receiver *head; /* The first receiver of the set. */
    struct tdm__version_offer offer;  /* Offer that was read and not yet accepted or passed over. */
    struct tdm__member self;          /* This process as a member of updates. */
    /* Tensors that this process wants; the array and the names are owned. */
    struct tdm_weights_tensor *tensors;
    uint32_t tensors_count; /* Number of tensors. */
    uint32_t set_count;     /* Number of entries of `set`. */
    int64_t timeout_ms;     /* Timeout of connect in milliseconds. */
    /* Called after a version has gone live; NULL if the caller wants none. */
    void (*on_version)(void *arg, uint64_t version);
    void *arg; /* First argument of on_version. */

    tdm_actor *mailbox; /* Mailbox of the sender; NULL before connect. Owned. */
    /* Transport of the sender's scheme; NULL before connect. */
    const struct tdm__weight_transport *transport;
    struct tdm__model_buckets model_buckets; /* Manifest and buckets of the sender; owned. */
    /* Verifies what has been received and decides what is accepted, as in an engine of a job; NULL
     * before connect. Owned. */
    struct tdm__receiver *staging;
    struct tdm__wanted_tensor *wanted; /* The tensors, ordered by their names. Owned. */
    /* For each tensor where its bytes lie in the buckets of `incoming`; NULL before they come, and
     * if the scheme sends no bytes. Owned array. */
    const void **staged_addresses;
    bool background; /* True if a background thread is to receive. */
    bool announced;  /* True once the mailbox may know this receiver. */
    bool joined;     /* True once the mailbox has confirmed the join message. */
    /* True if this receiver has voted and failed to learn the outcome. Protected by the mutex. */
    bool undecided;
    /* Collective group of sender and receivers; NULL if none exists. Owned. */
    tdm_collective_group *group;
    uint64_t group_epoch; /* Epoch at which the group was formed; a part of its name. */
    char last_offer_key[TDM__UPDATE_KEY_BYTES]; /* Key of the last offer that was read. */
    /* Version that is being received, or that was voted for. */
    struct tdm__incoming_version incoming;
    /* Epoch whose flip the version record does not know yet; 0 if none exists. */
    uint64_t unreported_epoch;
    /* Buckets in which the served tensors without an address of their own lie. */
    struct tdm__incoming_version serving;
    struct tdm__attachment attached; /* Bytes attached to the served version; owned. */
    /* For each tensor the address of its served bytes. Owned array. */
    const void **tensor_addresses;

    pthread_mutex_t mutex; /* Protects the members below. */
    /* Signalled when readers leave, the gate opens, or the background thread has a result. */
    pthread_cond_t changed;
    uint32_t readers_count;    /* Number of open reads. */
    bool gate_is_shut;         /* True while a version goes live; new readers wait. */
    uint64_t version;          /* Served version; 0 if none exists. */
    tdm_ref *next;             /* Wait for the next offer; NULL if none exists. Owned. */
    bool stopping;             /* True once the receiver is being shut down. */
    bool running;              /* True while the background thread has to be joined. */
    pthread_t thread;          /* The background thread; valid while `running` is true. */
    uint64_t reported_version; /* Version that tdm_weights_receive() has returned last. */
    /* Failure of the background thread that has not been returned yet; TDM_OK if none exists. */
    tdm_status failed;
    char detail[512]; /* Error text of that failure. */

    /* Next receiver of this process; NULL at the end of the list. */
    tdm_weights_receiver *next_in_process;
};

/* Returns the tensors of the receiver in its own order, tensors_count of them. The receiver owns
 * them. */
const struct tdm_weights_tensor *tdm__weights_receiver_tensors(const tdm_weights_receiver *receiver,
                                                               uint32_t *count_out);

#endif
