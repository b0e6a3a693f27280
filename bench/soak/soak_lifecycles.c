/* soak_lifecycles.c - operations of the soak: actors and placement groups that are created and
 * ended in every way. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each operation creates an actor or a placement group, uses it, ends it in one way (kill,
 * release of the last handle, failed constructor, restart, forced cancellation), and checks what
 * later calls report. The actor SOAK_RESTARTING is replaced after RESTARTS restarts, because
 * actors that die often must wait longer before each restart. */
#include "soak.h"

#include <stdio.h>

/* Number of restarts after which the actor is replaced, because restarts are delayed more and
 * more; and most calls that may fail during a restart. */
enum { RESTARTS = 3, CALLS_SHOT = 5 };

/* Creates an actor of the class "soak_worker" and counts it. */
static tdm_status create_worker(struct soak_thread *driver_thread,
                                const struct tdm_actor_options *options, tdm_actor **actor_out)
{
    driver_thread->counts->actors++;
    return tdm_actor_create(driver_thread->runtime, "soak_worker", options, actor_out, "i",
                            INT64_C(0));
}

/* Calls the actor once and checks the reply. */
static tdm_status call_worker(struct soak_thread *driver_thread, tdm_actor *actor)
{
    uint64_t number = soak_random(driver_thread, UINT64_MAX);
    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(actor, "same", &ref, "u", number));
    return soak_get_number(driver_thread, ref, number, "a new actor's call");
}

/* Checks that a call reports the death of the actor, at once or in its reply. */
static tdm_status expect_dead(tdm_actor *actor)
{
    tdm_ref *ref = NULL;
    tdm_status status = tdm_actor_call(actor, "same", &ref, "u", UINT64_C(1));

    if (status == TDM_OK) {
        status = tdm_get(ref, SOAK_TIMEOUT_MS, "");
    }
    status = soak_expect_status(TDM_E_ACTOR_DIED, status, "a dead actor's call");
    tdm_ref_release(ref);
    return status;
}

tdm_status soak_create_and_kill(struct soak_thread *driver_thread)
{
    const struct tdm_actor_options options = {.scheduling = soak_random(driver_thread, 2) == 0
                                                                ? TDM_SCHEDULE_DEFAULT
                                                                : TDM_SCHEDULE_SPREAD};
    tdm_actor *actor;
    tdm_status status;

    TDM_TRY(create_worker(driver_thread, &options, &actor));
    status = call_worker(driver_thread, actor);
    if (status == TDM_OK) {
        status = tdm_actor_kill(actor, SOAK_TIMEOUT_MS);
    }
    if (status == TDM_OK) {
        status = expect_dead(actor);
    }
    tdm_actor_destroy(actor);
    return status;
}

/* Releases the last handle of an actor, which ends it gracefully; sometimes before it is
 * constructed. */
tdm_status soak_create_and_release(struct soak_thread *driver_thread)
{
    tdm_status status = TDM_OK;
    tdm_actor *actor;

    TDM_TRY(create_worker(driver_thread, NULL, &actor));
    if (soak_random(driver_thread, 4) != 0) {
        status = call_worker(driver_thread, actor);
    }
    tdm_actor_destroy(actor);
    return status;
}

/* Creates a detached actor, finds it by its name, and kills it through the second handle. */
tdm_status soak_create_named(struct soak_thread *driver_thread)
{
    char name[64];
    struct tdm_actor_options options = {.name = name, .detached = 1, .get_if_exists = 1};
    tdm_actor *actors[2] = {NULL, NULL};
    tdm_status status;
    tdm_status killed;

    (void)snprintf(name, sizeof(name), "soak/%llu/%llu", (unsigned long long)driver_thread->number,
                   (unsigned long long)driver_thread->next_name++);
    TDM_TRY(create_worker(driver_thread, &options, &actors[0]));
    status = call_worker(driver_thread, actors[0]);
    if (status == TDM_OK) {
        status = soak_random(driver_thread, 2) == 0
                     ? tdm_actor_find(driver_thread->runtime, name, SOAK_TIMEOUT_MS, &actors[1])
                     : create_worker(driver_thread, &options, &actors[1]);
    }
    if (status == TDM_OK) {
        status = call_worker(driver_thread, actors[1]);
    }
    killed = tdm_actor_kill(actors[status == TDM_OK], SOAK_TIMEOUT_MS);
    status = status == TDM_OK ? killed : status;
    if (status == TDM_OK) {
        status = expect_dead(actors[0]);
    }
    tdm_actor_destroy(actors[1]);
    tdm_actor_destroy(actors[0]);
    return status;
}

tdm_status soak_create_broken(struct soak_thread *driver_thread)
{
    tdm_actor *actor;
    tdm_status status;

    driver_thread->counts->actors++;
    TDM_TRY(tdm_actor_create(driver_thread->runtime, "soak_worker", NULL, &actor, "i", INT64_C(1)));
    status = expect_dead(actor);
    tdm_actor_destroy(actor);
    return status;
}

