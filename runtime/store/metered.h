/* metered.h - a store around another one that measures every operation. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_STORE_METERED_H
#define TDM_RUNTIME_STORE_METERED_H

#include "runtime/store.h"

#include <stdio.h>

/* Takes `inner`: closing this one closes it. */
tdm_status tdm__store_metered_open(struct tdm__store *inner, struct tdm__store **store_out);
/* What this process's observed stores have counted, for Prometheus. */
void tdm__store_metered_write_metrics(FILE *out);

#endif
