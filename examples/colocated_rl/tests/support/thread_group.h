/* thread_group.h - the calls of tandem/collective.h among threads of one process, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COLOCATED_RL_TESTS_THREAD_GROUP_H
#define COLOCATED_RL_TESTS_THREAD_GROUP_H

#include <tandem/collective.h>

/* Replaces the library's collective.c in programs that it is linked to. The contract is the same
 * without deadlines. */
struct thread_group;

struct thread_group *thread_group_create(uint32_t ranks_count);
void thread_group_destroy(struct thread_group *group); /* NULL is allowed */
/* Returns a rank's member, borrowed from the group. */
tdm_collective_group *thread_group_member(struct thread_group *group, uint32_t rank);

#endif
