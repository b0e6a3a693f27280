/* faulty_store.h - a store that loses and delays operations, for tests of a whole node. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_FAULTY_STORE_H
#define TDM_CLI_FAULTY_STORE_H

#include "runtime/store.h"

/* Opens a store that forwards to `inner`, which the caller keeps and closes later. One in `one_in`
 * operations loses its request or its reply (it completes with TDM_E_STORE), or is delayed; a
 * generator seeded with `seed` decides. `tandemd --store-faults` uses it. */
tdm_status tdm__store_faulty_open(struct tdm__loop *loop, struct tdm__store *inner, uint64_t seed,
                                  uint32_t one_in, struct tdm__store **store_out);

#endif
