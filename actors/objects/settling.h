/* settling.h - waits until the owners of references have counted this process as a borrower. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_OBJECTS_SETTLING_H
#define TDM_ACTORS_OBJECTS_SETTLING_H

#include "actors/objects/ref.h"
#include "actors/objects/ref_records.h"

/* Returns true if the owner of each pinned reference has counted this process as a borrower.
 * References whose owner has ended count as settled. */
bool tdm__pins_are_settled(const struct tdm__pins *pins);
/* Drives the loop until all references are settled or `timeout_ms` have passed. */
tdm_status tdm__pins_wait_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                  int64_t timeout_ms);
/* Called once, with the loop's lock, when all pinned references are settled. */
typedef void tdm__pins_settled_fn(void *arg);
/* Calls fn(arg) when all references in `pins` are settled, immediately if they already are.
 * Copies and retains the list until then. On failure `fn` is not called. */
tdm_status tdm__pins_on_settled(tdm_runtime *runtime, const struct tdm__pins *pins,
                                tdm__pins_settled_fn *fn, void *arg);
/* Calls all callbacks that wait for references to settle, at the end of the runtime. */
void tdm__pins_abandon_settling(tdm_runtime *runtime);
/* Calls the callbacks whose pinned references have all settled. Called after a pin was
 * acknowledged or an owner ended. */
void tdm__ref_table_check_settling(struct tdm__ref_table *objects);

#endif
