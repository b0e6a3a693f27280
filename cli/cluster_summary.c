/* cluster_summary.c - a summary of a cluster: numbers of nodes and actors, and used resources. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster_summary.h"

#include "cli/table.h"

#include <jansson.h>
#include <string.h>

/* Names of the states, in the order of tdm__cluster_summary.actors. */
static const char *const states[] = {"ALIVE",      "PENDING", "STARTING",
                                     "RESTARTING", "ENDING",  "DEAD"};
enum {
    STATES = TDM__SUMMARY_STATES,          /* Number of states of an actor. */
    KINDS_MAX = TDM__SUMMARY_RESOURCES_MAX /* Largest number of kinds of resources in a summary. */
};
_Static_assert(sizeof(states) / sizeof(states[0]) == STATES, "a name for each state");

/* Adds an amount of a resource to the summary's total of that kind of resource. Ignores kinds
 * beyond KINDS_MAX. */
static void add_amount(struct tdm__cluster_summary *cluster_summary,
                       const struct tdm_amount *amount)
{
    uint32_t i = 0;

    while (i < cluster_summary->amounts_count &&
           strcmp(cluster_summary->amounts[i].name, amount->name) != 0) {
        i++;
    }
    if (i == KINDS_MAX) {
        return;
    }
    if (i == cluster_summary->amounts_count) {
        cluster_summary->amounts[cluster_summary->amounts_count++].name = amount->name;
    }
    cluster_summary->amounts[i].total += amount->total;
    cluster_summary->amounts[i].free += amount->free;
}

void tdm__cluster_summary_add_nodes(struct tdm__cluster_summary *cluster_summary,
                                    const struct tdm_node_state *nodes, uint32_t nodes_count)
{
    cluster_summary->nodes += nodes_count;
    for (uint32_t i = 0; i < nodes_count; i++) {
        for (uint32_t kind = 0; kind < nodes[i].amounts_count; kind++) {
            add_amount(cluster_summary, &nodes[i].amounts[kind]);
        }
    }
}

void tdm__cluster_summary_add_actors(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_actor_state *actors, uint32_t actors_count)
{
    for (uint32_t i = 0; i < actors_count; i++) {
        for (size_t state = 0; state < STATES; state++) {
            cluster_summary->actors[state] += strcmp(actors[i].state, states[state]) == 0 ? 1 : 0;
        }
        /* The "cause of death" of a pending actor is what it waits for. */
        cluster_summary->waiting_actors +=
            strcmp(actors[i].state, "PENDING") == 0 && actors[i].death_cause[0] != '\0' ? 1 : 0;
    }
}

void tdm__cluster_summary_add_groups(struct tdm__cluster_summary *cluster_summary,
                                     const struct tdm_placement_group_state *groups,
                                     uint32_t groups_count)
{
    cluster_summary->groups += groups_count;
    for (uint32_t i = 0; i < groups_count; i++) {
        cluster_summary->waiting_groups += strcmp(groups[i].state, "PENDING") == 0 ? 1 : 0;
    }
}

void tdm__cluster_summary_print(const struct tdm__cluster_summary *cluster_summary, FILE *stream)
{
    static const char *const titles[] = {"RESOURCE", "USED", "FREE", "TOTAL", NULL};
    struct tdm__table *table;
    const char *before = " ";

    (void)fprintf(stream, "nodes   %u", cluster_summary->nodes);
    if (cluster_summary->missing_nodes > 0) {
        (void)fprintf(stream, ", %u of them did not answer", cluster_summary->missing_nodes);
    }
    (void)fprintf(stream, "\nactors ");
    for (size_t state = 0; state < STATES; state++) {
        if (cluster_summary->actors[state] > 0 || state == 0) {
            (void)fprintf(stream, "%s%u %s", before, cluster_summary->actors[state], states[state]);
            before = ", ";
        }
    }
    (void)fprintf(stream, "\ngroups  %u\n", cluster_summary->groups);
    if (cluster_summary->waiting_actors + cluster_summary->waiting_groups > 0) {
        (void)fprintf(stream, "waiting %u requests: %u actors, %u groups\n",
                      cluster_summary->waiting_actors + cluster_summary->waiting_groups,
                      cluster_summary->waiting_actors, cluster_summary->waiting_groups);
    }
    (void)fputc('\n', stream);
    if (tdm__table_create(titles, &table) != TDM_OK) {
        return;
    }
    for (uint32_t i = 0; i < cluster_summary->amounts_count; i++) {
        const struct tdm_amount *amount = &cluster_summary->amounts[i];

        const double numbers[] = {amount->total - amount->free, amount->free, amount->total};

        tdm__table_add(table, "%s", amount->name);
        for (size_t number = 0; number < 3; number++) {
            char text[TDM__AMOUNT_BYTES];

            tdm__table_add(table, "%s", tdm__amount_text(amount->name, numbers[number], text));
        }
    }
    tdm__table_print(table, stream);
}

void tdm__cluster_summary_print_json(const struct tdm__cluster_summary *cluster_summary,
                                     FILE *stream)
{
    json_t *actors = json_object();
    json_t *resources = json_object();
    json_t *root;

    for (size_t state = 0; state < STATES; state++) {
        (void)json_object_set_new(actors, states[state],
                                  json_integer(cluster_summary->actors[state]));
    }
    for (uint32_t i = 0; i < cluster_summary->amounts_count; i++) {
        (void)json_object_set_new(resources, cluster_summary->amounts[i].name,
                                  json_pack("{s:f, s:f}", "total",
                                            cluster_summary->amounts[i].total, "free",
                                            cluster_summary->amounts[i].free));
    }
    root = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "nodes", (json_int_t)cluster_summary->nodes,
        "missing_nodes", (json_int_t)cluster_summary->missing_nodes, "groups",
        (json_int_t)cluster_summary->groups, "waiting_actors",
        (json_int_t)cluster_summary->waiting_actors, "waiting_groups",
        (json_int_t)cluster_summary->waiting_groups, "actors", actors, "resources", resources);
    (void)json_dumpf(root, stream, JSON_COMPACT | JSON_REAL_PRECISION(15));
    (void)fputc('\n', stream);
    json_decref(root);
}
