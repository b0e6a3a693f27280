/* free_list.c - memory for the many small things that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/free_list.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A sanitizer is to see each block come and go. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { KEEPS = 0 };
#else
enum { KEEPS = 1 };
#endif

enum { STEP_BYTES = 64, SIZES_COUNT = TDM__FREE_LIST_BLOCK_BYTES_MAX / STEP_BYTES };

struct block {
    struct block *next;
};

/* Free blocks of one size. */
struct size_class {
    struct block *first; /* owned */
    size_t bytes;
};

static _Thread_local struct free_list {
    bool open;         /* it has been asked for; */
    bool keeps;        /* it is emptied when the thread ends, and keeps nothing from then on */
    size_t room_bytes; /* that it may still free_list_keep */
    struct size_class size_classes[SIZES_COUNT];
} free_list;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* Of a block, its links included. */
static size_t size_class_of(size_t size_bytes)
{
    return size_bytes == 0 ? 0 : (size_bytes - 1) / STEP_BYTES;
}

static size_t size_class_bytes(size_t index)
{
    return (index + 1) * STEP_BYTES;
}

/* ---- the bound -------------------------------------------------------------------------- */

static void size_class_empty(struct free_list *own, struct size_class *size_class)
{
    struct block *block;

    while ((block = size_class->first) != NULL) {
        size_class->first = block->next;
        free(block);
    }
    own->room_bytes += size_class->bytes;
    size_class->bytes = 0;
}

static void free_list_empty_fullest(struct free_list *own)
{
    struct size_class *fullest = &own->size_classes[0];

    for (size_t i = 1; i < SIZES_COUNT; i++) {
        if (own->size_classes[i].bytes > fullest->bytes) {
            fullest = &own->size_classes[i];
        }
    }
    size_class_empty(own, fullest);
}

static void free_list_thread_exit(void *arg)
{
    struct free_list *own = arg;

    own->keeps = false;
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        size_class_empty(own, &own->size_classes[i]);
    }
    own->room_bytes = 0;
}

static void free_list_make_key(void)
{
    has_key = pthread_key_create(&key, free_list_thread_exit) == 0;
}

static void free_list_open(struct free_list *own)
{
    own->open = true;
    (void)pthread_once(&once, free_list_make_key);
    own->keeps = KEEPS && has_key && pthread_setspecific(key, own) == 0;
    own->room_bytes = own->keeps ? TDM__FREE_LIST_KEPT_BYTES_MAX : 0;
}

size_t tdm__free_list_kept_bytes(void)
{
    return free_list.keeps ? TDM__FREE_LIST_KEPT_BYTES_MAX - free_list.room_bytes : 0;
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
        return malloc(KEEPS ? size_class_bytes(index) : size_bytes);
    }
    size_class->first = block->next;
    size_class->bytes -= size_class_bytes(index);
    free_list.room_bytes += size_class_bytes(index);
    return block;
}

void *tdm__free_list_alloc_zeroed(size_t size_bytes)
{
    void *memory = tdm__free_list_alloc(size_bytes);

    return memory == NULL ? NULL : memset(memory, 0, size_bytes);
}

static void free_list_keep(struct free_list *own, size_t index, struct block *block)
{
    struct size_class *size_class = &own->size_classes[index];

    block->next = size_class->first;
    size_class->first = block;
    size_class->bytes += size_class_bytes(index);
    own->room_bytes -= size_class_bytes(index);
}

/* The first block of a thread, one too many, or one after its end.  Rare: not inline, where it
 * would make the usual give longer. */
static __attribute__((noinline)) void give_without_room(struct free_list *own, size_t index,
                                                        struct block *block)
{
    if (!own->open) {
        free_list_open(own);
    }
    if (!own->keeps) {
        free(block);
        return;
    }
    if (own->room_bytes < size_class_bytes(index)) {
        free_list_empty_fullest(own);
    }
    free_list_keep(own, index, block);
}

void tdm__free_list_free(void *memory, size_t size_bytes)
{
    size_t index = size_class_of(size_bytes);

    if (index >= SIZES_COUNT || memory == NULL) {
        free(memory);
    } else if (free_list.room_bytes >= size_class_bytes(index)) {
        free_list_keep(&free_list, index, memory);
    } else {
        give_without_room(&free_list, index, memory);
    }
}
