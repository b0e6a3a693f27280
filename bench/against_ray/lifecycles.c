/* lifecycles.c - rounds that create placement groups and actors, use them once and remove them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

/* Creates a hundred groups, then removes them all, as Ray's own benchmark does. */
void side_placement_group(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    enum { GROUPS = 100 };
    static const struct tdm_bundle bundle = {.num_cpus = 0.001};
    double begun = bench_clock_seconds();
    uint32_t groups_count = 0;

    do {
        tdm_placement_group *groups[GROUPS];

        for (int i = 0; i < GROUPS; i++) {
            TDM_CHECK(tdm_placement_group_create(runtime, &bundle, 1, TDM_PACK, SIDE_TIMEOUT_MS,
                                                 &groups[i]));
        }
        for (int i = 0; i < GROUPS; i++) {
            TDM_CHECK(tdm_placement_group_remove(groups[i], SIDE_TIMEOUT_MS));
        }
        groups_count += GROUPS;
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, groups_count / (bench_clock_seconds() - begun));
}

/* Creates an actor and calls it once. */
static tdm_actor *called_actor(tdm_runtime *runtime, int64_t number)
{
    tdm_actor *actor;
    int64_t reply;
    tdm_ref *ref;

    TDM_CHECK(tdm_actor_create(runtime, "echo", NULL, &actor, ""));
    TDM_CHECK(tdm_actor_call(actor, "echo", &ref, "i", number));
    TDM_CHECK(tdm_get(ref, SIDE_TIMEOUT_MS, "i", &reply));
    tdm_ref_release(ref);
    side_expect_equal((uint64_t)number, (uint64_t)reply, "an actor's first call");
    return actor;
}

/* Creates, calls and kills actors one after the other. The kill waits until the process is gone. */
void side_actor_lifecycle(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    double begun = bench_clock_seconds();
    int64_t lives_count = 0;

    do {
        tdm_actor *actor = called_actor(runtime, ++lives_count);

        TDM_CHECK(tdm_actor_kill(actor, SIDE_TIMEOUT_MS));
        tdm_actor_destroy(actor);
    } while (bench_clock_seconds() - begun < seconds);
    side_numbers_add(numbers, (double)lives_count / (bench_clock_seconds() - begun));
}

/* Creates actors, calls each once and returns their process IDs. They live as long as the
 * program. */
void side_idle_actors(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    enum { IDLE_ACTORS = 20 };

    (void)seconds;
    for (int i = 0; i < IDLE_ACTORS; i++) {
        side_numbers_add(numbers, side_actor_pid(called_actor(runtime, i)));
    }
}

void side_first_call(tdm_runtime *runtime, double seconds, struct side_numbers *numbers)
{
    (void)seconds;
    (void)numbers;
    tdm_actor_destroy(called_actor(runtime, 1));
}
