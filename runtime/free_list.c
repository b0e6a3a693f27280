/* free_list.c - a per-thread allocator for small blocks that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread owns one struct free_list in thread-local storage, so no lock is needed.  It has a
 * singly linked list of free blocks for each size class of 64, 128, ... 1024 bytes.
 * States: not initialized; initialized and keeping blocks; and not keeping blocks, which is the
 * state after the destructor of the thread-specific key has run, and in builds with a sanitizer.
 * `space_bytes` is 0 in the first and the last of these states, so the fast path of
 * tdm__free_list_free() needs a single comparison.
 * Invariant: the bytes of all size classes plus `space_bytes` make TDM__FREE_LIST_KEPT_BYTES_MAX
 * while blocks are kept. */
#include "runtime/free_list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Sanitizers must see each allocation and free, so builds with one keep no blocks. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEPS_BLOCKS = 0 }; /* Freed blocks are not kept, in a build with a sanitizer. */
#else
enum { KEEPS_BLOCKS = 1 }; /* Freed blocks are kept for reuse. */
#endif

/* Size classes are SIZE_STEP_BYTES apart; SIZES_COUNT is their number. */
enum { SIZE_STEP_BYTES = 64, SIZES_COUNT = TDM__FREE_LIST_BLOCK_BYTES_MAX / SIZE_STEP_BYTES };

/* A free block of memory. The link occupies the memory that the user had. */
struct block {
    struct block *next; /* Next free block of the same size class; NULL at the end. */
};

/* The free blocks of one size class and thread. */
struct size_class {
    struct block *first; /* First free block, owned; NULL if the list is empty. */
    size_t bytes;        /* Total size in bytes of the blocks in the list. */
};

/* The free blocks of one thread. */
static _Thread_local struct free_list {
    bool initialized; /* True after free_list_init() has run in this thread. */
    /* True if blocks that the thread frees are kept. False before free_list_init() and after the
     * end of the thread, when nothing would free them. */
    bool keeps_blocks;
    size_t space_bytes; /* Number of bytes of further blocks that the thread may keep. */
    struct size_class size_classes[SIZES_COUNT]; /* Free blocks by size class. */
} free_list;

/* Creates `thread_exit_key` once per process. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
/* The key whose destructor empties the list of an ending thread. */
static pthread_key_t thread_exit_key;
/* Whether `thread_exit_key` could be created. Without the key no thread keeps blocks. */
static bool has_thread_exit_key;

/* Returns the index of the smallest size class that holds `size_bytes`; SIZES_COUNT or more for a
 * larger block. */
static size_t size_class_of(size_t size_bytes)
{
    return size_bytes == 0 ? 0 : (size_bytes - 1) / SIZE_STEP_BYTES;
}

/* Returns the size in bytes of the blocks of the size class `index`. */
static size_t size_class_bytes(size_t index)
{
    return (index + 1) * SIZE_STEP_BYTES;
}

/* ---- the bound -------------------------------------------------------------------------- */

/* Frees all free blocks of one size class of the thread. */
static void size_class_empty(struct free_list *list, struct size_class *size_class)
{
    struct block *block;

    while ((block = size_class->first) != NULL) {
        size_class->first = block->next;
        free(block);
    }
    list->space_bytes += size_class->bytes;
    size_class->bytes = 0;
}

/* Frees all free blocks of the thread's size class that uses most memory. */
static void free_list_empty_fullest(struct free_list *list)
{
    struct size_class *fullest = &list->size_classes[0];

    for (size_t i = 1; i < SIZES_COUNT; i++) {
        if (list->size_classes[i].bytes > fullest->bytes) {
            fullest = &list->size_classes[i];
        }
    }
    size_class_empty(list, fullest);
}

/* Destructor of `thread_exit_key`: frees all free blocks of an ending thread. Blocks that later
 * destructors free go to free(). */
static void free_list_thread_exit(void *arg)
{
    struct free_list *list = arg;

    list->keeps_blocks = false;
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        size_class_empty(list, &list->size_classes[i]);
    }
    list->space_bytes = 0;
}

/* Creates `thread_exit_key`, whose destructor is free_list_thread_exit(). Runs once per process. */
static void thread_exit_key_create(void)
{
    has_thread_exit_key = pthread_key_create(&thread_exit_key, free_list_thread_exit) == 0;
}

/* Prepares the calling thread's list of free blocks, at the first block that the thread frees. */
static void free_list_init(struct free_list *list)
{
    list->initialized = true;
    (void)pthread_once(&once, thread_exit_key_create);
    list->keeps_blocks =
        KEEPS_BLOCKS && has_thread_exit_key && pthread_setspecific(thread_exit_key, list) == 0;
    list->space_bytes = list->keeps_blocks ? TDM__FREE_LIST_KEPT_BYTES_MAX : 0;
}

size_t tdm__free_list_kept_bytes(void)
{
    return free_list.keeps_blocks ? TDM__FREE_LIST_KEPT_BYTES_MAX - free_list.space_bytes : 0;
}

/* ---- blocks ----------------------------------------------------------------------------- */

void *tdm__free_list_alloc(size_t size_bytes)
{
    size_t index = size_class_of(size_bytes);
    struct size_class *size_class;
    struct block *block;

    if (index >= SIZES_COUNT) {
        return malloc(size_bytes);
    }
    size_class = &free_list.size_classes[index];
    block = size_class->first;
    if (block == NULL) {
        return malloc(KEEPS_BLOCKS ? size_class_bytes(index) : size_bytes);
    }
    size_class->first = block->next;
    size_class->bytes -= size_class_bytes(index);
    free_list.space_bytes += size_class_bytes(index);
    return block;
}

void *tdm__free_list_alloc_zeroed(size_t size_bytes)
{
    void *memory = tdm__free_list_alloc(size_bytes);

    return memory == NULL ? NULL : memset(memory, 0, size_bytes);
}

/* Adds a freed block of the size class `index` to the thread's list; `space_bytes` must suffice. */
static void free_list_keep(struct free_list *list, size_t index, struct block *block)
{
    struct size_class *size_class = &list->size_classes[index];

    block->next = size_class->first;
    size_class->first = block;
    size_class->bytes += size_class_bytes(index);
    list->space_bytes -= size_class_bytes(index);
}

/* Frees a block in the rare cases: the first block of a thread, a full list, and a thread that
 * keeps no blocks. Not inline, so that the common path stays short. */
static __attribute__((noinline)) void free_list_free_slow(struct free_list *list, size_t index,
                                                          struct block *block)
{
    if (!list->initialized) {
        free_list_init(list);
    }
    if (!list->keeps_blocks) {
        free(block);
        return;
    }
    if (list->space_bytes < size_class_bytes(index)) {
        free_list_empty_fullest(list);
    }
    free_list_keep(list, index, block);
}

void tdm__free_list_free(void *memory, size_t size_bytes)
{
    size_t index = size_class_of(size_bytes);

    if (index >= SIZES_COUNT || memory == NULL) {
        free(memory);
    } else if (free_list.space_bytes >= size_class_bytes(index)) {
        free_list_keep(&free_list, index, memory);
    } else {
        free_list_free_slow(&free_list, index, memory);
    }
}