tdm_status soak_create_in_actor(struct soak_thread *driver_thread)
{
    uint64_t number = soak_random(driver_thread, UINT64_MAX);
    tdm_ref *ref;

    driver_thread->counts->actors++;
    TDM_TRY(tdm_actor_call(
        driver_thread->actors[soak_random(driver_thread, 2) == 0 ? SOAK_LOCAL : SOAK_REMOTE],
        "child", &ref, "u", number));
    return soak_get_number(driver_thread, ref, number, "an actor's own actor");
}

/* Checks that the call during which the actor died failed, unless it was retried, and that later
 * calls succeed after the restart. Releases `ref`. */
static tdm_status died_and_back(struct soak_thread *driver_thread, tdm_ref *ref)
{
    tdm_actor *actor = driver_thread->actors[SOAK_RESTARTING];
    tdm_status status = tdm_get(ref, SOAK_TIMEOUT_MS, "");

    tdm_ref_release(ref);
    if (status != TDM_E_ACTOR_RESTARTING && status != TDM_E_ACTOR_DIED &&
        status != TDM_E_CANCELED) {
        return soak_expect_status(TDM_E_ACTOR_RESTARTING, status, "a call that was shot");
    }
    for (int i = 0; i < CALLS_SHOT && (status = call_worker(driver_thread, actor)) != TDM_OK; i++) {
        if (status != TDM_E_ACTOR_RESTARTING) { /* The call was lost in the same crash. */
            break;
        }
    }
    TDM_TRY(status);
    if (++driver_thread->restarts_count == RESTARTS) {
        tdm_actor_destroy(actor);
        driver_thread->actors[SOAK_RESTARTING] = NULL;
    }
    return TDM_OK;
}

tdm_status soak_restart(struct soak_thread *driver_thread)
{
    tdm_ref *ref;

    TDM_TRY(tdm_actor_call(driver_thread->actors[SOAK_RESTARTING], "end", &ref, ""));
    return died_and_back(driver_thread, ref);
}

tdm_status soak_force_cancel(struct soak_thread *driver_thread)
{
    tdm_ref *ref;
    tdm_status status;

    TDM_TRY(tdm_actor_call(driver_thread->actors[SOAK_RESTARTING], "linger", &ref, "i",
                           (int64_t)SOAK_TIMEOUT_MS));
    (void)tdm_get(ref, (int64_t)soak_random(driver_thread, 4), "");
    status = tdm_cancel(ref, 1);
    if (status != TDM_OK) {
        tdm_ref_release(ref);
        return status;
    }
    return died_and_back(driver_thread, ref);
}

tdm_status soak_placement_group(struct soak_thread *driver_thread)
{
    static const struct tdm_bundle bundles[2] = {{.num_cpus = 0.01}, {.num_cpus = 0.01}};
    const enum tdm_placement_strategy strategies[] = {TDM_PACK, TDM_SPREAD, TDM_STRICT_PACK};
    struct tdm_actor_options options = {.num_cpus = 0.01, .bundle = 1};
    tdm_placement_group *group;
    tdm_actor *actor = NULL;
    tdm_status status;
    tdm_status removed;

    driver_thread->counts->groups++;
    TDM_TRY(tdm_placement_group_create(driver_thread->runtime, bundles, 2,
                                       strategies[soak_random(driver_thread, 3)], SOAK_TIMEOUT_MS,
                                       &group));
    options.group = group;
    /* Most groups are removed without an actor in them. */
    if (soak_random(driver_thread, 4) != 0) {
        return tdm_placement_group_remove(group, SOAK_TIMEOUT_MS);
    }
    status = create_worker(driver_thread, &options, &actor);
    if (status == TDM_OK) {
        status = call_worker(driver_thread, actor);
    }
    removed = tdm_placement_group_remove(group, SOAK_TIMEOUT_MS);
    status = status == TDM_OK ? removed : status;
    if (status == TDM_OK) {
        status = expect_dead(actor);
    }
    tdm_actor_destroy(actor);
    return status;
}

tdm_status soak_list_state(struct soak_thread *driver_thread)
{
    const struct tdm_actor_state *actors;
    const struct tdm_node_state *nodes;
    uint32_t count;
    uint32_t missing;

    TDM_TRY(tdm_list_actors(driver_thread->runtime, SOAK_TIMEOUT_MS, &actors, &count, &missing));
    tdm_list_free(actors);
    TDM_TRY(soak_expect_equal(0, missing, "nodes that did not answer"));
    TDM_TRY(tdm_list_nodes(driver_thread->runtime, SOAK_TIMEOUT_MS, &nodes, &count));
    tdm_list_free(nodes);
    return TDM_OK;
}

/* Releases all actors of the thread while calls to them may be pending. They are created again
 * before the next operation. */
tdm_status soak_replace_actor(struct soak_thread *driver_thread)
{
    soak_thread_destroy_actors(driver_thread);
    return TDM_OK;
}
