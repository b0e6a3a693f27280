/* spread_program.c - runs an actor on each of N nodes and prints the names of the nodes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <tandem/tandem.h>

enum { NODES_MAX = 16, TIMEOUT_MS = 30000 };

/* Method where(): replies the value of SLURMD_NODENAME, or "" without Slurm. */
static tdm_status rank_where(tdm_call *call, void *self)
{
    const char *name = getenv("SLURMD_NODENAME");

    (void)self;
    return tdm_call_reply(call, "s", name == NULL ? "" : name);
}

TDM_ACTOR_CLASS(rank, .methods = {{"where", rank_where}});

int main(int argc, char **argv)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_bundle bundles[NODES_MAX];
    uint32_t count = argc == 2 ? (uint32_t)strtoul(argv[1], NULL, 10) : 1;
    tdm_actor *ranks[NODES_MAX];
    tdm_placement_group *group;
    tdm_runtime *runtime;

    for (uint32_t i = 0; i < NODES_MAX; i++) {
        bundles[i] = (struct tdm_bundle){.num_cpus = 1};
    }
    TDM_CHECK(tdm_runtime_start(&options, &runtime)); /* Workers end inside of this call. */
    if (count == 0 || count > NODES_MAX) {
        return 2;
    }
    TDM_CHECK(
        tdm_placement_group_create(runtime, bundles, count, TDM_STRICT_SPREAD, TIMEOUT_MS, &group));
    for (uint32_t i = 0; i < count; i++) {
        struct tdm_actor_options actor = {.num_cpus = 1, .group = group, .bundle = i};
        const char *name;
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_create(runtime, "rank", &actor, &ranks[i], ""));
        TDM_CHECK(tdm_actor_call(ranks[i], "where", &ref, ""));
        TDM_CHECK(tdm_get(ref, TIMEOUT_MS, "s", &name));
        (void)printf("rank on %s\n", name);
        tdm_ref_release(ref);
    }
    for (uint32_t i = 0; i < count; i++) {
        tdm_actor_destroy(ranks[i]);
    }
    TDM_CHECK(tdm_placement_group_remove(group, TIMEOUT_MS));
    tdm_runtime_stop(runtime);
    return 0;
}
