/* cluster_store.h - the store of the simulated cluster: requests and replies that take time, get
 * lost and are repeated. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_CLUSTER_STORE_H
#define TDM_TESTS_CLUSTER_SIM_CLUSTER_STORE_H

#include "runtime/id.h"
#include "runtime/store.h"

#include <stdbool.h>
#include <stdint.h>

/* One memory store (tests/support/memory_store.h), and for each daemon a client that implements the
 * interface of runtime/store.h. Commits are numbered and repeated as by runtime/redis/store.c; only
 * the opening of a session takes no time. */

/* Starts the process of the store. */
void cluster_store_begin(void);
/* All clients must be closed. */
void cluster_store_end(void);

/* What happens to the store. */
enum cluster_store_fault {
    STORE_ANSWERS,  /* It works. */
    STORE_STOPPED,  /* It does nothing, as after SIGSTOP; requests wait. */
    STORE_IS_BROKEN /* All connections drop, and new ones wait. */
};
void cluster_store_set_fault(enum cluster_store_fault fault);
/* Makes connections drop at about one of `one_in` operations; 0 for none. */
void cluster_store_set_losses(uint32_t one_in);
/* Holds back commits of the machine that write or delete the record of a name, and what its daemon
 * sends after them. The key is borrowed; NULL lets all of them arrive. */
void cluster_store_hold_name(const char *key, uint32_t machine);
/* Returns whether a commit that writes this name was sent since. */
bool cluster_store_name_is_claimed(void);
/* Restarts the store with or without its data. */
void cluster_store_restart(bool keeps_data);
/* The server is replaced by one with an older state, which has no actors and names yet. */
void cluster_store_restart_without_actors(void);
/* Whether the store was ever restarted, so that names and actors may be held twice for a while. */
bool cluster_store_was_restarted(void);
/* When the store last lost data; 0 if never. */
int64_t cluster_store_lost_data_ms(void);

/* Creates a client on the loop of the running process. `writer` is the ID of the node. fn(arg) is
 * called at each new connection. */
struct tdm__store *cluster_store_connect(struct tdm__loop *loop, const struct tdm__id *writer,
                                         void (*fn)(void *arg), void *arg);

/* The memory store, to be read. */
const struct tdm__store *cluster_store_memory(void);

#endif
