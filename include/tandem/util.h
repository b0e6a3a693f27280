/* util.h - a queue between actors, a pool of actors that share work, and a descriptor to poll. */
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

/* A queue is an actor of the class "tandem.queue", which every program that links Tandem has.
 * Its handle is passed on, named, found, killed and destroyed like any other.  Items leave in
 * the order in which they came, and the process that has waited longest is served first.  A
 * restart loses the items.
 *
 * A process that must not block calls the queue's methods itself and waits for the references
 * when it likes.  So does a process that puts references or handles (letters R and h).
 *
 *   method    arguments      reply
 *   put       i(...)         nothing, once the item is in the queue
 *   get       i              the item, as if it were a method's result
 *   put_many  ((...)(...))   nothing; either all of the items are put, or none
 *   get_many  i              (...)(...): that many items, or none
 *   size      none           i: number of items in the queue
 *   limit     none           i: number of items that it can hold; 0 means without limit
 *
 * The integer of put and get is the number of milliseconds to wait for room or for an item;
 * TDM_FOREVER is allowed.  The item of put is what is in ( ).
 *
 * A wait that ends without success is TDM_E_AGAIN: the queue is full, or empty.  A caller that
 * has canceled, or is gone, gets no item; the next caller gets it. */

/* Creates a queue for at most `items_max` items; 0 means without limit.  `options` may be NULL,
 * and ownership and failures are those of tdm_actor_create().  Never blocks. */
TDM_API TDM_MUST_CHECK tdm_status tdm_queue_create(tdm_runtime *runtime, uint32_t items_max,
                                                   const struct tdm_actor_options *options,
                                                   tdm_actor **queue_out);

/* The functions below block for the queue's reply: for the timeout that they were given, and at
 * most TDM_QUEUE_ANSWER_MS milliseconds longer.  After TDM_E_TIMEOUT it is unknown whether the
 * item was put or taken.  If the queue has died they fail as calls do.  Any thread may call
 * them. */
enum { TDM_QUEUE_ANSWER_MS = 10000 };

/* Puts one item, whose values are given by format (without r, R and h).  Waits at most
 * `timeout_ms` milliseconds for room, and fails with TDM_E_AGAIN if the queue stays full. */
TDM_API tdm_status tdm_queue_put(tdm_actor *queue, int64_t timeout_ms, const char *format, ...);
/* Takes the oldest item from the queue.  Waits at most `timeout_ms` milliseconds for one, and fails
 * with TDM_E_AGAIN if the queue stays empty.  The caller reads `*item_out` with tdm_get() and
 * releases it; it is NULL on failure. */
TDM_API tdm_status tdm_queue_get(tdm_actor *queue, int64_t timeout_ms, tdm_ref **item_out);

/* Puts all items into the queue, or none (TDM_E_AGAIN).  Each is a packed array as tdm_pack()
 * writes it. `items` may be NULL if `items_count` is 0. */
TDM_API tdm_status tdm_queue_put_many(tdm_actor *queue, const struct tdm_bytes *items,
                                      uint32_t items_count);
/* Takes `items_count` items from the queue, or none (TDM_E_AGAIN).  The result is an array of
 * items, which the caller releases; `*items_out` is NULL on failure. */
TDM_API tdm_status tdm_queue_get_many(tdm_actor *queue, uint32_t items_count, tdm_ref **items_out);

/* Writes the number of items in the queue when the queue replied; other processes may have changed
 * it since. On failure the output is unchanged. */
TDM_API tdm_status tdm_queue_size(tdm_actor *queue, uint32_t *items_count_out);
/* Writes 1 if the queue had no items when it replied, else 0. On failure the output is
 * unchanged. */
TDM_API tdm_status tdm_queue_is_empty(tdm_actor *queue, int *empty_out);
/* Writes 1 if the queue had no room for another item when it replied, else 0. On failure the output
 * is unchanged. */
TDM_API tdm_status tdm_queue_is_full(tdm_actor *queue, int *full_out);

/* ---- the pool --------------------------------------------------------------------------- */

/* A pool gives work to whichever of its actors is free, one call at a time to each.  Work that
 * no actor is free for waits in the pool.  The pool has no thread of its own: an actor that
 * becomes free gets its next call when the owner of the pool calls one of the functions below.
 * One thread may use a pool at a time. */
typedef struct tdm_actor_pool tdm_actor_pool;

/* Creates a pool of the actors.  The handles stay the caller's and must outlive the pool.
 * `actors` may be NULL if `actors_count` is 0.  Never blocks.  On failure `*pool_out` is NULL.
 */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_pool_create(tdm_actor *const *actors,
                                                        uint32_t actors_count,
                                                        tdm_actor_pool **pool_out);
/* Destroys a pool of actors: drops the work that waits and cancels the calls in flight.  NULL is
 * allowed. */
TDM_API void tdm_actor_pool_destroy(tdm_actor_pool *pool);

/* Submits one call of the method `method` to the pool, whose arguments are given by format (without
 * r, R and h) and copied. Never blocks.  A call that fails later is read from its result. */
TDM_API tdm_status tdm_actor_pool_submit(tdm_actor_pool *pool, const char *method,
                                         const char *format, ...);

