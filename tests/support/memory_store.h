/* memory_store.h - a store in the memory of this process, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_MEMORY_STORE_H
#define TDM_TESTS_MEMORY_STORE_H

#include "runtime/store.h"

/* Opens an empty store.  Every operation takes effect when it is called, and no reply is lost.
 */
tdm_status tdm__store_memory_open(struct tdm__loop *loop, struct tdm__store **store_out);
/* Pretends that another server has taken over the store with all data, so that the next renewal
 * begins a new generation. */
void memory_store_replace(struct tdm__store *store);

#endif
