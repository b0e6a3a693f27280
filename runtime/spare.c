/* spare.c - memory for the many small things that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/spare.h"

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

enum { STEP_BYTES = 64, SIZES_COUNT = TDM__SPARE_BLOCK_BYTES_MAX / STEP_BYTES };

struct block {
    struct block *next;
};

/* Free blocks of one size. */
struct shelf {
    struct block *first; /* owned */
    size_t bytes;
};

static _Thread_local struct spare {
    bool open;         /* it has been asked for; */
    bool keeps;        /* it is emptied when the thread ends, and keeps nothing from then on */
    size_t room_bytes; /* that it may still keep */
    struct shelf shelves[SIZES_COUNT];
} spare;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool has_key;

/* Of a block, its links included. */
static size_t index_of(size_t size_bytes)
{
    return size_bytes == 0 ? 0 : (size_bytes - 1) / STEP_BYTES;
}

static size_t bytes_of(size_t index)
{
    return (index + 1) * STEP_BYTES;
}

/* ---- the bound -------------------------------------------------------------------------- */

static void empty(struct spare *own, struct shelf *shelf)
{
    struct block *block;

    while ((block = shelf->first) != NULL) {
        shelf->first = block->next;
        free(block);
    }
    own->room_bytes += shelf->bytes;
    shelf->bytes = 0;
}

static void empty_fullest(struct spare *own)
{
    struct shelf *fullest = &own->shelves[0];

    for (size_t i = 1; i < SIZES_COUNT; i++) {
        if (own->shelves[i].bytes > fullest->bytes) {
            fullest = &own->shelves[i];
        }
    }
    empty(own, fullest);
}

static void thread_ends(void *arg)
{
    struct spare *own = arg;

    own->keeps = false;
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        empty(own, &own->shelves[i]);
    }
    own->room_bytes = 0;
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, thread_ends) == 0;
}

static void open_spare(struct spare *own)
{
    own->open = true;
    (void)pthread_once(&once, make_key);
    own->keeps = KEEPS && has_key && pthread_setspecific(key, own) == 0;
    own->room_bytes = own->keeps ? TDM__SPARE_KEPT_BYTES_MAX : 0;
}

size_t tdm__spare_kept_bytes(void)
{
    return spare.keeps ? TDM__SPARE_KEPT_BYTES_MAX - spare.room_bytes : 0;
}

/* ---- blocks ----------------------------------------------------------------------------- */

void *tdm__spare_take(size_t size_bytes)
{
    size_t index = index_of(size_bytes);
    struct shelf *shelf;
    struct block *block;

    if (index >= SIZES_COUNT) {
        return malloc(size_bytes);
    }
    shelf = &spare.shelves[index];
    block = shelf->first;
    if (block == NULL) {
        return malloc(KEEPS ? bytes_of(index) : size_bytes);
    }
    shelf->first = block->next;
    shelf->bytes -= bytes_of(index);
    spare.room_bytes += bytes_of(index);
    return block;
}

void *tdm__spare_take_zeroed(size_t size_bytes)
{
    void *memory = tdm__spare_take(size_bytes);

    return memory == NULL ? NULL : memset(memory, 0, size_bytes);
}

static void keep(struct spare *own, size_t index, struct block *block)
{
    struct shelf *shelf = &own->shelves[index];

    block->next = shelf->first;
    shelf->first = block;
    shelf->bytes += bytes_of(index);
    own->room_bytes -= bytes_of(index);
}

/* The first block of a thread, one too many, or one after its end.  Rare: not inline, where it
 * would make the usual give longer. */
static __attribute__((noinline)) void give_without_room(struct spare *own, size_t index,
                                                        struct block *block)
{
    if (!own->open) {
        open_spare(own);
    }
    if (!own->keeps) {
        free(block);
        return;
    }
    if (own->room_bytes < bytes_of(index)) {
        empty_fullest(own);
    }
    keep(own, index, block);
}

void tdm__spare_give(void *memory, size_t size_bytes)
{
    size_t index = index_of(size_bytes);

    if (index >= SIZES_COUNT || memory == NULL) {
        free(memory);
    } else if (spare.room_bytes >= bytes_of(index)) {
        keep(&spare, index, memory);
    } else {
        give_without_room(&spare, index, memory);
    }
}
