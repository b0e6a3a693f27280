/* announcement_list.h - announcements of a bucket on their way to the engine ranks. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_COLOCATE_JOB_ANNOUNCEMENT_LIST_H
#define TDM_COLOCATE_JOB_ANNOUNCEMENT_LIST_H

#include "colocate/job/rank_announcement.h"

/* Announcements (rank_announcement.h) of one bucket, with memory of their own. A zeroed list is
 * empty; tdm__announcement_list_fini() frees it. One thread at a time may use it. */
struct tdm__announcement_list {
    struct tdm__rank_announcement_message *items; /* The announcements; owned, with their bytes. */
    uint32_t count;                               /* Number of announcements. */
    uint32_t capacity;                            /* Number of items for which there is memory. */
};

/* Appends a copy of an announcement. */
tdm_status tdm__announcement_list_add(struct tdm__announcement_list *list,
                                      const struct tdm__rank_announcement_message *announcement);
/* Removes all announcements. */
void tdm__announcement_list_clear(struct tdm__announcement_list *list);
/* Frees the list. */
void tdm__announcement_list_fini(struct tdm__announcement_list *list);

/* Encodes the list as the message "announcement_list", which is also the argument of an engine
 * rank's method "stage_slices". */
tdm_status tdm__announcement_list_pack(const struct tdm__announcement_list *list,
                                       tdm_writer *writer);
/* Returns the largest number of bytes of a packed announcement without attached bytes and with
 * `handles_bytes` bytes of tensor handles, or of an empty list with `handles_bytes` 0. */
size_t tdm__announcement_list_packed_max(size_t handles_bytes);

/* Reads a packed list and appends to `list` the announcements for the `ranks_count` engine ranks
 * from `first` on. No announcement is checked. */
tdm_status tdm__announcement_list_unpack(struct tdm_bytes packed, uint32_t first,
                                         uint32_t ranks_count, struct tdm__announcement_list *list);
/* Reads a packed list that came to an engine from its gather group, and appends each announcement
 * to the list of its engine rank: to lists[i] if it is for rank i of the engine. Those for other
 * engines of the group are left out. TDM_E_PROTOCOL if one is for an engine of another group. No
 * announcement is checked otherwise. */
tdm_status tdm__announcement_list_route(struct tdm_bytes packed,
                                        const struct tdm__gather_groups *groups, uint32_t engine,
                                        struct tdm__announcement_list *lists);

#endif
