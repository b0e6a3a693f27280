/* read_gate.h - keeps reads of served weights and the change to the next version apart. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_SCHEME_READ_GATE_H
#define TDM_COLOCATE_SCHEME_READ_GATE_H

#include "colocate/scheme/receiver.h"

/* Only the receiving thread calls these functions. Reads begin and end in any thread
 * (tdm_weights_read_begin(), tandem/weights.h). */

/* Shuts the receiver's gate, so that no read begins, and waits until no reader is left.
 * TDM_E_TIMEOUT, with the number of readers, if some have not ended at `deadline_ms` on the
 * monotonic clock; the gate is open again then. */
tdm_status tdm__read_gate_shut(tdm_weights_receiver *receiver, int64_t deadline_ms);
/* Sets the version that is served and opens the gate. With `undecided` the gate stays shut and
 * reads fail, because the outcome of the version that was voted for is not known. */
void tdm__read_gate_open(tdm_weights_receiver *receiver, uint64_t version, bool undecided);

#endif
