/* allocator.c - an allocator over a region, with the functions of PyTorch's pluggable allocators.
 */
/* SPDX-License-Identifier: Apache-2.0 */

/* torch.cuda.memory.CUDAPluggableAllocator calls two functions of a library by their names, with a
 * size, the number of the device and a stream, and nothing that says for which allocator. So there
 * is at most one arena for each device. An arena divides a region: its pieces are a list in the
 * order of their addresses, in host memory, since the region may be on a GPU. An allocation takes
 * the first free piece that is large enough. Neighbouring free pieces become one.
 *
 * The two functions may be called on any thread, with or without the GIL, which they do not take.
 * A mutex guards the arenas. They ignore the stream: freed memory is given out at once, so that the
 * caller must know that no stream uses it any more, as PyTorch's pools (torch.cuda.MemPool) do.
 *
 * An open arena counts as a user of its region, which therefore cannot be freed. Nothing is
 * allocated while the region is paused. */
#include "binding.h"

#include <stdlib.h>

enum {
    ALIGNMENT = 512,       /* Alignment of allocations in bytes, as in PyTorch's own allocator. */
    DEVICES_COUNT_MAX = 64 /* Number of devices that can have an arena. */
};

/* A part of an arena: free, or one allocation. */
struct piece {
    struct piece *next; /* Piece behind this one; NULL for the last one. */
    size_t offset;      /* Offset of the first byte in the region. */
    size_t size_bytes;  /* Number of bytes, a multiple of ALIGNMENT. */
    bool is_free;       /* True unless it is allocated. */
};

/* The arena of one device. */
struct arena {
    PyObject *owner;     /* The Region, owned; NULL without an arena. */
    struct piece *first; /* Pieces in the order of their addresses, owned. */
    size_t used_bytes;   /* Number of allocated bytes. */
};

static struct arena arenas[DEVICES_COUNT_MAX];
static pthread_mutex_t arenas_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Functions for torch.cuda.memory.CUDAPluggableAllocator. */
__attribute__((visibility("default"))) void *tandem_allocator_alloc(Py_ssize_t size, int device,
                                                                    void *stream);
__attribute__((visibility("default"))) void tandem_allocator_free(void *address, Py_ssize_t size,
                                                                  int device, void *stream);

/* Returns the region of an arena; NULL if there is none, or the runtime has stopped. */
static const tdm_region *arena_region(const struct arena *arena)
{
    return arena->owner == NULL ? NULL : ((const struct binding_object *)arena->owner)->handle;
}

/* Cuts `size_bytes` bytes off the begin of a free piece, and allocates them. Returns false if there
 * is no host memory. */
static bool piece_allocate(struct piece *piece, size_t size_bytes)
{
    if (piece->size_bytes > size_bytes) {
        struct piece *rest = calloc(1, sizeof(*rest));

        if (rest == NULL) {
            return false;
        }
        *rest = (struct piece){.next = piece->next,
                               .offset = piece->offset + size_bytes,
                               .size_bytes = piece->size_bytes - size_bytes,
                               .is_free = true};
        piece->next = rest;
        piece->size_bytes = size_bytes;
    }
    piece->is_free = false;
    return true;
}

/* Joins a free piece with the next one if that is free, too. */
static void piece_join_next(struct piece *piece)
{
    struct piece *next = piece->next;

    if (piece->is_free && next != NULL && next->is_free) {
        piece->size_bytes += next->size_bytes;
        piece->next = next->next;
        free(next);
    }
}

/* Allocates from an arena. Returns NULL if there is none, it is full, or its region is paused. */
static void *arena_allocate(struct arena *arena, size_t size_bytes)
{
    const tdm_region *region = arena_region(arena);
    struct piece *piece = arena->first;

    if (region == NULL || !tdm_region_is_resident(region)) {
        return NULL;
    }
    while (piece != NULL && (!piece->is_free || piece->size_bytes < size_bytes)) {
        piece = piece->next;
    }
    if (piece == NULL || !piece_allocate(piece, size_bytes)) {
        return NULL;
    }
    arena->used_bytes += size_bytes;
    return (char *)tdm_region_address(region) + piece->offset;
}

/* Frees an allocation of an arena. An address that is no allocation is ignored. */
static void arena_free(struct arena *arena, const void *address)
{
    const tdm_region *region = arena_region(arena);
    struct piece *before = NULL;
    struct piece *piece = arena->first;
    size_t offset;

    if (region == NULL) {
        return;
    }
    offset = (size_t)((const char *)address - (const char *)tdm_region_address(region));
    while (piece != NULL && piece->offset != offset) {
        before = piece;
        piece = piece->next;
    }
    if (piece == NULL || piece->is_free) {
        return;
    }
    arena->used_bytes -= piece->size_bytes;
    piece->is_free = true;
    piece_join_next(piece);
    if (before != NULL) {
        piece_join_next(before);
    }
}

