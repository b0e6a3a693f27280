/* arena.c - the host memory that holds the contents of paused regions. */
/* SPDX-License-Identifier: Apache-2.0 */

/* The arena owns chunks of host memory from the device's host_alloc and divides them into spans.
 * A span is used or free. Spans of one chunk are linked in the order of their addresses and cover
 * the chunk without gaps. Two free spans of a chunk are never neighbours: freeing joins them.
 *
 * Chunks are returned only when the arena is destroyed. The grown bytes never exceed the budget.
 * One thread uses an arena: the actor's. */

#include "colocate/memory/arena.h"

#include "runtime/assert.h"
#include "runtime/error.h"

#include <stdbool.h>
#include <stdlib.h>

/* Smallest size in bytes of a chunk that the arena takes from the device, if the budget allows. */
enum { GROWTH_BYTES_MIN = 64 << 20 };

/* A range of addresses in one chunk, free or in use. Spans of one chunk are linked in the order
 * of their addresses, chunk after chunk. The arena owns them. */
struct span {
    struct span *next; /* Next span in the arena's list; NULL for the last one. */
    char *address;     /* Address of the span's first byte. */
    size_t size_bytes; /* Size of the span in bytes. */
    bool used;         /* True if the span is allocated, false if it is free. */
    /* True if the span is the first of a chunk, so that it is never joined with the span before
     * it. */
    bool starts_chunk;
    /* Size in bytes of the chunk that begins with this span; 0 if starts_chunk is false. */
    size_t chunk_bytes;
};

/* The allocator of host memory for the contents of a process's paused regions. One thread uses
 * it. */
struct tdm__arena {
    struct tdm__device *device; /* Device that provides the arena's host memory; borrowed. */
    size_t budget_bytes; /* Largest number of bytes that the arena may take from the device. */
    size_t grown_bytes;  /* Number of bytes that the arena has taken from the device. */
    size_t used_bytes;   /* Number of bytes that are allocated from the arena. */
    /* List of all spans, free and allocated; the newest chunk is first. Owned. */
    struct span *spans;
};

tdm_status tdm__arena_create(struct tdm__device *device, size_t budget_bytes,
                             struct tdm__arena **arena_out)
{
    struct tdm__arena *arena = calloc(1, sizeof(*arena));

    if (arena == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an arena");
    }
    arena->device = device;
    arena->budget_bytes = budget_bytes;
    *arena_out = arena;
    return TDM_OK;
}

void tdm__arena_destroy(struct tdm__arena *arena)
{
    if (arena == NULL) {
        return;
    }
    TDM_ASSERT(arena->used_bytes == 0);
    while (arena->spans != NULL) {
        struct span *span = arena->spans;

        arena->spans = span->next;
        if (span->starts_chunk) {
            arena->device->ops->host_free(arena->device, span->address, span->chunk_bytes);
        }
        free(span);
    }
    free(arena);
}

/* Returns the smaller of two numbers of bytes. */
static size_t min_bytes(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Takes a chunk of at least `size_bytes` bytes from the device and adds it to the arena as a free
 * span in front of all others. */
static tdm_status arena_grow(struct tdm__arena *arena, size_t size_bytes)
{
    size_t left_bytes = arena->budget_bytes - arena->grown_bytes;
    size_t chunk_bytes = size_bytes;
    struct span *span;
    void *address;
    tdm_status status;

    if (size_bytes > left_bytes) {
        return tdm__fail(TDM_E_NOMEM,
                         "host copies: %.1f MiB wanted, %.1f MiB in use, budget %.1f MiB",
                         (double)size_bytes / (1 << 20), (double)arena->used_bytes / (1 << 20),
                         (double)arena->budget_bytes / (1 << 20));
    }
    if (chunk_bytes < GROWTH_BYTES_MIN) {
        chunk_bytes = min_bytes(GROWTH_BYTES_MIN, left_bytes);
    }
    span = calloc(1, sizeof(*span));
    if (span == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a span of the arena");
    }
    status = arena->device->ops->host_alloc(arena->device, chunk_bytes, &address);
    if (status != TDM_OK) {
        free(span);
        return status;
    }
    *span = (struct span){.next = arena->spans,
                          .address = address,
                          .size_bytes = chunk_bytes,
                          .starts_chunk = true,
                          .chunk_bytes = chunk_bytes};
    arena->spans = span;
    arena->grown_bytes += chunk_bytes;
    return TDM_OK;
}

/* Returns the arena's first free span of at least `size_bytes` bytes, or NULL if none exists. */
static struct span *arena_find_free_span(const struct tdm__arena *arena, size_t size_bytes)
{
    struct span *span = arena->spans;

    while (span != NULL && (span->used || span->size_bytes < size_bytes)) {
        span = span->next;
    }
    return span;
}

/* Cuts `span` to `size_bytes` bytes. The rest becomes a free span behind it. */
static tdm_status arena_split_span(struct span *span, size_t size_bytes)
{
    struct span *rest;

    if (span->size_bytes == size_bytes) {
        return TDM_OK;
    }
    rest = calloc(1, sizeof(*rest));
    if (rest == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a span of the arena");
    }
    rest->next = span->next;
    rest->address = span->address + size_bytes;
    rest->size_bytes = span->size_bytes - size_bytes;
    span->next = rest;
    span->size_bytes = size_bytes;
    return TDM_OK;
}

tdm_status tdm__arena_alloc(struct tdm__arena *arena, size_t size_bytes, void **address_out)
{
    size_t unit = arena->device->granularity_bytes;
    struct span *span;

    if (size_bytes == 0 || size_bytes > SIZE_MAX - unit) {
        return tdm__fail(TDM_E_INVAL, "%zu bytes of the arena", size_bytes);
    }
    size_bytes = (size_bytes + unit - 1) / unit * unit;
    span = arena_find_free_span(arena, size_bytes);
    if (span == NULL) {
        TDM_TRY(arena_grow(arena, size_bytes));
        span = arena_find_free_span(arena, size_bytes);
        TDM_ASSERT(span != NULL);
    }
    TDM_TRY(arena_split_span(span, size_bytes));
    span->used = true;
    arena->used_bytes += size_bytes;
    *address_out = span->address;
    return TDM_OK;
}

/* Joins `span` with the free spans that follow it in its chunk. */
static void arena_join_next_span(struct span *span)
{
    while (span->next != NULL && !span->next->used && !span->next->starts_chunk) {
        struct span *following = span->next;

        span->size_bytes += following->size_bytes;
        span->next = following->next;
        free(following);
    }
}

void tdm__arena_free(struct tdm__arena *arena, void *address)
{
    struct span *before = NULL;
    struct span *span = arena->spans;

    if (address == NULL) {
        return;
    }
    while (span != NULL && span->address != (char *)address) {
        before = span;
        span = span->next;
    }
    TDM_ASSERT(span != NULL && span->used);
    span->used = false;
    arena->used_bytes -= span->size_bytes;
    arena_join_next_span(span);
    if (before != NULL && !before->used) {
        arena_join_next_span(before);
    }
}

size_t tdm__arena_used_bytes(const struct tdm__arena *arena)
{
    return arena->used_bytes;
}

size_t tdm__arena_grown_bytes(const struct tdm__arena *arena)
{
    return arena->grown_bytes;
}
