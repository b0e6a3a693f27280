/* looking.c - lists what is in the cluster: nodes, living and dead actors, calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <tandem/tandem.h>

static tdm_status engine_nothing(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return TDM_OK;
}

TDM_ACTOR_CLASS(engine, .methods = {{"nothing", engine_nothing}});

static void show_amounts(const struct tdm_amount *amounts, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(amounts[i].name, "memory") != 0) {
            (void)printf("  %s: %g of %g free\n", amounts[i].name, amounts[i].free,
                         amounts[i].total);
        }
    }
}

static void show_nodes(tdm_runtime *runtime)
{
    const struct tdm_node_state *nodes;
    uint32_t count;

    TDM_CHECK(tdm_list_nodes(runtime, 5000, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        (void)printf("node %s, pid %lld\n", nodes[i].name, (long long)nodes[i].pid);
        show_amounts(nodes[i].amounts, nodes[i].amounts_count);
    }
    tdm_list_free(nodes);
}

static void show_actor(const struct tdm_actor_state *actor)
{
    (void)printf("actor %s of class %s is %s\n", actor->name, actor->class_name, actor->state);
    if (actor->gpus_count > 0) {
        (void)printf("  on GPU %u\n", actor->gpu_indices[0]);
    }
    if (strcmp(actor->death_cause, "") != 0) {
        (void)printf("  %s\n", actor->death_cause);
    }
}

/* Prints the actors with these names, in this order. The list itself has no particular order. */
static void show_actors(tdm_runtime *runtime, const char *const *names, int names_count)
{
    const struct tdm_actor_state *actors;
    uint32_t count;

    TDM_CHECK(tdm_list_actors(runtime, 5000, &actors, &count, NULL));
    for (int name = 0; name < names_count; name++) {
        for (uint32_t i = 0; i < count; i++) {
            if (strcmp(actors[i].name, names[name]) == 0) {
                show_actor(&actors[i]);
            }
        }
    }
    tdm_list_free(actors);
}

/* Prints the number of calls of the living engines, by method and outcome. */
static void show_calls(tdm_runtime *runtime)
{
    const struct tdm_calls_state *calls;
    uint32_t count;

    TDM_CHECK(tdm_list_calls(runtime, 5000, &calls, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        (void)printf("calls of \"%s\" of %s: %llu wait, %llu run, %llu have ended well\n",
                     calls[i].method, calls[i].actor_name, (unsigned long long)calls[i].waiting,
                     (unsigned long long)calls[i].running, (unsigned long long)calls[i].finished);
    }
    tdm_list_free(calls);
}

int main(void)
{
    static const char *const names[] = {"engine/0", "engine/1"};
    struct tdm_runtime_options node = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime;
    tdm_actor *engines[2];

    node.cpus = 4;
    node.gpus = 2;
    TDM_CHECK(tdm_runtime_start(&node, &runtime));
    for (int i = 0; i < 2; i++) {
        TDM_CHECK(tdm_actor_create(
            runtime, "engine",
            &(struct tdm_actor_options){.name = names[i], .num_cpus = 1, .num_gpus = 0.5},
            &engines[i], ""));
        TDM_CHECK(tdm_actor_wait_ready(engines[i], 10000));
    }
    show_nodes(runtime);
    TDM_CHECK(tdm_actor_kill(engines[1], 10000));
    show_actors(runtime, names, 2);
    for (int i = 0; i < 3; i++) {
        tdm_ref *ref;

        TDM_CHECK(tdm_actor_call(engines[0], "nothing", &ref, ""));
        TDM_CHECK(tdm_get(ref, 10000, ""));
        tdm_ref_release(ref);
    }
    show_calls(runtime);

    tdm_actor_destroy(engines[0]);
    tdm_actor_destroy(engines[1]);
    tdm_runtime_stop(runtime);
    return 0;
}
