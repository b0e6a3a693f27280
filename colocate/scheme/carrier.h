/* carrier.h - how a bucket gets from the sender to a receiver: one row for each scheme. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_CARRIER_H
#define TDM_COLOCATE_SCHEME_CARRIER_H

#include <stdbool.h>
#include <tandem/group.h>
#include <tandem/weights.h>

/* The way that the buckets of one update take. */
struct tdm__way {
    tdm_runtime *runtime;
    tdm_actor *board;
    tdm_group *group; /* NULL unless the carrier meets */
    uint64_t epoch;
    int64_t deadline_ms; /* on tdm__clock_ms() */
};

/* A bucket on the way out. */
struct tdm__parcel {
    uint32_t bucket;
    void *image; /* not changed */
    size_t size_bytes;
    const uint64_t *sums; /* of each tensor of it */
    uint32_t sums_count;
};

/* A bucket that came: its memory stays until it is let go. */
struct tdm__held {
    tdm_ref *note;  /* owned: what `sums` lie in, and `data` unless one of the next two is it */
    tdm_ref *value; /* owned */
    void *copy;     /* owned */
    const void *data;     /* aligned to 8 bytes */
    const uint64_t *sums; /* so many as the bucket has tensors */
};
void tdm__held_fini(struct tdm__held *held);

/* Both block until the deadline at most.  They leave the sums to their callers. */
struct tdm__carrier {
    const char *name;
    bool meets; /* sender and receivers join a group first */
    bool calls; /* the sender makes the receivers' actors receive */
    /* Both NULL: there are no buckets. */
    tdm_status (*give)(const struct tdm__way *way, const struct tdm__parcel *parcel);
    /* `wanted` says what is to come.  TDM_E_PROTOCOL for a bucket of another size. */
    tdm_status (*take)(const struct tdm__way *way, const struct tdm__parcel *wanted,
                       struct tdm__held *held_out);
};

/* NULL for an unknown scheme. */
const struct tdm__carrier *tdm__carrier_of(enum tdm_weights_scheme scheme);

#endif
