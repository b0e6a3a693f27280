/* output.c - the bytes of a connection that wait to be written, with their descriptors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The output is a list of chunks. New frames are copied into the last chunk; a frame that does not
 * fit gets a new chunk. Descriptors belong to the first byte of a chunk, so a frame with
 * descriptors always starts one.
 *
 * Invariants: an empty chunk is the only chunk; size_bytes is the sum of the unsent bytes. The last
 * chunk of the usual size is reused when it has been sent. The output belongs to its connection and
 * is used on the loop's thread only; it does no I/O. send.c writes the bytes. */

#include "runtime/rpc/output.h"

#include "runtime/error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Usual capacity of a chunk of output in bytes; a larger frame gets a chunk of its size. */
enum { CHUNK_BYTES = 32 * 1024 };

void tdm__output_init(struct conn_output *output)
{
    TAILQ_INIT(&output->chunks);
    output->size_bytes = 0;
}

/* Closes the descriptors of a chunk of output: they have been sent, or are discarded. */
static void chunk_close_fds(struct output_chunk *chunk)
{
    for (uint32_t i = 0; i < chunk->fds_count; i++) {
        (void)close(chunk->fds[i]);
    }
    chunk->fds_count = 0;
}

/* Adds duplicates of the descriptors `fds` to a chunk of output. On failure the chunk keeps those
 * already duplicated. */
static tdm_status chunk_duplicate_fds(struct output_chunk *chunk, const int *fds,
                                      uint32_t fds_count)
{
    for (uint32_t i = 0; i < fds_count; i++) {
        int copy = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);

        if (copy < 0) {
            return tdm__fail_errno(errno, "fcntl: duplicating fd %d", fds[i]);
        }
        chunk->fds[chunk->fds_count++] = copy;
    }
    return TDM_OK;
}

/* Appends an empty chunk with a capacity of at least `size` bytes to the output. */
static tdm_status output_add_chunk(struct conn_output *output, size_t size,
                                   struct output_chunk **chunk_out)
{
    size_t capacity = size > CHUNK_BYTES ? size : CHUNK_BYTES;
    struct output_chunk *chunk = malloc(sizeof(*chunk) + capacity);

    if (chunk == NULL) {
        return tdm__fail(TDM_E_NOMEM, "%zu bytes that wait to be sent", capacity);
    }
    chunk->capacity_bytes = capacity;
    chunk->begin = 0;
    chunk->end = 0;
    chunk->fds_count = 0;
    TAILQ_INSERT_TAIL(&output->chunks, chunk, link);
    *chunk_out = chunk;
    return TDM_OK;
}

/* Removes a chunk from the output, closes its descriptors and frees the chunk. */
static void output_remove_chunk(struct conn_output *output, struct output_chunk *chunk)
{
    TAILQ_REMOVE(&output->chunks, chunk, link);
    chunk_close_fds(chunk);
    free(chunk);
}

/* Returns a chunk of the output with `size` free bytes. With `at_begin` the chunk is empty, because
 * descriptors are sent with the first byte of a chunk. */
static tdm_status output_find_chunk(struct conn_output *output, size_t size, bool at_begin,
                                    struct output_chunk **chunk_out)
{
    struct output_chunk *last = TAILQ_LAST(&output->chunks, chunks);

    if (last != NULL && last->capacity_bytes - last->end >= size && (!at_begin || last->end == 0)) {
        *chunk_out = last;
        return TDM_OK;
    }
    if (last != NULL && last->end == 0) {
        output_remove_chunk(output, last);
    }
    return output_add_chunk(output, size, chunk_out);
}

/* Returns the number of bytes in all pieces of a frame. */
static size_t pieces_bytes(const struct iovec pieces[FRAME_PIECES])
{
    size_t sum = 0;

    for (int i = 0; i < FRAME_PIECES; i++) {
        sum += pieces[i].iov_len;
    }
    return sum;
}

/* Copies a frame, given as pieces, without its first `skip` bytes to the end of the chunk. */
static void chunk_copy_pieces(struct output_chunk *chunk, const struct iovec pieces[FRAME_PIECES],
                              size_t skip)
{
    for (int i = 0; i < FRAME_PIECES; i++) {
        size_t skipped = skip < pieces[i].iov_len ? skip : pieces[i].iov_len;
        size_t rest = pieces[i].iov_len - skipped;

        if (rest > 0) {
            memcpy(chunk->bytes + chunk->end, (const char *)pieces[i].iov_base + skipped, rest);
        }
        chunk->end += rest;
        skip -= skipped;
    }
}

tdm_status tdm__output_reserve(struct conn_output *output, size_t size_bytes, uint8_t **place_out)
{
    struct output_chunk *chunk;

    TDM_TRY(output_find_chunk(output, size_bytes, false, &chunk));
    *place_out = chunk->bytes + chunk->end;
    chunk->end += size_bytes;
    output->size_bytes += size_bytes;
    return TDM_OK;
}

tdm_status tdm__output_append(struct conn_output *output, const struct iovec pieces[FRAME_PIECES],
                              size_t skip, const int *fds, uint32_t fds_count)
{
    size_t size = pieces_bytes(pieces) - skip;
    struct output_chunk *chunk;
    tdm_status status;

    TDM_TRY(output_find_chunk(output, size, fds_count > 0, &chunk));
    status = chunk_duplicate_fds(chunk, fds, fds_count);
    if (status != TDM_OK) {
        output_remove_chunk(output, chunk);
        return status;
    }
    chunk_copy_pieces(chunk, pieces, skip);
    output->size_bytes += size;
    return TDM_OK;
}

size_t tdm__output_gather(const struct conn_output *output, struct iovec pieces[OUTPUT_PIECES_MAX],
                          const int **fds_out, uint32_t *fds_count_out)
{
    size_t count = 0;
    struct output_chunk *chunk;

    TAILQ_FOREACH(chunk, &output->chunks, link)
    {
        if (count == OUTPUT_PIECES_MAX || (count > 0 && chunk->fds_count > 0)) {
            break;
        }
        if (count == 0) {
            *fds_out = chunk->fds;
            *fds_count_out = chunk->fds_count;
        }
        pieces[count].iov_base = chunk->bytes + chunk->begin;
        pieces[count++].iov_len = chunk->end - chunk->begin;
    }
    return count;
}

/* Frees a chunk of output that has been sent. The last one of the usual size is kept and reused. */
static void chunk_finish(struct conn_output *output, struct output_chunk *chunk)
{
    if (TAILQ_NEXT(chunk, link) == NULL && chunk->capacity_bytes == CHUNK_BYTES) {
        chunk->begin = 0;
        chunk->end = 0;
        return;
    }
    output_remove_chunk(output, chunk);
}

void tdm__output_consume(struct conn_output *output, size_t sent_bytes)
{
    output->size_bytes -= sent_bytes;
    while (sent_bytes > 0) {
        struct output_chunk *chunk = TAILQ_FIRST(&output->chunks);
        size_t rest = chunk->end - chunk->begin;

        chunk_close_fds(chunk);
        if (sent_bytes < rest) {
            chunk->begin += sent_bytes;
            return;
        }
        sent_bytes -= rest;
        chunk_finish(output, chunk);
    }
}

void tdm__output_clear(struct conn_output *output)
{
    struct output_chunk *chunk;

    while ((chunk = TAILQ_FIRST(&output->chunks)) != NULL) {
        output_remove_chunk(output, chunk);
    }
    output->size_bytes = 0;
}
