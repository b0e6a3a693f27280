/* output.h - the bytes that a connection still has to write, with their descriptors. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_RPC_OUTPUT_H
#define TDM_RUNTIME_RPC_OUTPUT_H

#include "runtime/rpc/types.h"

#include <stddef.h>
#include <sys/queue.h>
#include <sys/uio.h>

/* A block of bytes that wait to be written to a connection's socket: whole frames, or the rest of
 * one. */
struct output_chunk {
    TAILQ_ENTRY(output_chunk) link; /* Links the chunk into its connection's output. */
    size_t capacity_bytes;          /* Capacity of `bytes`. */
    /* Offset in `bytes` of the first byte that has not been sent. */
    size_t begin;
    size_t end;         /* Offset in `bytes` behind the last valid byte. */
    uint32_t fds_count; /* Number of descriptors in `fds`. */
    /* Descriptors that are sent with the chunk's first byte (owned). */
    int fds[TDM__RPC_FDS_MAX];
    /* Bytes of frames, of which `begin` to `end` wait to be written. */
    uint8_t bytes[];
};

/* The frames that a connection still has to write to its socket, in order. */
struct conn_output {
    /* Chunks in the order of sending. An empty chunk is always the only one. */
    TAILQ_HEAD(chunks, output_chunk) chunks;
    size_t size_bytes; /* Number of unsent bytes in all chunks. */
};

/* Number of pieces of a frame: header, method, payload and tail. */
enum { FRAME_PIECES = 4 };
/* Initialises the empty output of a connection. */
void tdm__output_init(struct conn_output *output);
/* Reserves `size_bytes` bytes at the end of the connection's output. The caller must fill them
 * before any other call on the output. */
tdm_status tdm__output_reserve(struct conn_output *output, size_t size_bytes, uint8_t **place_out);
/* Copies a frame, given as pieces, without its first `skip` bytes to the end of the connection's
 * output. The descriptors are duplicated. */
tdm_status tdm__output_append(struct conn_output *output, const struct iovec pieces[FRAME_PIECES],
                              size_t skip, const int *fds, uint32_t fds_count);
/* Most pieces of memory that one sendmsg(2) writes. */
enum { OUTPUT_PIECES_MAX = 16 };
/* Collects the output that one sendmsg(2) can write and returns the number of pieces. It stops
 * before the next chunk that has descriptors, because these are sent with the chunk's first byte.
 */
size_t tdm__output_gather(const struct conn_output *output, struct iovec pieces[OUTPUT_PIECES_MAX],
                          const int **fds_out, uint32_t *fds_count_out);
/* Removes the first `sent_bytes` bytes of the output, which have been written. */
void tdm__output_consume(struct conn_output *output, size_t sent_bytes);
/* Discards all bytes of the output, closes their descriptors and frees the memory. */
void tdm__output_clear(struct conn_output *output);

#endif
