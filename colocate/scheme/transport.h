/* transport.h - how a bucket gets from the sender to a receiver: one row for each scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_TRANSPORT_H
#define TDM_COLOCATE_SCHEME_TRANSPORT_H

#include <stdbool.h>
#include <tandem/collective.h>
#include <tandem/weights.h>

/* The way that the buckets of one update take. */
struct tdm__transport_context {
    tdm_runtime *runtime;
    tdm_actor *mailbox;
    tdm_collective_group *group; /* NULL unless the transport meets */
    uint64_t epoch;
    int64_t deadline_ms; /* on tdm__clock_ms() */
};

/* A bucket on the way out. */
struct tdm__outgoing_bucket {
    uint32_t bucket;
    void *image; /* not changed */
    size_t size_bytes;
    const uint64_t *sums; /* of each tensor of it */
    uint32_t sums_count;
};

/* A bucket that came: its memory stays until it is let go. */
struct tdm__received_bucket {
    tdm_ref *note;    /* owned: what `sums` lie in, and `data` unless one of the next two is it */
    tdm_ref *value;   /* owned */
    void *copy;       /* owned */
    const void *data; /* aligned to 8 bytes */
    const uint64_t *sums; /* so many as the bucket has tensors */
};
void tdm__received_bucket_fini(struct tdm__received_bucket *received);

/* Both block until the deadline at most.  They leave the sums to their callers. */
struct tdm__weight_transport {
    const char *name;
    bool uses_group;       /* sender and receivers join a group first */
    bool starts_receivers; /* the sender makes the receivers' actors receive */
    /* Both NULL: there are no buckets. */
    tdm_status (*send_bucket)(const struct tdm__transport_context *context,
                              const struct tdm__outgoing_bucket *outgoing_bucket);
    /* `wanted` says what is to come.  TDM_E_PROTOCOL for a bucket of another size. */
    tdm_status (*receive_bucket)(const struct tdm__transport_context *context,
                                 const struct tdm__outgoing_bucket *wanted,
                                 struct tdm__received_bucket *held_out);
};

/* NULL for an unknown scheme. */
const struct tdm__weight_transport *tdm__weight_transport_of_scheme(enum tdm_weights_scheme scheme);

#endif
