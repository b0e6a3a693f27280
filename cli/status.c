/* status.c - `tandem status`: a cluster at a glance. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"
#include "cli/table.h"
#include "runtime/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <tandem/state.h>

static struct tdm__option options[] = {
    {"--json", false, NULL}, {"--address", true, NULL}, {NULL, false, NULL}};

static const char *const states[] = {"ALIVE",      "PENDING", "STARTING",
                                     "RESTARTING", "ENDING",  "DEAD"};
enum { STATES = sizeof(states) / sizeof(states[0]), KINDS_MAX = 64 };

struct glance {
    uint32_t nodes;
    uint32_t missing_nodes;
    uint32_t groups;
    uint32_t actors[STATES];
    struct tdm_amount amounts[KINDS_MAX]; /* names borrowed from the list of nodes */
    uint32_t amounts_count;
};

static void add_amount(struct glance *glance, const struct tdm_amount *amount)
{
    uint32_t i = 0;

    while (i < glance->amounts_count && strcmp(glance->amounts[i].name, amount->name) != 0) {
        i++;
    }
    if (i == KINDS_MAX) {
        return;
    }
    if (i == glance->amounts_count) {
        glance->amounts[glance->amounts_count++].name = amount->name;
    }
    glance->amounts[i].total += amount->total;
    glance->amounts[i].free += amount->free;
}

static tdm_status count_actors(tdm_runtime *runtime, struct glance *glance)
{
    const struct tdm_actor_state *actors;
    uint32_t count;

    TDM_TRY(tdm_list_actors(runtime, TDM__CLUSTER_MS, &actors, &count, &glance->missing_nodes));
    for (uint32_t i = 0; i < count; i++) {
        for (size_t state = 0; state < STATES; state++) {
            glance->actors[state] += strcmp(actors[i].state, states[state]) == 0 ? 1 : 0;
        }
    }
    tdm_list_free(actors);
    return TDM_OK;
}

static tdm_status count_groups(tdm_runtime *runtime, struct glance *glance)
{
    const struct tdm_group_state *groups;

    TDM_TRY(tdm_list_groups(runtime, TDM__CLUSTER_MS, &groups, &glance->groups));
    tdm_list_free(groups);
    return TDM_OK;
}

static void print_text(const struct glance *glance)
{
    static const char *const titles[] = {"RESOURCE", "USED", "FREE", "TOTAL", NULL};
    struct tdm__table *table;
    const char *before = " ";

    (void)printf("nodes   %u", glance->nodes);
    if (glance->missing_nodes > 0) {
        (void)printf(", %u of them did not answer", glance->missing_nodes);
    }
    (void)printf("\nactors ");
    for (size_t state = 0; state < STATES; state++) {
        if (glance->actors[state] > 0 || state == 0) {
            (void)printf("%s%u %s", before, glance->actors[state], states[state]);
            before = ", ";
        }
    }
    (void)printf("\ngroups  %u\n\n", glance->groups);
    if (tdm__table_create(titles, &table) != TDM_OK) {
        return;
    }
    for (uint32_t i = 0; i < glance->amounts_count; i++) {
        const struct tdm_amount *amount = &glance->amounts[i];

        const double numbers[] = {amount->total - amount->free, amount->free, amount->total};

        tdm__table_add(table, "%s", amount->name);
        for (size_t number = 0; number < 3; number++) {
            char text[TDM__AMOUNT_BYTES];

            tdm__table_add(table, "%s", tdm__amount_text(amount->name, numbers[number], text));
        }
    }
    tdm__table_print(table, stdout);
}

static void print_json(const struct glance *glance)
{
    json_t *actors = json_object();
    json_t *resources = json_object();
    json_t *root;

    for (size_t state = 0; state < STATES; state++) {
        (void)json_object_set_new(actors, states[state], json_integer(glance->actors[state]));
    }
    for (uint32_t i = 0; i < glance->amounts_count; i++) {
        (void)json_object_set_new(resources, glance->amounts[i].name,
                                  json_pack("{s:f, s:f}", "total", glance->amounts[i].total,
                                            "free", glance->amounts[i].free));
    }
    root = json_pack("{s:I, s:I, s:I, s:o, s:o}", "nodes", (json_int_t)glance->nodes,
                     "missing_nodes", (json_int_t)glance->missing_nodes, "groups",
                     (json_int_t)glance->groups, "actors", actors, "resources", resources);
    (void)json_dumpf(root, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
    (void)putchar('\n');
    json_decref(root);
}

static tdm_status show(tdm_runtime *runtime, bool as_json)
{
    struct glance glance = {0};
    const struct tdm_node_state *nodes;
    tdm_status status;

    TDM_TRY(tdm_list_nodes(runtime, TDM__CLUSTER_MS, &nodes, &glance.nodes));
    for (uint32_t i = 0; i < glance.nodes; i++) {
        for (uint32_t kind = 0; kind < nodes[i].amounts_count; kind++) {
            add_amount(&glance, &nodes[i].amounts[kind]);
        }
    }
    status = count_actors(runtime, &glance);
    if (status == TDM_OK) {
        status = count_groups(runtime, &glance);
    }
    if (status == TDM_OK && as_json) {
        print_json(&glance);
    } else if (status == TDM_OK) {
        print_text(&glance);
    }
    tdm_list_free(nodes);
    return status;
}

static int run(const struct tdm__words *words)
{
    tdm_runtime *runtime;
    tdm_status status = tdm__cluster_join(words, &runtime);

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    return tdm__cluster_leave(runtime,
                              show(runtime, tdm__option_value(words, "--json") != NULL));
}

const struct tdm__command tdm__command_status = {
    .name = "status",
    .summary = "show a running cluster at a glance",
    .help = "usage: tandem status [--json] [--address ADDRESS]\n\n"
            "How many nodes, actors and placement groups there are, and how much of each\n"
            "resource is used.\n\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .run = run};
