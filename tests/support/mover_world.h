/* mover_world.h - trainer ranks and an engine rank that update each other's weights by routes.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_SUPPORT_MOVER_WORLD_H
#define TDM_TESTS_SUPPORT_MOVER_WORLD_H

#include "colocate/weights/mover.h"
#include "tests/support/weight_world.h"

enum { MOVERS_WINDOW_BYTES = 4096, MOVERS_GAP_BYTES = 64, MOVERS_WAIT_MS = 5000 };

/* A model in a weight_world: the engine rank wants one tensor in halves and one by blocks. */
struct movers {
    struct weight_world *world;
    bool in_place;
    struct tdm_slice slices[WORLD_TENSORS];  /* of the engine rank, in its weights */
    struct tdm_slice offsets[WORLD_TENSORS]; /* the same as a route wants them */
    struct tdm__layout layout;
    struct tdm__route *route;
    struct tdm__mover *movers[WORLD_RANKS];
    bool engine_is_absent;
    struct tdm__journal journal; /* what the engine rank has told */
};

struct movers *movers_open(bool in_place, enum tdm__verify verify);
struct movers *movers_open_with(bool in_place, enum tdm__verify verify, uint64_t window_bytes);
/* Also checks that nobody holds anything. */
void movers_close(struct movers *m);

/* What trainers write into, as it is mapped by its owner. */
const tdm_region *movers_target(const struct movers *m);
/* A new update: memory, and where it is. */
void movers_make_room(struct movers *m, struct tdm__target *target);
void movers_open_targets(struct movers *m);
void movers_begin(struct movers *m);
/* The update before was given up: a new one, of whatever the trainers have now. */
void movers_begin_again(struct movers *m);
void movers_end(struct movers *m);

/* One step of a window, by all ranks at once. */
tdm_status movers_run(struct movers *m, uint32_t window,
                      tdm_status (*step)(struct tdm__mover *mover, uint32_t window));
void movers_write(struct movers *m, uint32_t window);
tdm_status movers_stage(struct movers *m, uint32_t window);
/* From a copy of the bucket, as one that was sent is staged.  Not in place. */
tdm_status movers_stage_received(struct movers *m, uint32_t window);
/* From the first on, in an update of their own. */
void movers_send(struct movers *m, uint32_t windows_count);

/* A whole update. */
void movers_commit(struct movers *m);
/* What is left of one, and committed.  Returns how many windows that took. */
uint32_t movers_finish(struct movers *m);
void movers_give_up(struct movers *m);
/* In which the nth call to the driver fails.  True if it ended with the new weights, false if
 * it is to be given up. */
bool movers_update_while_a_call_fails(struct movers *m, uint64_t nth, uint64_t *calls_out);

/* The weights, as the host can read them; free() them. */
unsigned char *movers_served(const struct movers *m);
/* Every tensor, and zeros between them. */
bool movers_serve_truth(const struct movers *m);
/* In what trainers write into. */
void movers_flip_bits(struct movers *m, size_t offset, unsigned char bits);

#define BOTH_WAYS(promise)                                                                     \
    static void promise##_in_place(void **state)                                               \
    {                                                                                          \
        (void)state;                                                                           \
        promise(true);                                                                         \
    }                                                                                          \
    static void promise##_by_copy(void **state)                                                \
    {                                                                                          \
        (void)state;                                                                           \
        promise(false);                                                                        \
    }

#endif
