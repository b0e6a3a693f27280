/* mesh.h - a TCP connection between every two ranks of a group, and chunks of data over them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_COMM_TCP_MESH_H
#define TDM_COLOCATE_COMM_TCP_MESH_H

#include "colocate/comm/collective_op.h"
#include "runtime/rpc/rpc.h"

#include <stddef.h>

/* A mesh has a separate loop and RPC endpoint, so that waiting in it drives nothing else. One
 * thread uses it. The endpoint rejects clients without the cluster's token; a client with the
 * token but without the group's key is refused by mesh.hello.
 *
 * Data is sent in chunks. Each chunk is a call that gets its reply when the receiver has taken
 * it. A few chunks per rank may be in flight, so no rank stores more than that of another.
 *
 * The RPC methods are: mesh.hello with key b, rank u, as the first call on a connection;
 * mesh.data with op_number u, kind u, root_or_dtype u, size u, memory u and the chunk as the tail,
 * whose reply comes when the chunk was taken; mesh.end with op_number u, status i, text s, when the
 * group has ended from that operation on; and mesh.leave when this rank leaves. */
struct tdm__mesh;

/* Most bytes of a chunk. */
enum { TDM__MESH_CHUNK_BYTES_MAX = 16 << 20 };

/* Options of a mesh; all pointers are borrowed for the call. */
struct tdm__mesh_options {
    /* Endpoint whose identity and token the mesh copies. */
    const struct tdm__rpc *identity_source;
    const char *host;     /* Host name or address to listen at. */
    uint32_t rank;        /* Rank of this process. */
    uint32_t ranks_count; /* Number of ranks: 1 to TDM_COLLECTIVE_RANKS_MAX. */
    /* Milliseconds for connecting and for each operation. */
    int64_t timeout_ms;
};

/* Creates a mesh that listens. Other ranks are accepted from tdm__mesh_connect() on. */
tdm_status tdm__mesh_listen(const struct tdm__mesh_options *options, struct tdm__mesh **mesh_out);
/* Returns the address at which the mesh listens. */
const char *tdm__mesh_address(const struct tdm__mesh *mesh);
/* Connects with all other ranks and blocks until all are connected. `addresses` are in rank
 * order; `key` is the group's. The call fails at once if a rank whose address is known dies
 * before it has connected; a rank without an address is awaited until the timeout. */
tdm_status tdm__mesh_connect(struct tdm__mesh *mesh, const struct tdm__id *key,
                             const char *const *addresses);
/* Leaves the group and frees the mesh. Never blocks. Keeps the error detail. NULL is allowed. */
void tdm__mesh_destroy(struct tdm__mesh *mesh);

/* Starts an operation that lasts until tdm__mesh_op_finish(). Its deadline counts from here. */
void tdm__mesh_op_begin(struct tdm__mesh *mesh, const struct tdm__collective_op *call);
/* The next three functions fail with TDM_E_ABORTED or TDM_E_TIMEOUT, naming the rank, or with
 * TDM_E_INVAL if another rank is in another operation. The group has then ended for all ranks,
 * and the reason stays.
 *
 * Sends a chunk to a rank. Blocks while too many chunks to that rank are in flight. */
tdm_status tdm__mesh_send(struct tdm__mesh *mesh, uint32_t to, const void *chunk,
                          size_t size_bytes);
/* Receives the next chunk of a rank; blocks until it has arrived. Its size must be `size_bytes`. */
tdm_status tdm__mesh_receive(struct tdm__mesh *mesh, uint32_t from, void *chunk, size_t size_bytes);
/* Blocks until the other ranks have taken all chunks of the operation. */
tdm_status tdm__mesh_op_finish(struct tdm__mesh *mesh);

/* Returns TDM_OK while the group lives, or the reason why it has ended, also if it ended in an
 * operation that this rank has not started. Never blocks. */
tdm_status tdm__mesh_check(struct tdm__mesh *mesh);
/* Ends the group for all ranks, naming this one. Never blocks. */
void tdm__mesh_abort(struct tdm__mesh *mesh);

#endif
