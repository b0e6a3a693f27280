/* creation_options.c - resources, environment, working directory and arguments of a new actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* Method look(): replies with what the process sees. The environment is set before the program
 * starts. */
static tdm_status worker_look(tdm_call *call, void *self)
{
    char directory[PATH_MAX];

    (void)self;
    return tdm_call_reply(call, "sss", getenv("OMP_NUM_THREADS"),
                          getcwd(directory, sizeof(directory)), getenv("CUDA_VISIBLE_DEVICES"));
}

TDM_ACTOR_CLASS(worker, .methods = {{"look", worker_look}});

/* Returns how much of a resource is free on the only node. */
static double free_of(tdm_runtime *runtime, const char *name)
{
    const struct tdm_node_state *nodes;
    double amount = 0;
    uint32_t nodes_count;

    TDM_CHECK(tdm_list_nodes(runtime, 5000, &nodes, &nodes_count));
    for (uint32_t i = 0; i < nodes[0].amounts_count; i++) {
        if (strcmp(nodes[0].amounts[i].name, name) == 0) {
            amount = nodes[0].amounts[i].free;
        }
    }
    tdm_list_free(nodes);
    return amount;
}

int main(void)
{
    struct tdm_runtime_options node = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_actor_options options = {
        .num_cpus = 1.5,
        .num_gpus = 2, /* Whole GPUs. CUDA_VISIBLE_DEVICES of the actor lists them and no others. */
        .memory_bytes = 1 << 20,
        .environment = {"OMP_NUM_THREADS=3"},
        .working_directory = "/",
    };
    const char *threads;
    const char *directory;
    const char *devices;
    tdm_runtime *runtime;
    tdm_actor *worker;
    tdm_actor *greedy;
    tdm_ref *ref;

    node.cpus = 8; /* The node is private and has 4 virtual GPUs, too. */
    node.gpus = 4;
    TDM_CHECK(tdm_runtime_start(&node, &runtime));
    TDM_CHECK(tdm_actor_create(runtime, "worker", &options, &worker, ""));
    TDM_CHECK(tdm_actor_call(worker, "look", &ref, ""));
    TDM_CHECK(tdm_get(ref, 10000, "sss", &threads, &directory, &devices));
    (void)printf("OMP_NUM_THREADS=%s in %s with devices %s\n", threads, directory, devices);
    (void)printf("free: %g CPUs, %g GPUs\n", free_of(runtime, "CPU"), free_of(runtime, "GPU"));
    tdm_ref_release(ref);

    /* A request that no node can ever satisfy fails at once. */
    options = (struct tdm_actor_options){.resources = {{"TPU", 1}}};
    TDM_CHECK(tdm_actor_create(runtime, "worker", &options, &greedy, ""));
    (void)printf("a TPU: %s\n", tdm_strerror(tdm_actor_wait_ready(greedy, 10000)));

    tdm_actor_destroy(greedy);
    tdm_actor_destroy(worker);
    tdm_runtime_stop(runtime);
    return 0;
}
