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
    uint32_t next; /* Index of the first bucket that is not present; 0 if no bucket is present. */
    /* Sum of the hashes of the tensor records of all complete buckets. It does not depend on their
     * order, so that each trainer rank can compute the share of what it has written. */
    struct tdm__hash sums;
};

/* Adds a complete bucket to the log. The log covers which slices the bucket's records describe,
 * where they belong and their checksums. */
void tdm__resume_log_add_bucket(struct tdm__resume_log *resume_log, uint32_t bucket,
                                const struct tdm__tensor_record *records, uint32_t records_count);
/* Adds to the log the sums of other tensor records of the same buckets. */
void tdm__resume_log_add_share(struct tdm__resume_log *resume_log, const struct tdm__hash *share);
/* Returns true if both logs stand for the same bytes of the same buckets. */
bool tdm__resume_log_equal(const struct tdm__resume_log *a, const struct tdm__resume_log *b);

/* Maintains the resume log of one receiver. All zero means that nothing is present. The functions
 * are pure, so that a test can explore all states. */
struct tdm__resume_tracker {
    struct tdm__resume_log resume_log; /* Buckets that the receiver has completely. */
    /* True while a bucket is being received. If the bucket never completes, the contents of the
     * shadow are unknown. */
    bool is_open;
    /* True if an update has begun and its first bucket has not yet shown whether the present
     * buckets count for it. */
    bool is_unsettled;
};

/* Records that an update begins. The buckets in the log count for it if the first bucket that it
 * opens comes after them. If that bucket is in the log already, the update starts again, and
 * opening the bucket empties the log. */
void tdm__resume_tracker_begin_update(struct tdm__resume_tracker *tracker);
/* Records that a bucket arrives, before a byte of it is touched. Sets `begun_out` to true if no
 * bucket is present. Returns TDM_E_STATE if this bucket or a later one is present, or if an earlier
 * bucket never completed. */
tdm_status tdm__resume_tracker_open_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                           bool *begun_out);
/* Records that the bucket `bucket` has been received completely and verified. */
void tdm__resume_tracker_close_bucket(struct tdm__resume_tracker *tracker, uint32_t bucket,
                                      const struct tdm__tensor_record *records,
                                      uint32_t records_count);
/* Returns the resume log that may be reported to the sender. `is_exported` is true if other
 * processes write into the shadow; the log is then empty while is_unsettled is true. */
struct tdm__resume_log tdm__resume_tracker_snapshot(const struct tdm__resume_tracker *tracker,
                                                    bool is_exported);

/* Encodes a resume log as messages carry it: (next, high, low). */
void tdm__resume_log_write(const struct tdm__resume_log *resume_log, tdm_writer *writer);
/* Returns the resume log that a decoded message carries. */
struct tdm__resume_log tdm__resume_log_of_message(const struct tdm__resume_log_message *message);
/* Decodes a resume log from a value of a message. A nil value is an empty log. Returns
 * TDM_E_PROTOCOL for a malformed value. */
tdm_status tdm__resume_log_read(const tdm_value *value, struct tdm__resume_log *resume_log_out);

#endif
