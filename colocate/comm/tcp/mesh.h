/* mesh.h - a connection between every two ranks of a group, and chunks of data over them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_TCP_MESH_H
#define TDM_COLOCATE_COMM_TCP_MESH_H

#include "colocate/comm/collective_op.h"
#include "runtime/rpc/rpc.h"

#include <stddef.h>

/* A mesh has a loop and an endpoint of its own, so that its waits drive nothing but itself, and
 * one thread.  Strangers are the endpoint's business: who does not know the cluster's token
 * says nothing here; who knows it, but not the group's key, is refused.
 *
 * Data goes in chunks, each a call that is answered when the receiver has taken it; a few are
 * under way to a rank at a time, so nobody holds more of another's than that.
 *
 *   method      arguments                                         reply
 *   mesh.hello  key b, rank u                                     the first on a connection
 *   mesh.data   number u, kind u, root_or_dtype u, size u; the chunk    once taken
 *               is the tail
 *   mesh.end    number u, status i, text s                        ended, from that call on
 *   mesh.leave                                                    this rank leaves
 */
struct tdm__mesh;

enum { TDM__MESH_RANKS_MAX = 64, TDM__MESH_CHUNK_BYTES_MAX = 16 << 20 };

struct tdm__mesh_options {
    const struct tdm__rpc
        *identity_source; /* its identity and token are taken; borrowed for the call */
    const char *host;     /* where to listen */
    uint32_t rank;
    uint32_t ranks_count;
    int64_t timeout_ms; /* of the connecting, and of each call on the group */
};

/* Listens; nobody is let in before tdm__mesh_connect(). */
tdm_status tdm__mesh_listen(const struct tdm__mesh_options *options, struct tdm__mesh **mesh_out);
const char *tdm__mesh_address(const struct tdm__mesh *mesh);
/* Connects with all others, whose addresses are in the order of ranks; `key` is the group's.
 * Who is gone before it has come is not waited for, unless its address is NULL. */
tdm_status tdm__mesh_connect(struct tdm__mesh *mesh, const struct tdm__id *key,
                             const char *const *addresses);
/* Leaves; never blocks.  NULL is allowed. */
void tdm__mesh_destroy(struct tdm__mesh *mesh);

/* All ranks are in this call until finish.  The deadline counts from here. */
void tdm__mesh_op_begin(struct tdm__mesh *mesh, const struct tdm__collective_op *call);
/* All three: TDM_E_ABORTED, TDM_E_TIMEOUT, each naming the rank; TDM_E_INVAL if another rank is
 * in another call.  The group has then ended for all, and what ended it stays. */
tdm_status tdm__mesh_send(struct tdm__mesh *mesh, uint32_t to, const void *chunk,
                          size_t size_bytes);
tdm_status tdm__mesh_receive(struct tdm__mesh *mesh, uint32_t from, void *chunk, size_t size_bytes);
/* All that was sent has been taken. */
tdm_status tdm__mesh_op_finish(struct tdm__mesh *mesh);

/* TDM_OK while the group lives, else what ended it, also if that was in a call that this rank
 * has not begun; never blocks. */
tdm_status tdm__mesh_check(struct tdm__mesh *mesh);
/* Ends the group for all, naming this rank; never blocks. */
void tdm__mesh_abort(struct tdm__mesh *mesh);

#endif