/* Function that makes one call of its own choice to `actor`, with what `value` points at. */
typedef tdm_status tdm_pool_call(tdm_actor *actor, const void *value, tdm_ref **ref_out);
/* Submits a function to the pool that makes a call.  The function runs on this thread when an actor
 * is free, maybe at once. `value` may be NULL; it is borrowed until the result is taken. */
TDM_API tdm_status tdm_actor_pool_submit_with(tdm_actor_pool *pool, tdm_pool_call *call,
                                              const void *value);

/* Takes the result of the first submitted call whose result was not taken yet.  Waits at most
 * `timeout_ms` milliseconds for it.  On TDM_OK the reference is done (tdm_get() says whether well),
 * and the caller releases it.  TDM_E_TIMEOUT: the result can be taken later.  TDM_E_END: all have
 * been taken.  Otherwise what a tdm_pool_call returned when it failed.  On failure `*ref_out` is
 * NULL. */
TDM_API tdm_status tdm_actor_pool_get_next(tdm_actor_pool *pool, int64_t timeout_ms,
                                           tdm_ref **ref_out);
/* Takes the result that is there first, in whatever order the calls were submitted.  Otherwise like
 * tdm_actor_pool_get_next(). */
TDM_API tdm_status tdm_actor_pool_get_next_unordered(tdm_actor_pool *pool, int64_t timeout_ms,
                                                     tdm_ref **ref_out);
/* Returns 1 while the pool has results to take, present or to come, else 0. */
TDM_API int tdm_actor_pool_has_next(const tdm_actor_pool *pool);

/* Returns 1 while an actor of the pool is free and no work waits, else 0. */
TDM_API int tdm_actor_pool_has_free(tdm_actor_pool *pool);
/* Removes a free actor from the pool and returns it; NULL if none is free. */
TDM_API tdm_actor *tdm_actor_pool_pop_idle(tdm_actor_pool *pool);
/* Adds an actor to the pool.  The handle stays the caller's and must outlive the pool.
 * TDM_E_EXISTS: the actor is in the pool already. */
TDM_API tdm_status tdm_actor_pool_push(tdm_actor_pool *pool, tdm_actor *actor);

/* One call for each element of an array, and a function that receives each result. */
struct tdm_pool_map {
    tdm_pool_call *call;   /* Function that makes the call for one element. */
    const void *values;    /* Array of values_count elements, each of value_bytes bytes. */
    size_t value_bytes;    /* Size in bytes of one element of `values`. */
    uint32_t values_count; /* Number of elements of `values`. */
    /* Receives the result of element `index`.  `ref` is done, well or not, and borrowed for the
     * call. A failure ends the map. */
    tdm_status (*result)(void *arg, uint32_t index, tdm_ref *ref);
    void *arg; /* First argument of result(). */
};
/* Makes a call for each element of map->values, and blocks until result() has received all results,
 * in the order of the elements.  After a failure result() receives no more: calls that wait are
 * dropped, calls in flight are canceled.  TDM_E_STATE: the pool has results that were not taken.
 * TDM_E_TIMEOUT: `timeout_ms` milliseconds were not enough. */
TDM_API tdm_status tdm_actor_pool_map(tdm_actor_pool *pool, const struct tdm_pool_map *map,
                                      int64_t timeout_ms);
/* Does the same as tdm_actor_pool_map(), but result() receives the results as they come. */
TDM_API tdm_status tdm_actor_pool_map_unordered(tdm_actor_pool *pool,
                                                const struct tdm_pool_map *map, int64_t timeout_ms);

/* ---- one descriptor to poll ----------------------------------------------------------------- */

/* The results and stream items that a program waits for beside descriptors of its own: one
 * descriptor is readable while one of them has come, and says which by a number that the program
 * has chosen.  Any thread may use it. */
typedef struct tdm_events tdm_events;

/* Creates an empty set of events, which the caller destroys.  It needs no runtime.  On failure
 * `*events_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_events_create(tdm_events **events_out);
/* Frees the set with the events that were not taken.  Results that come later are not reported.
 * Never blocks.  May be called after tdm_runtime_stop().  NULL is allowed. */
TDM_API void tdm_events_destroy(tdm_events *events);
/* Returns the descriptor, for poll(2) and the like: it is readable while tdm_events_next() has an
 * event.  It belongs to the set; it must not be read or closed. */
TDM_API int tdm_events_fd(const tdm_events *events);
/* Adds an event with the number `token` once the result of `ref` is there, also if it is a failure.
 * The set holds a reference until then.  Never blocks. */
TDM_API tdm_status tdm_events_add_ref(tdm_events *events, tdm_ref *ref, uint64_t token);
/* Adds an event with the number `token` once tdm_stream_next() would not wait, because the next
 * item or the end of the stream is there.  There is none if the stream is destroyed before.  Never
 * blocks.  TDM_E_STATE: something waits for the next item already (tdm_stream_on_item()). */
TDM_API tdm_status tdm_events_add_stream(tdm_events *events, tdm_stream *stream, uint64_t token);
/* Takes the oldest event and gives its number.  Never blocks.  TDM_E_AGAIN: there is none. */
TDM_API tdm_status tdm_events_next(tdm_events *events, uint64_t *token_out);

#ifdef __cplusplus
}
#endif

#endif
