/* spare.c - memory for the many small things that live as long as a call. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/spare.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
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
    uint32_t left;       /* that it may still take */
};

static _Thread_local struct {
    bool open; /* it is emptied when the thread ends */
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

static void thread_ends(void *arg)
{
    (void)arg;
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        struct shelf *shelf = &spare.shelves[i];
        struct block *block;

        shelf->left = 0;
        while ((block = shelf->first) != NULL) {
            shelf->first = block->next;
            free(block);
        }
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
    if (!KEEPS || !has_key || pthread_setspecific(key, &spare) != 0) {
        return; /* it keeps nothing */
    }
    for (size_t i = 0; i < SIZES_COUNT; i++) {
        spare.shelves[i].left = (uint32_t)(TDM__SPARE_KEPT_BYTES_MAX / ((i + 1) * STEP_BYTES));
    }
}

void *tdm__spare_take(size_t size_bytes)
{
    size_t index = index_of(size_bytes);
    struct block *block;

    if (index >= SIZES_COUNT) {
        return malloc(size_bytes);
    }
    block = spare.shelves[index].first;
    if (block == NULL) {
        return malloc(KEEPS ? (index + 1) * STEP_BYTES : size_bytes);
    }
    spare.shelves[index].first = block->next;
    spare.shelves[index].left++;
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
    struct shelf *shelf = index < SIZES_COUNT ? &spare.shelves[index] : NULL;
    struct block *block = memory;

    if (memory == NULL) {
        return;
    }
    if (!spare.open) {
        open_spare();
    }
    if (shelf == NULL || shelf->left == 0) {
        free(memory);
        return;
    }
    block->next = shelf->first;
    shelf->first = block;
    shelf->left--;
}
