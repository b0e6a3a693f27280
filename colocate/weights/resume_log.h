/* resume_log.h - what of an update is in a shadow: which buckets, with which sums. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_RESUME_LOG_H
#define TDM_COLOCATE_WEIGHTS_RESUME_LOG_H

#include "colocate/weights/tensor_handles.h"
#include "runtime/messages/messages.h"

/* An update that was aborted is begun anew with the same bytes.  What a member has by then it
 * need not get again: it tells its resume_log, and whoever sends goes on behind it if the
 * resume_log is what the same buckets would come to now.  Two that are equal stand for the same
 * bytes at the same places.
 *
 * Buckets come in order, so a resume_log is short: all before `next` are here, and `sums` is of
 * the records of each, one after the other.  A bucket is added when its last byte is in place
 * and has been compared, and not before. */
struct tdm__resume_log {
    uint32_t next; /* 0: nothing is here */
    struct tdm__hash sums;
};

/* The records of a bucket: which parts, where they belong, their sums.  Where they lay in the
 * bucket is not a part of it. */
void tdm__resume_log_add_bucket(struct tdm__resume_log *resume_log, uint32_t bucket,
                                const struct tdm__tensor_record *records, uint32_t records_count);
bool tdm__resume_log_equal(const struct tdm__resume_log *a, const struct tdm__resume_log *b);

/* How a member keeps its resume_log: pure, so that a test can walk it.  All zero: nothing is here.
 */
struct tdm__resume_tracker {
    struct tdm__resume_log resume_log;
    bool is_open;      /* a bucket is under way: nobody knows what is here, should it not arrive */
    bool is_unsettled; /* an update has begun, and may be of the same bytes or not */
};

/* An update begins: maybe what is here counts, unless its first bucket is one that is here. */
void tdm__resume_tracker_begin_update(struct tdm__resume_tracker *tracker);
/* A bucket has come, and not a byte of it is touched.  `*begun_out`: nothing is here, it is the
 * first.  TDM_E_STATE: it, or one after it, was here, or one before it never arrived. */
tdm_status tdm__resume_tracker_open_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                           bool *begun_out);
/* All of it is in place, and was compared. */
void tdm__resume_tracker_close_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                      const struct tdm__tensor_record *records,
                                      uint32_t records_count);
/* What may be told.  `is_exported`: others may write to the shadow, and do so as long as the update
 * is not settled. */
struct tdm__resume_log tdm__resume_tracker_snapshot(const struct tdm__resume_tracker *tracker,
                                                    bool is_exported);

/* As calls carry it: (next, high, low).  TDM_E_PROTOCOL; nil is an empty one. */
void tdm__resume_log_write(const struct tdm__resume_log *resume_log, tdm_writer *writer);
struct tdm__resume_log tdm__journal_of_message(const struct tdm__journal_message *message);
tdm_status tdm__resume_log_read(const tdm_value *value, struct tdm__resume_log *resume_log_out);

#endif