void *tandem_allocator_alloc(Py_ssize_t size, int device, void *stream)
{
    void *address = NULL;

    (void)stream;
    if (size > 0 && size <= PY_SSIZE_T_MAX - ALIGNMENT && device >= 0 &&
        device < DEVICES_COUNT_MAX) {
        size_t size_bytes = ((size_t)size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

        (void)pthread_mutex_lock(&arenas_mutex);
        address = arena_allocate(&arenas[device], size_bytes);
        (void)pthread_mutex_unlock(&arenas_mutex);
    }
    return address;
}

void tandem_allocator_free(void *address, Py_ssize_t size, int device, void *stream)
{
    (void)size;
    (void)stream;
    if (address != NULL && device >= 0 && device < DEVICES_COUNT_MAX) {
        (void)pthread_mutex_lock(&arenas_mutex);
        arena_free(&arenas[device], address);
        (void)pthread_mutex_unlock(&arenas_mutex);
    }
}

/* ---- functions of the module ------------------------------------------------------------- */

/* Returns the arena of the device with this number. NULL with an exception if there is none. */
static struct arena *arena_of_device(int device)
{
    if (device < 0 || device >= DEVICES_COUNT_MAX || arenas[device].owner == NULL) {
        PyErr_Format(PyExc_KeyError, "no region of the device %d has an allocator", device);
        return NULL;
    }
    return &arenas[device];
}

/* allocator_open(region): opens the arena of the region's device; returns the device's number. */
static PyObject *allocator_open(PyObject *module, PyObject *region)
{
    tdm_region *handle = binding_region_handle(region);
    struct piece *piece;
    int device;

    (void)module;
    if (handle == NULL) {
        return NULL;
    }
    device = tdm_region_device_number(handle);
    if (device < 0 || device >= DEVICES_COUNT_MAX || arenas[device].owner != NULL) {
        PyErr_Format(PyExc_RuntimeError,
                     "an allocator over the region %s failed: the device %d has one over another "
                     "region, and PyTorch does not say which one it means: close that first",
                     tdm_region_tag(handle), device);
        return NULL;
    }
    piece = calloc(1, sizeof(*piece));
    if (piece == NULL) {
        return PyErr_NoMemory();
    }
    *piece = (struct piece){.size_bytes = tdm_region_size(handle), .is_free = true};
    ((struct binding_object *)region)->loans_count++;
    (void)pthread_mutex_lock(&arenas_mutex);
    arenas[device] = (struct arena){.owner = Py_NewRef(region), .first = piece};
    (void)pthread_mutex_unlock(&arenas_mutex);
    return PyLong_FromLong(device);
}

/* allocator_close(device): closes an arena that has no allocation. */
static PyObject *allocator_close(PyObject *module, PyObject *number)
{
    struct arena *arena = arena_of_device((int)PyLong_AsLong(number));
    struct arena closed;
    size_t used_bytes;

    (void)module;
    if (arena == NULL) {
        return NULL;
    }
    (void)pthread_mutex_lock(&arenas_mutex);
    closed = *arena;
    used_bytes = arena->used_bytes;
    if (used_bytes == 0) {
        *arena = (struct arena){.owner = NULL};
    }
    (void)pthread_mutex_unlock(&arenas_mutex);
    if (used_bytes > 0) {
        return PyErr_Format(PyExc_RuntimeError,
                            "closing the allocator of the device %ld failed: %zu bytes are "
                            "allocated: delete the tensors, and their pool",
                            PyLong_AsLong(number), used_bytes);
    }
    free(closed.first); /* All memory is free, so that it is one piece. */
    ((struct binding_object *)closed.owner)->loans_count--;
    Py_DECREF(closed.owner);
    Py_RETURN_NONE;
}

/* allocator_used_bytes(device): the allocated bytes of an arena. */
static PyObject *allocator_used_bytes(PyObject *module, PyObject *number)
{
    const struct arena *arena = arena_of_device((int)PyLong_AsLong(number));

    (void)module;
    return arena == NULL ? NULL : PyLong_FromSize_t(arena->used_bytes);
}

static PyMethodDef functions[] = {
    {"allocator_open", allocator_open, METH_O,
     "allocator_open(region)\n--\n\nLet tandem_allocator_alloc() of this library allocate in the "
     "region; return the number of the region's device."},
    {"allocator_close", allocator_close, METH_O,
     "allocator_close(device)\n--\n\nEnd what allocator_open() has begun; RuntimeError while there "
     "are allocations."},
    {"allocator_used_bytes", allocator_used_bytes, METH_O,
     "allocator_used_bytes(device)\n--\n\nReturn the allocated bytes."},
    {NULL, NULL, 0, NULL}};

bool binding_allocator_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) >= 0;
}
