/* weight_writer_world.h - trainer ranks and an engine rank that update each other's weights by
 * routes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_WEIGHT_WRITER_WORLD_H
#define TDM_TESTS_SUPPORT_WEIGHT_WRITER_WORLD_H

#include "colocate/weights/weight_writer.h"
#include "tests/support/weight_fixture.h"

enum { WRITERS_CHUNK_BYTES = 4096, WEIGHT_WRITERS_GAP_BYTES = 64, WEIGHT_WRITERS_WAIT_MS = 5000 };

/* A model in a weight_fixture: the engine rank wants one tensor in halves and one by blocks. */
struct weight_writers {
    struct weight_fixture *world;
    bool in_place;
    struct tdm_slice slices[WORLD_TENSORS];  /* of the engine rank, in its weights */
    struct tdm_slice offsets[WORLD_TENSORS]; /* the same as a route wants them */
    struct tdm__layout layout;
    struct tdm__transfer_plan *transfer_plan;
    struct tdm__weight_writer *weight_writers[WORLD_RANKS];
    bool engine_is_absent;
    struct tdm__resume_log resume_log; /* what the engine rank has told */
};

struct weight_writers *weight_writers_open(bool in_place, enum tdm__verify verify);
struct weight_writers *weight_writers_open_with(bool in_place, enum tdm__verify verify,
                                                uint64_t chunk_bytes);
/* Also checks that nobody holds anything. */
void weight_writers_close(struct weight_writers *m);

/* What trainers write into, as it is mapped by its owner. */
const tdm_region *weight_writers_target(const struct weight_writers *m);
/* A new update: memory, and where it is. */
void weight_writers_make_room(struct weight_writers *m, struct tdm__transfer_target *target);
void weight_writers_open_targets(struct weight_writers *m);
void weight_writers_begin(struct weight_writers *m);
/* The update before was given up: a new one, of whatever the trainers have now. */
void weight_writers_begin_again(struct weight_writers *m);
void weight_writers_end(struct weight_writers *m);

/* One step of a chunk, by all ranks at once. */
tdm_status weight_writers_run(struct weight_writers *m, uint32_t chunk,
                              tdm_status (*step)(struct tdm__weight_writer *weight_writer,
                                                 uint32_t chunk));
void weight_writers_write(struct weight_writers *m, uint32_t chunk);
tdm_status weight_writers_stage(struct weight_writers *m, uint32_t chunk);
/* From a copy of the bucket, as one that was sent is staged.  Not in place. */
tdm_status weight_writers_stage_received(struct weight_writers *m, uint32_t chunk);
/* From the first on, in an update of their own. */
void weight_writers_send(struct weight_writers *m, uint32_t chunks_count);

/* A whole update. */
void weight_writers_commit(struct weight_writers *m);
/* What is left of one, and committed.  Returns how many chunks that took. */
uint32_t weight_writers_finish(struct weight_writers *m);
void weight_writers_give_up(struct weight_writers *m);
/* In which the nth call to the driver fails.  True if it ended with the new weights, false if
 * it is to be given up. */
bool weight_writers_update_while_a_call_fails(struct weight_writers *m, uint64_t nth,
                                              uint64_t *calls_out);

/* The weights, as the host can read them; free() them. */
unsigned char *weight_writers_served(const struct weight_writers *m);
/* Every tensor, and zeros between them. */
bool weight_writers_serve_truth(const struct weight_writers *m);
/* In what trainers write into. */
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
