/* rank_trace.h - the rows of a job's trace, and what a rank did as events in its row. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_TRACE_H
#define TDM_COLOCATE_JOB_RANK_TRACE_H

#include "colocate/job/trace.h"

#include <tandem/value.h>

/* Numbers of the processes in the trace of a job, in the order in which a viewer shows them. The
 * threads of the last two are the ranks. */
enum tdm__trace_process { TDM__TRACE_JOB = 0, TDM__TRACE_TRAINERS = 1, TDM__TRACE_ENGINES = 2 };

/* Writes the spans of rank `rank`, an array as tdm__spans_write() encodes it, as events of that
 * process, up to the first malformed one. `*resident_bytes` is the number of bytes that the rank
 * has on its GPU. A span that resumes or pauses memory changes it and adds a sample of it to the
 * trace. */
void tdm__rank_trace_write(struct tdm__trace *trace, enum tdm__trace_process process, uint32_t rank,
                           const tdm_value *spans, uint64_t *resident_bytes);

#endif
