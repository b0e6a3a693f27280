/* transport.h - how buckets get from the sender to a receiver, one entry per scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_TRANSPORT_H
#define TDM_COLOCATE_SCHEME_TRANSPORT_H

#include <stdbool.h>
#include <tandem/collective.h>
#include <tandem/weights.h>

/* What transports need to know of the update whose buckets they carry. It lives on the stack of a
 * send or a receive; all pointers are borrowed. */
struct tdm__transport_context {
    tdm_runtime *runtime; /* Runtime of this process. */
    tdm_actor *mailbox;   /* Mailbox of the sender. */
    /* Collective group of the sender and its receivers; NULL unless the transport uses a group. */
    tdm_collective_group *group;
    uint64_t epoch;      /* Epoch of the update. */
    int64_t deadline_ms; /* When sending and receiving fail, in milliseconds of tdm__clock_ms(). */
};

/* A bucket that is sent. All pointers are borrowed. */
struct tdm__outgoing_bucket {
    uint32_t bucket;   /* Index of the bucket in the plan. */
    void *image;       /* Contents of the bucket, which transports do not change. */
    size_t size_bytes; /* Size of the contents in bytes, a multiple of 8. */
    /* Encoded tensor handles of the bucket, with a checksum of each tensor. */
    struct tdm_bytes description;
};

/* A bucket that a receiver waits for. */
struct tdm__wanted_bucket {
    uint32_t bucket;   /* Index of the bucket in the plan. */
    size_t size_bytes; /* Size of the contents in bytes, a multiple of 8. */
};

/* A bucket that was received. Its memory stays until tdm__received_bucket_fini(). */
struct tdm__received_bucket {
    /* Message of the bucket. It contains `description`, and `data` if the next two members are
     * NULL. Owned. */
    tdm_ref *message;
    /* Object that contains `data`; NULL unless the scheme sends by reference. Owned. */
    tdm_ref *value;
    void *copy;       /* Memory that contains `data`; NULL unless the scheme broadcasts. Owned. */
    const void *data; /* Contents of the bucket, aligned to 8 bytes. */
    struct tdm_bytes description; /* Encoded tensor handles of the bucket, from the sender. */
};
/* Releases what the bucket owns. */
void tdm__received_bucket_fini(struct tdm__received_bucket *received);

/* The functions with which one scheme carries buckets. Both block until the deadline at most. They
 * carry the description but do not look into it. */
struct tdm__weight_transport {
    const char *name;      /* Name of the scheme in messages. */
    const char *torchrl;   /* Name of the corresponding class of TorchRL. */
    bool uses_group;       /* True if sender and receivers join a collective group first. */
    bool starts_receivers; /* True if the sender calls its module actors to make them receive. */
    /* Sends one bucket to all receivers; NULL if the scheme sends no bytes. */
    tdm_status (*send_bucket)(const struct tdm__transport_context *context,
                              const struct tdm__outgoing_bucket *outgoing_bucket);
    /* Receives one bucket; NULL if the scheme sends no bytes. `wanted` has the expected index and
     * size. Returns TDM_E_PROTOCOL for a bucket of another size. */
    tdm_status (*receive_bucket)(const struct tdm__transport_context *context,
                                 const struct tdm__wanted_bucket *wanted,
                                 struct tdm__received_bucket *received_out);
};

/* Returns the transport of a scheme, or NULL for an unknown scheme. */
const struct tdm__weight_transport *tdm__weight_transport_of_scheme(enum tdm_weights_scheme scheme);

#endif
