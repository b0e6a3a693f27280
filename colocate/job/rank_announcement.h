/* rank_announcement.h - what one trainer rank tells one engine rank about a bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_RANK_ANNOUNCEMENT_H
#define TDM_COLOCATE_JOB_RANK_ANNOUNCEMENT_H

#include "colocate/job/gather_groups.h"
#include "runtime/messages/messages.h"

/* An announcement is the message "rank_announcement". It contains a trainer rank's description of
 * what it has written into the bucket of an engine rank. If the trainer rank serves that engine
 * rank (gather_groups.h), the bytes that the library's attach() has given for it follow. The
 * announcement passes
 * through other processes on its way (announcement.h). One checksum covers the whole announcement,
 * so that the engine rank detects every changed bit. */

/* Checks the number of attached bytes and stores the checksum of the announcement. TDM_E_LIMIT,
 * with both numbers: more than TDM_ATTACHED_BYTES_MAX bytes are attached. */
tdm_status tdm__rank_announcement_seal(struct tdm__rank_announcement_message *announcement);

/* Checks an announcement that has arrived at an engine rank. TDM_E_CHECKSUM: it is not as it was
 * sealed. TDM_E_LIMIT: too many bytes are attached. TDM_E_PROTOCOL: it is for another image than
 * `image`, it is empty, or the trainer rank that attaches bytes does not serve the image. */
tdm_status tdm__rank_announcement_check(const struct tdm__rank_announcement_message *announcement,
                                        uint32_t image, const struct tdm__gather_groups *groups);

#endif
