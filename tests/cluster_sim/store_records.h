/* store_records.h - what the store of the simulated cluster has. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_STORE_RECORDS_H
#define TDM_TESTS_CLUSTER_SIM_STORE_RECORDS_H

#include "runtime/store.h"

#include <stdbool.h>

/* These functions read at once, without a message to the store. */

/* Returns whether the store has a record with this key. */
bool store_records_have(const char *key);
/* Calls fn(arg, record) for each record whose key begins with `prefix`. */
void store_records_each(const char *prefix,
                        void (*fn)(void *arg, const struct tdm__store_record *record), void *arg);

#endif
