/* state_explorer.c - visits every state that can be reached, once, nearest first. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/state_explorer.h"

#include "runtime/assert.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_COUNT = 1 << 20, KEYS_MAX = 1 << 19, WAITING_MAX = 1 << 15 };

static void make_table(struct state_explorer *walk)
{
    /* The kernel provides only the pages that are used. */
    walk->keys = malloc(walk->keys_max * walk->key_bytes);
    walk->slots = calloc(walk->slots_count, sizeof(walk->slots[0]));
    TDM_ASSERT(walk->keys != NULL && walk->slots != NULL);
}

void state_explorer_init(struct state_explorer *walk, size_t key_bytes, size_t state_bytes)
{
    *walk = (struct state_explorer){.key_bytes = key_bytes,
                                    .state_bytes = state_bytes,
                                    .slots_count = SLOTS_COUNT,
                                    .keys_max = KEYS_MAX,
                                    .waiting_max = WAITING_MAX};
    make_table(walk);
    walk->states = malloc(walk->waiting_max * state_bytes);
    TDM_ASSERT(walk->states != NULL);
}

void state_explorer_init_plain(struct state_explorer *walk, size_t state_bytes, uint32_t states_max)
{
    *walk = (struct state_explorer){.key_bytes = state_bytes,
                                    .slots_count = 2 * states_max,
                                    .keys_max = states_max,
                                    .waiting_max = states_max};
    make_table(walk);
}

void state_explorer_fini(struct state_explorer *walk)
{
    free(walk->keys);
    free(walk->states);
    free(walk->slots);
}

static uint32_t hash(const uint8_t *bytes, size_t size_bytes)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* Offset basis of the hash FNV-1a. */

    for (size_t i = 0; i < size_bytes; i++) {
        sum = (sum ^ bytes[i]) * UINT64_C(0x100000001b3);
    }
    return (uint32_t)(sum >> 32 ^ sum);
}

uint32_t state_explorer_add(struct state_explorer *walk, const void *key, const void *state)
{
    uint32_t slot = hash(key, walk->key_bytes) % walk->slots_count;
    uint32_t number;

    walk->transitions += walk->seen > 0;
    while (walk->slots[slot] != 0) {
        number = walk->slots[slot] - 1;
        if (memcmp(walk->keys + number * walk->key_bytes, key, walk->key_bytes) == 0) {
            return number;
        }
        slot = (slot + 1) % walk->slots_count;
    }
    TDM_ASSERT(walk->seen < walk->keys_max);
    TDM_ASSERT(walk->seen - walk->visited < walk->waiting_max);
    number = walk->seen++;
    walk->slots[slot] = number + 1;
    memcpy(walk->keys + number * walk->key_bytes, key, walk->key_bytes);
    if (walk->states != NULL) {
        memcpy(walk->states + number % walk->waiting_max * walk->state_bytes, state,
               walk->state_bytes);
    }
    return number;
}

bool state_explorer_next(struct state_explorer *walk, void *state_out)
{
    if (walk->visited == walk->seen) {
        return false;
    }
    if (walk->states != NULL) {
        memcpy(state_out, walk->states + walk->visited % walk->waiting_max * walk->state_bytes,
               walk->state_bytes);
    } else {
        memcpy(state_out, state_explorer_state(walk, walk->visited), walk->key_bytes);
    }
    walk->visited++;
    return true;
}

const void *state_explorer_state(const struct state_explorer *walk, uint32_t number)
{
    return walk->keys + number * walk->key_bytes;
}
