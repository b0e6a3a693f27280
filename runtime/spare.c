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

static _Thread_local struct {
    bool open;  /* it has been asked for; */
    bool keeps; /* it is emptied when the thread ends, and keeps nothing from then on */
    size_t kept_bytes;
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

static void empty(struct shelf *shelf)
{
    struct block *block;

    while ((block = shelf->first) != NULL) {
        shelf->first = block->next;
        free(block);
    }
    spare.kept_bytes -= shelf->bytes;
    shelf->bytes = 0;
}

static void empty_fullest(void)
{
    struct shelf *fullest = &spare.shelves[0];

    for (size_t i = 1; i < SIZES_COUNT; i++) {
        if (spare.shelves[i].bytes > fullest->bytes) {
            fullest = &spare.shelves[i];
        }
    }
    empty(fullest);
}

static void thread_ends(void *arg)
{
    (void)arg;
    spare.keeps = false;
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        empty(&spare.shelves[i]);
    }
}

static void make_key(void)
{
    has_key = pthread_key_create(&key, thread_ends) == 0;
}

static void open_spare(void)
{
    spare.open = true;
    (void)pthread_once(&once, make_key);
    spare.keeps = KEEPS && has_key && pthread_setspecific(key, &spare) == 0;
}

size_t tdm__spare_kept_bytes(void)
{
    return spare.kept_bytes;
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
    spare.kept_bytes -= bytes_of(index);
    return block;
}

void *tdm__spare_take_zeroed(size_t size_bytes)
{
    void *memory = tdm__spare_take(size_bytes);

    return memory == NULL ? NULL : memset(memory, 0, size_bytes);
}

void tdm__spare_give(void *memory, size_t size_bytes)
{
    size_t index = index_of(size_bytes);
    struct block *block = memory;
    struct shelf *shelf;

    if (memory == NULL) {
        return;
    }
    if (!spare.open) {
        open_spare();
    }
    if (index >= SIZES_COUNT || !spare.keeps) {
        free(memory);
        return;
    }
    if (spare.kept_bytes + bytes_of(index) > TDM__SPARE_KEPT_BYTES_MAX) {
        empty_fullest();
    }
    shelf = &spare.shelves[index];
    block->next = shelf->first;
    shelf->first = block;
    shelf->bytes += bytes_of(index);
    spare.kept_bytes += bytes_of(index);
}
