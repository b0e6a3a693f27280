/* weight_fixture.h - two trainer ranks and an engine rank that share one GPU and a small model.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_WEIGHT_FIXTURE_H
#define TDM_TESTS_SUPPORT_WEIGHT_FIXTURE_H

#include "colocate/weights/layout.h"
#include "colocate/weights/receiver.h"
#include "colocate/weights/sender.h"
#include "tests/support/host_gpu.h"
#include "tests/support/test_random.h"

enum { WORLD_TENSORS = 6, WORLD_RANKS = 2, WORLD_MODEL_BYTES_MAX = 1 << 16 };

/* An engine that keeps the whole model: tensor after tensor, as in `truth`. */
struct world_engine {
    const struct weight_fixture *world; /* borrowed */
    uint32_t begins;
    uint32_t loads;
    uint32_t completes;
    tdm_status load_fails; /* with this, when it is not TDM_OK */
};

/* Everything in one process; only filling a bucket takes a thread a rank. */
struct weight_fixture {
    struct test_random chance;
    struct host_gpu *gpu;
    struct tdm__location location;
    struct tdm__arena *arenas[2]; /* of the trainers, of the engine; the same for the regions */
    struct tdm__regions *regions[2];
    struct tdm_tensor_info infos[WORLD_TENSORS];
    struct tdm__manifest *manifest;
    uint64_t offsets[WORLD_TENSORS];            /* in `truth`, and in the engine's weights */
    unsigned char truth[WORLD_MODEL_BYTES_MAX]; /* what the trainers hold */
    tdm_region *params[WORLD_RANKS];            /* each rank's part of it */
    struct tdm_slice slices[WORLD_RANKS][WORLD_TENSORS];
    struct tdm__layout layouts[WORLD_RANKS];
    tdm_collective_group *groups[WORLD_RANKS];
    struct tdm__sender *senders[WORLD_RANKS];
    tdm_region *weights;
    struct world_engine engine;
    struct tdm__receiver *receiver;
    struct tdm__id update;
    uint64_t epoch;
};

/* Runs a group of tests, which is given its name, once on each device: the virtual GPU, and
 * CUDA's by the fake library, where copies and kernels run at once, or as late as they may.
 * Returns the sum of what it returns. */
int weight_fixture_everywhere(int (*run)(const char *device));
/* Is it CUDA's at the moment? */
bool weight_fixture_is_cuda(void);

struct weight_fixture *weight_fixture_open(const char *test, enum tdm__verify verify);
/* Also checks that nothing is left on the GPU. */
void weight_fixture_close(struct weight_fixture *world);

/* Bytes to and from a region, wherever it is: by the trainers' device, or the engine's. */
void weight_fixture_put(const struct weight_fixture *world, int device, void *address,
                        const void *bytes, size_t size_bytes);
void weight_fixture_get(const struct weight_fixture *world, int device, void *bytes,
                        const void *address, size_t size_bytes);

/* The trainers get other weights. */
void weight_fixture_learn(struct weight_fixture *world);
/* A new update: another id, a higher epoch; all buckets and the shadow get memory. */
void weight_fixture_begin(struct weight_fixture *world);
/* Both ranks at once. */
tdm_status weight_fixture_fill(struct weight_fixture *world, uint32_t bucket);
struct tdm_bytes weight_fixture_describe(struct weight_fixture *world, uint32_t rank,
                                         uint32_t bucket);
/* Fills, describes by rank 0, and stages. */
tdm_status weight_fixture_send(struct weight_fixture *world, uint32_t bucket);
void weight_fixture_send_all(struct weight_fixture *world);
/* A whole update, committed. */
void weight_fixture_commit(struct weight_fixture *world);
/* The trainers' buckets go. */
void weight_fixture_pause_buckets(struct weight_fixture *world);

/* Does the served region hold the trainers' weights, byte for byte? */
bool weight_fixture_serves_truth(const struct weight_fixture *world);

#endif
