/* weight_fixture.h - two trainer ranks and an engine rank that share one GPU and a small model.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_WEIGHT_FIXTURE_H
#define TDM_TESTS_SUPPORT_WEIGHT_FIXTURE_H

#include "colocate/weights/layout.h"
#include "colocate/weights/receiver.h"
#include "colocate/weights/weight_writer.h"
#include "colocate/weights/whole_tensors.h"
#include "tests/support/host_gpu.h"
#include "tests/support/test_random.h"

enum { WORLD_TENSORS = 6, WORLD_RANKS = 2, WORLD_MODEL_BYTES_MAX = 1 << 16 };

/* An engine that keeps the whole model, tensor after tensor as in `truth`. */
struct world_engine {
    const struct weight_fixture *world; /* Fixture that the engine belongs to (borrowed). */
    uint32_t begins;
    uint32_t loads;
    uint32_t completes;
    tdm_status load_fails; /* Status with which load() fails; TDM_OK: it succeeds. */
};

/* The fixture, in one process. */
struct weight_fixture {
    struct test_random chance;
    struct host_gpu *gpu;
    struct tdm__location location;
    /* Arenas of the trainers and of the engine; next their regions. */
    struct tdm__arena *arenas[2];
    struct tdm__regions *regions[2];
    struct tdm_tensor_info infos[WORLD_TENSORS];
    struct tdm__manifest *manifest;
    /* Offset of each tensor in `truth` and in the engine's weights. */
    uint64_t offsets[WORLD_TENSORS];
    unsigned char truth[WORLD_MODEL_BYTES_MAX]; /* The weights of the trainers. */
    tdm_region *params[WORLD_RANKS];            /* Each rank's part of the weights. */
    struct tdm_slice slices[WORLD_RANKS][WORLD_TENSORS];
    struct tdm__layout layouts[WORLD_RANKS];
    tdm_collective_group *groups[WORLD_RANKS];
    /* What each trainer rank sends to engines that get whole tensors; all from one plan. */
    struct tdm__whole_tensors *whole_tensors[WORLD_RANKS];
    struct tdm__transfer_plan *plan;
    struct tdm__weight_writer *writers[WORLD_RANKS];
    tdm_region *weights;
    struct world_engine engine;
    struct tdm__receiver *receiver;
    struct tdm__id update;
    uint64_t epoch;
};

/* Runs a group of tests, with its name as argument, on each device: the virtual GPU, and CUDA with
 * the fake library, with copies and kernels that run at once or as late as possible. Returns the
 * sum of the results. */
int weight_fixture_everywhere(int (*run)(const char *device));
/* Returns true if the current device is CUDA. */
bool weight_fixture_is_cuda(void);

struct weight_fixture *weight_fixture_open(const char *test, enum tdm__verify verify);
/* Gives the engine a receiver that loads new weights over the served weights. */
void weight_fixture_overwrite(struct weight_fixture *world);
/* Closes the fixture and checks that nothing is left on the GPU. */
void weight_fixture_close(struct weight_fixture *world);

/* These copy bytes to and from a region through a device: 0 is the trainers', 1 the engine's. */
void weight_fixture_put(const struct weight_fixture *world, int device, void *address,
                        const void *bytes, size_t size_bytes);
void weight_fixture_get(const struct weight_fixture *world, int device, void *bytes,
                        const void *address, size_t size_bytes);

/* Gives the trainers other weights. */
void weight_fixture_learn(struct weight_fixture *world);
/* Begins an update with a new ID and a higher epoch, and acquires memory for all buckets and the
 * shadow. */
void weight_fixture_begin(struct weight_fixture *world);
/* Returns the number of buckets of an update. */
uint32_t weight_fixture_buckets_count(const struct weight_fixture *world);
/* Fills a bucket on both ranks. */
tdm_status weight_fixture_fill(struct weight_fixture *world, uint32_t bucket);
/* Describes a filled bucket, which may have no memory. */
tdm_status weight_fixture_try_describe(struct weight_fixture *world, uint32_t rank, uint32_t bucket,
                                       struct tdm_bytes *bytes_out);
struct tdm_bytes weight_fixture_describe(struct weight_fixture *world, uint32_t rank,
                                         uint32_t bucket);
/* Fills a bucket, describes it on rank 0, and stages it. */
tdm_status weight_fixture_send(struct weight_fixture *world, uint32_t bucket);
void weight_fixture_send_all(struct weight_fixture *world);
/* Runs a complete update. */
void weight_fixture_commit(struct weight_fixture *world);
/* Releases the memory of the trainers' buckets. */
void weight_fixture_pause_buckets(struct weight_fixture *world);

/* Returns true if the served region equals the trainers' weights. */
bool weight_fixture_serves_truth(const struct weight_fixture *world);

#endif
