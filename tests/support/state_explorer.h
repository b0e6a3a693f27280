/* state_explorer.h - visits every reachable state once, in breadth-first order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_STATE_EXPLORER_H
#define TDM_TESTS_SUPPORT_STATE_EXPLORER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sets of visited and waiting states. A state is any struct; its key distinguishes it from
 * others. Start with state_explorer_add() of the first state, then take each with
 * state_explorer_next() and add its successors. */
struct state_explorer {
    size_t key_bytes;
    size_t state_bytes;
    uint8_t *keys; /* Keys of all states seen, in the order seen (owned). */
    /* Ring buffer of the states not visited yet (owned); NULL if keys are states. */
    uint8_t *states;
    uint32_t *slots; /* Hash table of indices into keys, plus one (owned). */
    uint32_t slots_count;
    uint32_t keys_max;
    uint32_t seen;
    uint32_t visited;
    uint32_t waiting_max;
    uint64_t transitions; /* Calls of state_explorer_add() without the first one. */
};

void state_explorer_init(struct state_explorer *walk, size_t key_bytes, size_t state_bytes);
/* Initialises an explorer for states that are their own keys, without padding bytes. */
void state_explorer_init_plain(struct state_explorer *walk, size_t state_bytes,
                               uint32_t states_max);
void state_explorer_fini(struct state_explorer *walk);
/* Adds a state unless it was seen before; copies key and state. Returns the number of the state in
 * the order seen. */
uint32_t state_explorer_add(struct state_explorer *walk, const void *key, const void *state);
/* Takes the next state. Returns false when all states were visited. */
bool state_explorer_next(struct state_explorer *walk, void *state_out);
/* Returns the key of a state that was seen, which is the state itself after
 * state_explorer_init_plain(). */
const void *state_explorer_state(const struct state_explorer *walk, uint32_t number);

#endif
