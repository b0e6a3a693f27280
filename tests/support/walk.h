/* walk.h - visits every state that can be reached, once, nearest first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_WALK_H
#define TDM_TESTS_SUPPORT_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A state is any struct; its key is what tells it from others.  Start with walk_add() of the
 * first state, then take each with walk_next() and add those it leads to. */
struct walk {
    size_t key_bytes;
    size_t state_bytes;
    uint8_t *keys;   /* of all states seen, in the order seen; owned */
    uint8_t *states; /* of those not visited yet: a ring; owned; NULL: keys are states */
    uint32_t *slots; /* hash table of indices into keys, plus one; owned */
    uint32_t slots_count;
    uint32_t keys_max;
    uint32_t seen;
    uint32_t visited;
    uint32_t waiting_max;
    uint64_t transitions; /* calls of walk_add() but the first */
};

void walk_init(struct walk *walk, size_t key_bytes, size_t state_bytes);
/* For states that are their own keys: no byte of them is padding. */
void walk_init_plain(struct walk *walk, size_t state_bytes, uint32_t states_max);
void walk_fini(struct walk *walk);
/* Copies both.  Returns the number of the state, in the order seen. */
uint32_t walk_add(struct walk *walk, const void *key, const void *state);
/* False when all states were visited. */
bool walk_next(struct walk *walk, void *state_out);
/* The key of one that was seen, which is the state itself if the walk is plain. */
const void *walk_state(const struct walk *walk, uint32_t number);

#endif
