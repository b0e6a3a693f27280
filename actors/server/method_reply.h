/* method_reply.h - the reply to a call, and the copy that is cached for repeated calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_SERVER_METHOD_REPLY_H
#define TDM_ACTORS_SERVER_METHOD_REPLY_H

#include "actors/objects/large_value.h"

#include <stdbool.h>
#include <sys/queue.h>

/* The reply to one call: a value, or a failure. All pointers are borrowed. */
struct tdm__method_reply {
    tdm_status status;  /* TDM_OK for a value, else the failure. */
    const char *detail; /* Message of a failure; unused for a value. */
    /* The value as a packed array, if `large` is NULL; of a failure the values that it carries,
     * empty if it carries none. */
    struct tdm_bytes packed;
    /* The value of the reply in shared memory; NULL if the value is in `packed`. */
    struct tdm__large *large;
    /* References in the value that pass to the caller; NULL if absent. */
    struct tdm__passed_refs *passed;
    const int *fds;     /* File descriptors that are sent with the reply. */
    uint32_t fds_count; /* Number of entries in `fds`. */
};

/* A copy of a reply, with duplicates of its descriptors. It retains the large value and the passed
 * references, so that the references stay valid while the copy may be sent. */
struct tdm__cached_reply {
    /* Entry in the list of cached replies of a client session. */
    TAILQ_ENTRY(tdm__cached_reply) link;
    uint64_t sequence;              /* Sequence number of the call; 0 until the session sets it. */
    size_t size_bytes;              /* Bytes of memory that the cached reply occupies. */
    struct tdm__method_reply reply; /* The copied reply, whose pointers lead into this copy. */
    /* Duplicated descriptors, owned; the packed value or the detail lies behind them. */
    int fds[];
};

/* Error detail of a repeated call whose stream was cut off with the connection. */
#define TDM__STREAM_BROKEN "a stream ends with its connection"

/* Returns the reply that a repeated call from a process on node `node` shall get. The stream of a
 * lost connection may have lost items, so it fails. A large value need not be kept for a caller on
 * this node, because its connection ends only with one of the two processes. */
const struct tdm__method_reply *tdm__method_reply_for_cache(const struct tdm__method_reply *reply,
                                                            bool is_stream,
                                                            const struct tdm__id *node);
/* Creates a copy of a reply, which the caller owns. Fails with TDM_E_NOMEM, or if a descriptor
 * cannot be duplicated. */
tdm_status tdm__cached_reply_create(const struct tdm__method_reply *reply,
                                    struct tdm__cached_reply **cached_out);
/* Frees the copy of a reply, closes its descriptors and releases the large value and the passed
 * references. NULL is allowed. */
void tdm__cached_reply_destroy(struct tdm__cached_reply *cached);
/* Sends the reply and frees `incoming`. Sends a failure if the references in the reply have been
 * released. */
void tdm__method_reply_send(const struct tdm__method_reply *reply,
                            struct tdm__incoming_call *incoming);

#endif
