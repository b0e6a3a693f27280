/* resume_log.h - which buckets of an aborted update a receiver still has. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_WEIGHTS_RESUME_LOG_H
#define TDM_COLOCATE_WEIGHTS_RESUME_LOG_H

#include "colocate/weights/tensor_handles.h"
#include "runtime/messages/messages.h"

/* When an update is aborted, the next one often has the same bytes. A receiver then reports with
 * a resume log which buckets it has completely. The sender compares the log with the log that
 * its own buckets would give, and continues after them if both are equal. Equal logs stand for
 * the same bytes at the same places.
 *
 * Buckets are received in order, so a log is short. A bucket is added only after its last byte
 * is in place and has been verified. */
struct tdm__resume_log {
    uint32_t next; /* Number of the next bucket; all before it are present. 0 if none exists. */
    struct tdm__hash sums; /* Hash of the records of all present buckets, in their order. */
};

/* Adds a bucket to the log. The log covers which slices its records are, where they belong and
 * their checksums, but not where they lay in the bucket. */
void tdm__resume_log_add_bucket(struct tdm__resume_log *resume_log, uint32_t bucket,
                                const struct tdm__tensor_record *records, uint32_t records_count);
/* Returns true if both logs stand for the same bytes. */
bool tdm__resume_log_equal(const struct tdm__resume_log *a, const struct tdm__resume_log *b);

/* Maintains the resume log of one receiver. All zero means that nothing is present. The functions
 * are pure, so that a test can explore all states. */
struct tdm__resume_tracker {
    struct tdm__resume_log resume_log; /* Buckets that are present. */
    /* A bucket is being received. If it never completes, the contents of the shadow are unknown. */
    bool is_open;
    /* A new update has begun, and it is not known yet whether it has the same bytes. */
    bool is_unsettled;
};

/* Records that an update begins. The present buckets keep counting until its first bucket turns out
 * to be one that is present. */
void tdm__resume_tracker_begin_update(struct tdm__resume_tracker *tracker);
/* Records that a bucket arrives, before a byte of it is touched. Sets `begun_out` to true if
 * nothing is present, so it is the first one. Returns TDM_E_STATE if this bucket or a later one is
 * present, or if an earlier one never completed. */
tdm_status tdm__resume_tracker_open_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                           bool *begun_out);
/* Records that the whole bucket is in place and has been verified. */
void tdm__resume_tracker_close_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                      const struct tdm__tensor_record *records,
                                      uint32_t records_count);
/* Returns the log that may be reported to the sender. `is_exported` is true if other processes may
 * write to the shadow. They do so while the update is not settled, so the log is then empty. */
struct tdm__resume_log tdm__resume_tracker_snapshot(const struct tdm__resume_tracker *tracker,
                                                    bool is_exported);

/* Writes the log as messages carry it: (next, high, low). */
void tdm__resume_log_write(const struct tdm__resume_log *resume_log, tdm_writer *writer);
/* Returns the log that a decoded message carries. */
struct tdm__resume_log tdm__resume_log_of_message(const struct tdm__resume_log_message *message);
/* Reads a log from a message. A nil value is an empty log. Returns TDM_E_PROTOCOL for a malformed
 * value. */
tdm_status tdm__resume_log_read(const tdm_value *value, struct tdm__resume_log *resume_log_out);

#endif
