/* placement_group.c - trainers and engines share GPUs: two actors on each bundle. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <tandem/tandem.h>

enum { GPUS = 2 };

/* Method where(): replies "trainer/0 on GPU 0", the name of this actor and its GPU. */
static tdm_status rank_where(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    char text[128];

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    (void)snprintf(text, sizeof(text), "%s on GPU %u", info.actor_name, info.gpu_indices[0]);
    return tdm_call_reply(call, "s", text);
}

TDM_ACTOR_CLASS(rank, .methods = {{"where", rank_where}});

/* Creates an actor with half of the bundle's GPU and prints its reply. The other half is free for a
 * second actor on the same bundle. Returns the handle: the actor ends when it is destroyed. */
static tdm_actor *show_rank(tdm_runtime *runtime, const tdm_placement_group *group,
                            const char *kind, uint32_t bundle)
{
    char name[32];
    struct tdm_actor_options options = {
        .name = name, .num_gpus = 0.5, .group = group, .bundle = bundle};
    tdm_actor *rank;
    tdm_ref *ref;
    const char *text;

    (void)snprintf(name, sizeof(name), "%s/%u", kind, bundle);
    TDM_CHECK(tdm_actor_create(runtime, "rank", &options, &rank, ""));
    TDM_CHECK(tdm_actor_call(rank, "where", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "s", &text));
    (void)printf("%s\n", text);
    tdm_ref_release(ref);
    return rank;
}

int main(void)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_bundle bundles[GPUS] = {{.num_gpus = 1}, {.num_gpus = 1}};
    tdm_actor *ranks[2 * GPUS];
    tdm_placement_group *group;
    tdm_runtime *runtime;

    options.gpus = GPUS; /* Virtual GPUs of a private node. */
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    /* Reserves both bundles on one node, or fails after 10,000 ms. */
    TDM_CHECK(tdm_placement_group_create(runtime, bundles, GPUS, TDM_STRICT_PACK, 10000, &group));
    for (uint32_t i = 0; i < GPUS; i++) {
        struct tdm_bundle_placement place;

        TDM_CHECK(tdm_placement_group_locate_bundle(group, i, &place));
        (void)printf("bundle %u has GPU %u\n", i, place.gpu_indices[0]);
    }
    for (uint32_t i = 0; i < GPUS; i++) {
        ranks[i] = show_rank(runtime, group, "trainer", i);
        ranks[GPUS + i] = show_rank(runtime, group, "engine", i);
    }
    for (uint32_t i = 0; i < 2 * GPUS; i++) {
        tdm_actor_destroy(ranks[i]);
    }
    /* Removing the group would also end actors in it that still live. */
    TDM_CHECK(tdm_placement_group_remove(group, 10000));
    tdm_runtime_stop(runtime);
    return 0;
}
