/* util.h - a queue between actors, and a pool of actors that share the work. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_UTIL_H
#define TANDEM_UTIL_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/actor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the queue -------------------------------------------------------------------------- */

/* A queue is an actor of the class "tandem.queue", which every program has that links Tandem:
 * its handle is passed on, named, found, killed and destroyed as any other.  Items leave in the
 * order in which they came; who waits longest is served first.  A restart loses the items.
 *
 * Those who must not block call its methods, and wait for the reference when they like; so do
 * those who put references or handles (letters R, h):
 *
 *   method    arguments      replies
 *   put       i(…)           nothing, once the item is in; the first is how many milliseconds
 *                            it may wait for room, TDM_FOREVER allowed, the item what is in ( )
 *   get       i              the item, as if it were a method's result; likewise
 *   put_many  ((…)(…)…)      nothing; all of them at once, or none
 *   get_many  i              (…)(…)…: so many items at once, or none
 *   size      none           i  items that are in it
 *   limit     none           i  items that it holds at most; 0: without end
 *
 * A wait that ended in vain, or could not begin, is TDM_E_AGAIN: the queue is full, or empty.
 * One who was canceled or is gone gets no item: it goes to the next. */

/* `items_max` 0: without end.  `options` may be NULL; as for tdm_actor_create(). */
TDM_API tdm_status tdm_queue_create(tdm_runtime *runtime, uint32_t items_max,
                                    const struct tdm_actor_options *options,
                                    tdm_actor **queue_out);

/* All of these wait for the queue's answer: as long as they were told, and up to
 * TDM_QUEUE_ANSWER_MS more; then TDM_E_TIMEOUT, and nobody knows whether the item went in, or
 * came out.  They fail as calls do where the queue has died. */
enum { TDM_QUEUE_ANSWER_MS = 10000 };

/* Puts one item, its values by format (without r, R and h).  Waits for room at most
 * `timeout_ms`: 0 not at all. */
TDM_API tdm_status tdm_queue_put(tdm_actor *queue, int64_t timeout_ms, const char *format, ...);
/* Takes the oldest item: a reference that is done, to be read with tdm_get() and released. */
TDM_API tdm_status tdm_queue_get(tdm_actor *queue, int64_t timeout_ms, tdm_ref **item_out);

/* Puts all, each a packed array such as tdm_pack() writes, or none: TDM_E_AGAIN. */
TDM_API tdm_status tdm_queue_put_many(tdm_actor *queue, const struct tdm_bytes *items,
                                      uint32_t items_count);
/* Takes so many, or none: TDM_E_AGAIN.  The result is an array of items. */
TDM_API tdm_status tdm_queue_get_many(tdm_actor *queue, uint32_t items_count,
                                      tdm_ref **items_out);

/* What was true when the queue answered; others may have changed it since. */
TDM_API tdm_status tdm_queue_size(tdm_actor *queue, uint32_t *items_count_out);
TDM_API tdm_status tdm_queue_is_empty(tdm_actor *queue, int *empty_out);
TDM_API tdm_status tdm_queue_is_full(tdm_actor *queue, int *full_out);

/* ---- the pool --------------------------------------------------------------------------- */

/* Hands work to whichever of its actors is free, one call at a time to each; what is too much
 * waits in line.  It has no thread of its own: an actor that is done gets the next call when
 * the pool's owner calls one of the functions below.  For one thread at a time. */
typedef struct tdm_actor_pool tdm_actor_pool;

/* The handles stay the caller's, and live longer than the pool.  `actors_count` may be 0. */
TDM_API tdm_status tdm_actor_pool_create(tdm_actor *const *actors, uint32_t actors_count,
                                         tdm_actor_pool **pool_out);
/* Forgets what waits and cancels what is under way.  NULL is allowed. */
TDM_API void tdm_actor_pool_destroy(tdm_actor_pool *pool);

/* One call of `method`, by format (without r, R and h); never blocks.  What goes wrong once the
 * pool has taken it is read from its result. */
TDM_API tdm_status tdm_actor_pool_submit(tdm_actor_pool *pool, const char *method,
                                         const char *format, ...);

/* Makes one call on `actor`, of its own choice, with what `value` points at. */
typedef tdm_status tdm_pool_call(tdm_actor *actor, const void *value, tdm_ref **ref_out);
/* The same with a function, run when an actor is free: maybe at once.  `value` is borrowed
 * until the result was taken. */
TDM_API tdm_status tdm_actor_pool_submit_with(tdm_actor_pool *pool, tdm_pool_call *call,
                                              const void *value);

/* The result of what was submitted first, of those not taken yet, or the first to be there:
 * TDM_OK and a reference that is done (well or not; tdm_get() tells), to be released;
 * TDM_E_TIMEOUT, and the result stays; TDM_E_END when all have been taken; what a
 * tdm_pool_call returned when it failed. */
TDM_API tdm_status tdm_actor_pool_get_next(tdm_actor_pool *pool, int64_t timeout_ms,
                                           tdm_ref **ref_out);
TDM_API tdm_status tdm_actor_pool_get_next_unordered(tdm_actor_pool *pool, int64_t timeout_ms,
                                                     tdm_ref **ref_out);
/* 1 while there are results to be taken, present or to come. */
TDM_API int tdm_actor_pool_has_next(const tdm_actor_pool *pool);

/* 1 while an actor is free and nothing waits for one. */
TDM_API int tdm_actor_pool_has_free(tdm_actor_pool *pool);
/* A free actor, which leaves the pool; NULL when none is. */
TDM_API tdm_actor *tdm_actor_pool_pop_idle(tdm_actor_pool *pool);
/* One more actor.  TDM_E_EXISTS for one that is in the pool. */
TDM_API tdm_status tdm_actor_pool_push(tdm_actor_pool *pool, tdm_actor *actor);

/* One call for each of an array's elements, and a function that is told each result. */
struct tdm_pool_map {
    tdm_pool_call *call;
    const void *values; /* values_count elements of value_bytes each */
    size_t value_bytes;
    uint32_t values_count;
    /* `ref` is done, well or not, and borrowed for the call; a failure ends the map. */
    tdm_status (*result)(void *arg, uint32_t index, tdm_ref *ref);
    void *arg;
};
/* Blocks until all results have been told, in the order of the values or as they come.  When
 * it fails no more are: calls that wait are forgotten, those under way are canceled.
 * TDM_E_STATE while the pool has results that were not taken; TDM_E_TIMEOUT. */
TDM_API tdm_status tdm_actor_pool_map(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                                      int64_t timeout_ms);
TDM_API tdm_status tdm_actor_pool_map_unordered(tdm_actor_pool *pool,
                                                const struct tdm_pool_map *map,
                                                int64_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
