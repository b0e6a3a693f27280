/* state_explorer.h - visits every state that can be reached, once, nearest first. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_STATE_EXPLORER_H
#define TDM_TESTS_SUPPORT_STATE_EXPLORER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A state is any struct; its key is what tells it from others.  Start with state_explorer_add() of
 * the first state, then take each with state_explorer_next() and add those it leads to. */
struct state_explorer {
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
    uint64_t transitions; /* calls of state_explorer_add() but the first */
};

void state_explorer_init(struct state_explorer *walk, size_t key_bytes, size_t state_bytes);
/* For states that are their own keys: no byte of them is padding. */
void state_explorer_init_plain(struct state_explorer *walk, size_t state_bytes,
                               uint32_t states_max);
void state_explorer_fini(struct state_explorer *walk);
/* Copies both.  Returns the number of the state, in the order seen. */
uint32_t state_explorer_add(struct state_explorer *walk, const void *key, const void *state);
/* False when all states were visited. */
bool state_explorer_next(struct state_explorer *walk, void *state_out);
/* The key of one that was seen, which is the state itself if the walk is plain. */
const void *state_explorer_state(const struct state_explorer *walk, uint32_t number);

#endif
