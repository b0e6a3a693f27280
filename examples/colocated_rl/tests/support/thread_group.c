/* thread_group.c - the calls of tandem/collective.h among threads of one process, for tests. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "examples/colocated_rl/tests/support/thread_group.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 16 };

struct tdm_collective_group {
    struct thread_group *shared;
    uint32_t rank;
};

struct thread_group {
    uint32_t ranks_count;
    pthread_barrier_t barrier;
    const void *data[RANKS_MAX]; /* Data that each rank gives to the current call. */
    struct tdm_collective_group members[RANKS_MAX];
};

struct thread_group *thread_group_create(uint32_t ranks_count)
{
    struct thread_group *group = calloc(1, sizeof(*group));

    if (group == NULL || ranks_count > RANKS_MAX ||
        pthread_barrier_init(&group->barrier, NULL, ranks_count) != 0) {
        abort();
    }
    group->ranks_count = ranks_count;
    for (uint32_t rank = 0; rank < ranks_count; rank++) {
        group->members[rank] = (struct tdm_collective_group){group, rank};
    }
    return group;
}

void thread_group_destroy(struct thread_group *group)
{
    if (group != NULL) {
        (void)pthread_barrier_destroy(&group->barrier);
        free(group);
    }
}

tdm_collective_group *thread_group_member(struct thread_group *group, uint32_t rank)
{
    return &group->members[rank];
}

static void meet(tdm_collective_group *group)
{
    (void)pthread_barrier_wait(&group->shared->barrier);
}

/* Publishes this rank's data; the other ranks may read it until the next meet(). */
static void show(tdm_collective_group *group, const void *data)
{
    group->shared->data[group->rank] = data;
    meet(group);
}

static void *scratch(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes + 1);

    if (memory == NULL) {
        abort();
    }
    return memory;
}

/* Ranks of one process cannot join further groups: only replicas of one rank can be tested. */
tdm_status tdm_collective_join(tdm_runtime *runtime, const struct tdm_collective_options *options,
                               tdm_collective_group **group_out)
{
    (void)runtime;
    *group_out = NULL;
    return tdm_fail(TDM_E_UNSUPPORTED, "group %s of threads", options->name);
}

void tdm_collective_leave(tdm_collective_group *group)
{
    (void)group;
}

uint32_t tdm_collective_rank(const tdm_collective_group *group)
{
    return group->rank;
}

uint32_t tdm_collective_ranks_count(const tdm_collective_group *group)
{
    return group->shared->ranks_count;
}

tdm_status tdm_collective_barrier(tdm_collective_group *group)
{
    meet(group);
    return TDM_OK;
}

tdm_status tdm_collective_all_reduce(tdm_collective_group *group, float *data, size_t count,
                                     enum tdm_reduction reduction)
{
    float *result = scratch(count * sizeof(float));

    show(group, data);
    for (uint32_t rank = 0; rank < group->shared->ranks_count; rank++) {
        const float *other = group->shared->data[rank];

        for (size_t i = 0; i < count; i++) {
            int takes = reduction == TDM_MAX && (rank == 0 || other[i] > result[i]);

            result[i] = takes ? other[i] : reduction == TDM_MAX ? result[i] : result[i] + other[i];
        }
    }
    meet(group);
    memcpy(data, result, count * sizeof(float));
    free(result);
    return TDM_OK;
}

tdm_status tdm_collective_all_reduce_double(tdm_collective_group *group, double *data, size_t count,
                                            enum tdm_reduction reduction)
{
    double *result = scratch(count * sizeof(double));

    show(group, data);
    for (uint32_t rank = 0; rank < group->shared->ranks_count; rank++) {
        const double *other = group->shared->data[rank];

        for (size_t i = 0; i < count; i++) {
            int takes = reduction == TDM_MAX && (rank == 0 || other[i] > result[i]);

            result[i] = takes ? other[i] : reduction == TDM_MAX ? result[i] : result[i] + other[i];
        }
    }
    meet(group);
    memcpy(data, result, count * sizeof(double));
    free(result);
    return TDM_OK;
}

tdm_status tdm_collective_all_gather(tdm_collective_group *group, const void *in,
                                     size_t bytes_per_rank, void *out)
{
    show(group, in);
    for (uint32_t rank = 0; rank < group->shared->ranks_count; rank++) {
        char *place = (char *)out + rank * bytes_per_rank;

        /* The rank keeps its own data in place, since others read it now. */
        if (place != group->shared->data[rank]) {
            memcpy(place, group->shared->data[rank], bytes_per_rank);
        }
    }
    meet(group);
    return TDM_OK;
}

tdm_status tdm_collective_reduce_scatter(tdm_collective_group *group, const float *in, size_t count,
                                         float *out)
{
    show(group, in);
    memset(out, 0, count * sizeof(float));
    for (uint32_t rank = 0; rank < group->shared->ranks_count; rank++) {
        const float *other = (const float *)group->shared->data[rank] + group->rank * count;

        for (size_t i = 0; i < count; i++) {
            out[i] += other[i];
        }
    }
    meet(group);
    return TDM_OK;
}
