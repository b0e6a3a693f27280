/* weight_writer_world.h - trainer ranks and an engine rank that update weights with a transfer
 * plan. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_WEIGHT_WRITER_WORLD_H
#define TDM_TESTS_SUPPORT_WEIGHT_WRITER_WORLD_H

#include "colocate/weights/weight_writer.h"
#include "tests/support/weight_fixture.h"

enum {
    WRITERS_CHUNK_BYTES = 4096,
    WRITERS_ROUND_BYTES = 1024,
    WEIGHT_WRITERS_GAP_BYTES = 64,
    WEIGHT_WRITERS_WAIT_MS = 5000
};

/* A model in a weight_fixture. The engine rank wants one tensor in halves and one by blocks. */
struct weight_writers {
    struct weight_fixture *world;
    bool in_place; /* True: trainers write into the shadow; false: into buckets. */
    /* Slices of the engine rank, with addresses in its weights. */
    struct tdm_slice slices[WORLD_TENSORS];
    /* The same slices with offsets, as a transfer plan expects them. */
    struct tdm_slice offsets[WORLD_TENSORS];
    struct tdm__layout layout;
    /* Where each trainer rank is; the engine rank is where rank 0 is. */
    struct tdm__location locations[WORLD_RANKS];
    unsigned char flipped_bits; /* Bits that flip in what crosses between nodes. */
    struct tdm__transfer_plan *transfer_plan;
    struct tdm__weight_writer *weight_writers[WORLD_RANKS];
    bool engine_is_absent;             /* True: the engine takes no part in updates. */
    struct tdm__resume_log resume_log; /* The resume log that the engine rank has sent. */
};

/* Opens the fixture with chunks of WRITERS_CHUNK_BYTES. */
struct weight_writers *weight_writers_open(bool in_place, enum tdm__verify verify);
struct weight_writers *weight_writers_open_with(bool in_place, enum tdm__verify verify,
                                                uint64_t chunk_bytes);
/* Opens the fixture with rank 1 on another node than rank 0 and the engine rank. */
struct weight_writers *weight_writers_open_divided(bool in_place);
/* Opens the fixture with an engine rank that copies buckets over the weights that it serves. */
struct weight_writers *weight_writers_open_overwriting(void);
/* Closes the fixture and checks that no memory is held. */
void weight_writers_close(struct weight_writers *m);

/* Returns the region that trainers write into, as its owner maps it. */
const tdm_region *weight_writers_target(const struct weight_writers *m);
/* Acquires memory for a new update and describes it in `target`. */
void weight_writers_make_room(struct weight_writers *m, struct tdm__transfer_target *target);
void weight_writers_open_targets(struct weight_writers *m);
void weight_writers_begin(struct weight_writers *m);
/* Begins a new update, of the trainers' present weights, after one that was given up. */
void weight_writers_begin_again(struct weight_writers *m);
/* Lets all ranks find out, from m->resume_log, which chunks the engine rank has already. */
void weight_writers_find_held(struct weight_writers *m);
void weight_writers_end(struct weight_writers *m);

/* Runs one step of a chunk on all ranks at once. */
tdm_status weight_writers_run(struct weight_writers *m, uint32_t chunk,
                              tdm_status (*step)(struct tdm__weight_writer *weight_writer,
                                                 uint32_t chunk));
/* Writes a chunk on all ranks at once, and what crosses between nodes in all rounds. */
tdm_status weight_writers_try_write(struct weight_writers *m, uint32_t chunk);
void weight_writers_write(struct weight_writers *m, uint32_t chunk);
/* Stages the chunk with the descriptions of all ranks that wrote a part of it. */
tdm_status weight_writers_stage(struct weight_writers *m, uint32_t chunk);
/* Does the same with the bytes at `source`; NULL if they are where the ranks wrote them. */
tdm_status weight_writers_stage_arrival(struct weight_writers *m, uint32_t chunk,
                                        const char *source, size_t source_bytes);
/* Stages the chunk from a copy of the bucket, as if the bucket had been sent. Must not be called
 * for in_place. */
tdm_status weight_writers_stage_received(struct weight_writers *m, uint32_t chunk);
/* Sends the chunks 0 … chunks_count - 1 of the current update. */
void weight_writers_send(struct weight_writers *m, uint32_t chunks_count);

/* Runs a complete update. */
void weight_writers_commit(struct weight_writers *m);
/* Completes a begun update and returns the number of chunks that it needed. */
uint32_t weight_writers_finish(struct weight_writers *m);
void weight_writers_give_up(struct weight_writers *m);
/* Runs an update in which the nth call to the driver fails. Returns true if it ended with the new
 * weights, false if it must be given up. */
bool weight_writers_update_while_a_call_fails(struct weight_writers *m, uint64_t nth,
                                              uint64_t *calls_out);

/* Returns a copy of the served weights in host memory; the caller frees it. */
unsigned char *weight_writers_served(const struct weight_writers *m);
/* Returns true if every tensor is served as the trainers have it, with zeros between the
 * tensors. */
bool weight_writers_serve_truth(const struct weight_writers *m);
/* Flips bits in the target's memory. */
void weight_writers_flip_bits(struct weight_writers *m, size_t offset, unsigned char bits);

#define BOTH_WAYS(promise)                                                                         \
    static void promise##_in_place(void **state)                                                   \
    {                                                                                              \
        (void)state;                                                                               \
        promise(true);                                                                             \
    }                                                                                              \
    static void promise##_by_copy(void **state)                                                    \
    {                                                                                              \
        (void)state;                                                                               \
        promise(false);                                                                            \
    }

#endif
