/* metered.h - a store that wraps another one and measures every operation. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_METERED_H
#define TDM_RUNTIME_STORE_METERED_H

#include "runtime/store.h"

#include <stdio.h>

/* Opens a store that forwards every operation to the store `inner` and measures it. The new store
 * owns `inner` and closes it at the end. */
tdm_status tdm__store_metered_open(struct tdm__store *inner, struct tdm__store **store_out);
/* Writes the metrics of all metered stores of this process to `out` in Prometheus' text format. */
void tdm__store_metered_write_metrics(FILE *out);

#endif
