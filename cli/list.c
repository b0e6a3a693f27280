/* list.c - `tandem list`: prints what is in the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Each kind of list has a function that fetches the states from the cluster. It builds a table for
 * people and a JSON array for programs, and prints the one that was requested. JSON cannot contain
 * text that is not valid UTF-8, so such an entry contains only its ID. Nodes and processes that did
 * not reply are reported on stderr and do not fail the command. There is one thread. Fetching
 * blocks for at most TDM__CLUSTER_TIMEOUT_MS. */

#include "actors/client/cluster_state.h"
#include "cli/cluster.h"
#include "cli/table.h"
#include "runtime/error.h"
#include "runtime/text.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <tandem/state.h>

static struct tdm__option options[] = {{"--json", false, NULL},
                                       {"--live", false, NULL},
                                       {"--each", false, NULL},
                                       {"--address", true, NULL},
                                       {NULL, false, NULL}};

/* What `tandem list` shows and how, according to its options. */
struct list_filter {
    bool as_json;   /* Whether to print JSON instead of a table. */
    bool live_only; /* Whether to list only actors that have not died. */
    bool each;      /* Whether to list each call instead of sums by method. */
};

enum {
    ID_SHOWN = 12,   /* Number of digits of an ID that a table shows. */
    CELL_BYTES = 256 /* Capacity in bytes of the text of one table cell. */
};

/* ---- pieces ----------------------------------------------------------------------------- */

/* Formats amounts of resources: "CPU 2, GPU 0.4", or with `with_free` "CPU 3/8" (free and
 * total). */
static const char *amounts_text(const struct tdm_amount *amounts, uint32_t count, bool with_free,
                                char text[CELL_BYTES])
{
    struct tdm__text args = tdm__text_init(text, CELL_BYTES);

    for (uint32_t i = 0; i < count; i++) {
        const char *name = amounts[i].name;
        char number[TDM__AMOUNT_BYTES];

        tdm__text_add(&args, "%s%s ", i == 0 ? "" : ", ", name);
        if (with_free) {
            tdm__text_add(&args, "%s/", tdm__amount_text(name, amounts[i].free, number));
        }
        tdm__text_add(&args, "%s", tdm__amount_text(name, amounts[i].total, number));
    }
    return text;
}

/* Formats GPU indices: "0,1". */
static const char *gpus_text(const uint32_t *gpus, uint32_t count, char text[CELL_BYTES])
{
    struct tdm__text args = tdm__text_init(text, CELL_BYTES);

    for (uint32_t i = 0; i < count; i++) {
        tdm__text_add(&args, "%s%u", i == 0 ? "" : ",", gpus[i]);
    }
    return text;
}

/* Returns amounts of resources as a JSON object by name. */
static json_t *amounts_json(const struct tdm_amount *amounts, uint32_t count, bool with_free)
{
    json_t *object = json_object();

    for (uint32_t i = 0; i < count; i++) {
        json_t *value =
            with_free ? json_pack("{s:f, s:f}", "total", amounts[i].total, "free", amounts[i].free)
                      : json_real(amounts[i].total);

        (void)json_object_set_new(object, amounts[i].name, value);
    }
    return object;
}

/* Returns GPU indices as a JSON array. */
static json_t *gpus_json(const uint32_t *gpus, uint32_t count)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer(gpus[i]));
    }
    return array;
}

/* Prints a JSON array on stdout and releases it. */
static void print_json(json_t *array)
{
    (void)json_dumpf(array, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
    (void)putchar('\n');
    json_decref(array);
}

/* Prints the table, or the JSON array if the options ask for JSON, and frees both. */
static void list_print(struct tdm__table *table, json_t *array,
                       const struct list_filter *list_filter)
{
    tdm__table_print(table, list_filter->as_json ? NULL : stdout);
    if (list_filter->as_json) {
        print_json(array);
    } else {
        json_decref(array);
    }
}

/* ---- actors ----------------------------------------------------------------------------- */

/* Returns the texts and numbers of a state record as a JSON object, in their order. Returns NULL if
 * a text is not UTF-8. */
static json_t *record_json(const tdm_value *record)
{
    json_t *object = json_object();
    int failures_count = 0;

    for (uint32_t i = 0; i < tdm_value_count(record); i++) {
        const char *key;
        const tdm_value *value = tdm_value_pair(record, i, &key);

        if (tdm_value_kind_of(value) == TDM_STRING) {
            failures_count +=
                json_object_set_new(object, key, json_string(tdm_value_string(value, "")));
        } else if (tdm_value_kind_of(value) == TDM_INT) {
            failures_count +=
                json_object_set_new(object, key, json_integer(tdm_value_int(value, 0)));
        }
    }
    if (failures_count != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* Returns an actor as a JSON object: all entries of its state record, and its resources. */
static json_t *actor_json(const struct tdm_actor_state *actor, const tdm_value *record)
{
    json_t *object = record_json(record);

    if (object == NULL) {
        return json_pack("{s:s}", "id", actor->id);
    }
    (void)json_object_set_new(object, "detached", json_boolean(actor->detached));
    (void)json_object_set_new(object, "resources",
                              amounts_json(actor->amounts, actor->amounts_count, false));
    (void)json_object_set_new(object, "gpus", gpus_json(actor->gpu_indices, actor->gpus_count));
    return object;
}

/* Returns the reason of a death without what other columns show, that is, without "actor a died:
 * node n, pid 1, ". */
static const char *short_cause(const char *cause)
{
    const char *pid = strstr(cause, " died: node ");

    pid = pid == NULL ? NULL : strstr(pid, ", pid ");
    if (pid != NULL) {
        pid += strlen(", pid ");
        pid += strspn(pid, "0123456789");
    }
    return pid != NULL && strncmp(pid, ", ", 2) == 0 ? pid + 2 : cause;
}

/* Adds the row of an actor to the table. */
static void add_actor(struct tdm__table *table, const struct tdm_actor_state *actor)
{
    const char *cause = short_cause(actor->death_cause);
    char cell[CELL_BYTES];

    tdm__table_add(table, "%.*s", (int)ID_SHOWN, actor->id);
    tdm__table_add(table, "%s", actor->class_name);
    tdm__table_add(table, "%s", actor->name);
    tdm__table_add(table, "%s", actor->state);
    tdm__table_add(table, "%s", actor->node_name);
    tdm__table_add_pid(table, actor->pid);
    tdm__table_add(table, "%lld", (long long)actor->restarts);
    tdm__table_add(table, "%s", amounts_text(actor->amounts, actor->amounts_count, false, cell));
    tdm__table_add(table, "%s", gpus_text(actor->gpu_indices, actor->gpus_count, cell));
    tdm__table_add(table, "%.*s", (int)strcspn(cause, "\n"), cause);
}

/* Adds all dead actors of a list to the table and the JSON array, or all others if `dead` is
 * false. */
static void add_actors(struct tdm__table *table, json_t *array,
                       const struct tdm_actor_state *actors, uint32_t count, bool dead)
{
    for (uint32_t i = 0; i < count; i++) {
        if ((strcmp(actors[i].state, "DEAD") == 0) == dead) {
            add_actor(table, &actors[i]);
            (void)json_array_append_new(array, actor_json(&actors[i], tdm__list_record(actors, i)));
        }
    }
}

/* Prints the list of the cluster's actors. */
static tdm_status list_actors(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"ID",       "CLASS",     "NAME", "STATE", "NODE", "PID",
                                         "RESTARTS", "RESOURCES", "GPUS", "DEATH", NULL};
    const struct tdm_actor_state *actors;
    uint32_t count;
    uint32_t missing;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_actors(runtime, TDM__CLUSTER_TIMEOUT_MS, &actors, &count, &missing));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        add_actors(table, array, actors, count, false);
        if (!list_filter->live_only) {
            add_actors(table, array, actors, count, true);
        }
        list_print(table, array, list_filter);
    }
    tdm_list_free(actors);
    if (status == TDM_OK && missing > 0) {
        (void)fprintf(stderr, "tandem: warning: the list is incomplete: %u nodes did not reply\n",
                      missing);
    }
    return status;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* Returns an object (a value with references) as a JSON object. */
static json_t *object_json(const struct tdm_object_state *object)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "id", object->id, "owner",
        object->owner, "owner_name", object->owner_name, "node_id", object->node_id, "node_name",
        object->node_name, "where", object->where, "pid", (json_int_t)object->pid, "size_bytes",
        (json_int_t)object->size_bytes, "age_ms", (json_int_t)object->age_ms, "holders_count",
        (json_int_t)object->holders_count, "borrowers_count", (json_int_t)object->borrowers_count,
        "readers_count", (json_int_t)object->readers_count);

    /* Without the JSON object, because a text is not UTF-8, only the ID is shown. */
    return json != NULL ? json : json_pack("{s:s}", "id", object->id);
}

/* Adds the row of an object to the table. */
static void add_object(struct tdm__table *table, const struct tdm_object_state *object)
{
    tdm__table_add(table, "%.*s", (int)ID_SHOWN, object->id[0] == '\0' ? "-" : object->id);
    tdm__table_add(table, "%s", object->owner_name);
    tdm__table_add_pid(table, object->pid);
    tdm__table_add(table, "%s", object->node_name);
    tdm__table_add(table, "%s", object->where);
    tdm__table_add(table, "%lld", (long long)object->size_bytes);
    tdm__table_add(table, "%u", object->holders_count);
    tdm__table_add(table, "%u", object->borrowers_count);
    tdm__table_add(table, "%u", object->readers_count);
    tdm__table_add(table, "%.1f s", (double)object->age_ms / 1000);
}

/* Reports on stderr which nodes and processes are missing from a list. */
static void print_missing(const struct tdm_list_missing *missing)
{
    if (missing->nodes > 0) {
        (void)fprintf(stderr, "tandem: warning: the list is incomplete: %u nodes did not reply\n",
                      missing->nodes);
    }
    if (missing->processes > 0) {
        (void)fprintf(stderr,
                      "tandem: warning: the list is incomplete: %u processes did not reply\n",
                      missing->processes);
    }
    if (missing->rows > 0) {
        (void)fprintf(stderr,
                      "tandem: warning: the list is incomplete: %llu entries of processes with "
                      "more than 10,000 are left out\n",
                      (unsigned long long)missing->rows);
    }
}

/* Prints the list of the cluster's objects. */
static tdm_status list_objects(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"ID",      "OWNER",     "PID",     "NODE", "WHERE", "SIZE",
                                         "HOLDERS", "BORROWERS", "READERS", "AGE",  NULL};
    const struct tdm_object_state *objects;
    uint32_t count;
    struct tdm_list_missing missing;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_objects(runtime, TDM__CLUSTER_TIMEOUT_MS, &objects, &count, &missing));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < count; i++) {
            add_object(table, &objects[i]);
            (void)json_array_append_new(array, object_json(&objects[i]));
        }
        list_print(table, array, list_filter);
        print_missing(&missing);
    }
    tdm_list_free(objects);
    return status;
}

/* ---- calls ------------------------------------------------------------------------------ */

/* Returns the numbers of calls of one method of an actor as a JSON object. */
static json_t *calls_json(const struct tdm_calls_state *calls)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:I, s:s, s:I, s:I, s:I, s:I}", "actor",
                     calls->actor, "class_name", calls->class_name, "actor_name", calls->actor_name,
                     "node_id", calls->node_id, "node_name", calls->node_name, "pid",
                     (json_int_t)calls->pid, "method", calls->method, "waiting",
                     (json_int_t)calls->waiting, "running", (json_int_t)calls->running, "finished",
                     (json_int_t)calls->finished, "failed", (json_int_t)calls->failed);
}

/* Adds the row of one method of an actor to the table. */
static void add_calls(struct tdm__table *table, const struct tdm_calls_state *calls)
{
    tdm__table_add(table, "%.*s", (int)ID_SHOWN, calls->actor);
    tdm__table_add(table, "%s", calls->class_name);
    tdm__table_add(table, "%s", calls->actor_name);
    tdm__table_add(table, "%s", calls->method);
    tdm__table_add(table, "%llu", (unsigned long long)calls->waiting);
    tdm__table_add(table, "%llu", (unsigned long long)calls->running);
    tdm__table_add(table, "%llu", (unsigned long long)calls->finished);
    tdm__table_add(table, "%llu", (unsigned long long)calls->failed);
}

/* Returns a call as a JSON object. */
static json_t *call_json(const struct tdm_call_state *call)
{
    json_t *json = json_pack(
        "{s:s, s:s, s:I, s:s, s:s, s:s, s:s, s:s, s:I}", "caller", call->caller, "caller_name",
        call->caller_name, "caller_pid", (json_int_t)call->caller_pid, "actor", call->actor,
        "class_name", call->class_name, "actor_name", call->actor_name, "method", call->method,
        "state", call->state, "age_ms", (json_int_t)call->age_ms);

    return json != NULL ? json
                        /* Without the JSON object, because a text is not UTF-8, only the ID is
                         * shown. */
                        : json_pack("{s:s}", "actor", call->actor);
}

/* Adds the row of a call to the table. */
static void add_call(struct tdm__table *table, const struct tdm_call_state *call)
{
    tdm__table_add(table, "%s", call->caller_name);
    tdm__table_add_pid(table, call->caller_pid);
    tdm__table_add(table, "%.*s", (int)ID_SHOWN, call->actor);
    tdm__table_add(table, "%s", call->class_name);
    tdm__table_add(table, "%s", call->actor_name);
    tdm__table_add(table, "%s", call->method);
    tdm__table_add(table, "%s", call->state);
    tdm__table_add(table, "%.1f s", (double)call->age_ms / 1000);
}

/* Prints the list of all calls that do not have a result yet. */
static tdm_status list_each_call(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"CALLER", "PID",   "ACTOR", "CLASS", "NAME",
                                         "METHOD", "STATE", "AGE",   NULL};
    const struct tdm_call_state *calls;
    uint32_t count;
    struct tdm_list_missing missing;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_each_call(runtime, TDM__CLUSTER_TIMEOUT_MS, &calls, &count, &missing));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < count; i++) {
            add_call(table, &calls[i]);
            (void)json_array_append_new(array, call_json(&calls[i]));
        }
        list_print(table, array, list_filter);
        print_missing(&missing);
    }
    tdm_list_free(calls);
    return status;
}

/* Prints the list of the methods of actors with the numbers of their calls. */
static tdm_status list_methods(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"ACTOR",   "CLASS",    "NAME",   "METHOD", "WAITING",
                                         "RUNNING", "FINISHED", "FAILED", NULL};
    const struct tdm_calls_state *calls;
    uint32_t count;
    struct tdm_list_missing missing;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_calls(runtime, TDM__CLUSTER_TIMEOUT_MS, &calls, &count, &missing));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < count; i++) {
            add_calls(table, &calls[i]);
            (void)json_array_append_new(array, calls_json(&calls[i]));
        }
        list_print(table, array, list_filter);
        print_missing(&missing);
    }
    tdm_list_free(calls);
    return status;
}

/* Prints the list of calls: each call, or sums by method. */
static tdm_status list_calls(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    return list_filter->each ? list_each_call(runtime, list_filter)
                             : list_methods(runtime, list_filter);
}

/* ---- nodes ------------------------------------------------------------------------------ */

/* Adds a node to the table and to the JSON array. */
static void add_node(struct tdm__table *table, json_t *array, const struct tdm_node_state *node)
{
    char cell[CELL_BYTES];

    tdm__table_add(table, "%.*s", (int)ID_SHOWN, node->id);
    tdm__table_add(table, "%s", node->name);
    tdm__table_add(table, "%lld", (long long)node->pid);
    tdm__table_add(table, "%s", amounts_text(node->amounts, node->amounts_count, true, cell));
    tdm__table_add(table, "%s",
                   node->tcp_address[0] != '\0' ? node->tcp_address : node->unix_address);
    (void)json_array_append_new(
        array, json_pack("{s:s, s:s, s:I, s:s, s:s, s:o}", "id", node->id, "name", node->name,
                         "pid", (json_int_t)node->pid, "unix_address", node->unix_address,
                         "tcp_address", node->tcp_address, "resources",
                         amounts_json(node->amounts, node->amounts_count, true)));
}

/* Prints the list of the cluster's nodes. */
static tdm_status list_nodes(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"ID", "NAME", "PID", "FREE/TOTAL", "ADDRESS", NULL};
    const struct tdm_node_state *nodes;
    uint32_t count;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_nodes(runtime, TDM__CLUSTER_TIMEOUT_MS, &nodes, &count));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < count; i++) {
            add_node(table, array, &nodes[i]);
        }
        list_print(table, array, list_filter);
    }
    tdm_list_free(nodes);
    return status;
}

/* ---- groups ----------------------------------------------------------------------------- */

/* Adds the cells that say how long and why a group waits to the row of its bundle `index`. Rows of
 * further bundles do not repeat them. */
static void add_wait(struct tdm__table *table, const struct tdm_placement_group_state *group,
                     uint32_t index)
{
    bool is_shown = index == 0 && group->waits_for[0] != '\0';
    char ticket[CELL_BYTES] = "";
    char waited[CELL_BYTES] = "";

    if (is_shown) {
        (void)snprintf(waited, sizeof(waited), "%.1f s", (double)group->waited_ms / 1000);
    }
    if (is_shown && group->ticket != 0) {
        (void)snprintf(ticket, sizeof(ticket), "%llu", (unsigned long long)group->ticket);
    }
    tdm__table_add(table, "%s", waited);
    tdm__table_add(table, "%s", ticket);
    tdm__table_add(table, "%.*s", is_shown ? (int)strcspn(group->waits_for, "\n") : 0,
                   group->waits_for);
}

/* Adds a bundle of a placement group to the table and to the JSON array. */
static void add_bundle(struct tdm__table *table, json_t *array,
                       const struct tdm_placement_group_state *group, uint32_t index)
{
    const struct tdm_bundle_state *bundle = &group->bundles[index];
    char cell[CELL_BYTES];

    tdm__table_add(table, "%.*s", (int)ID_SHOWN, group->id);
    tdm__table_add(table, "%s", group->name);
    tdm__table_add(table, "%s", group->state);
    tdm__table_add(table, "%u", index);
    tdm__table_add(table, "%.*s", (int)ID_SHOWN, bundle->node_id);
    tdm__table_add(table, "%s", amounts_text(bundle->amounts, bundle->amounts_count, false, cell));
    tdm__table_add(table, "%s", gpus_text(bundle->gpu_indices, bundle->gpus_count, cell));
    add_wait(table, group, index);
    (void)json_array_append_new(
        array, json_pack("{s:s, s:o, s:o}", "node_id", bundle->node_id, "resources",
                         amounts_json(bundle->amounts, bundle->amounts_count, false), "gpus",
                         gpus_json(bundle->gpu_indices, bundle->gpus_count)));
}

/* Returns a placement group as a JSON object, which takes over the array of its bundles. */
static json_t *group_json(const struct tdm_placement_group_state *group, json_t *bundles)
{
    json_t *json =
        json_pack("{s:s, s:s, s:s, s:b, s:s, s:s, s:s, s:I, s:I}", "id", group->id, "name",
                  group->name, "name_space", group->name_space, "detached", group->detached,
                  "state", group->state, "strategy", group->strategy, "waits_for", group->waits_for,
                  "waited_ms", (json_int_t)group->waited_ms, "ticket", (json_int_t)group->ticket);

    if (json == NULL) { /* A text is not UTF-8. */
        json = json_pack("{s:s}", "id", group->id);
    }
    (void)json_object_set_new(json, "bundles", bundles);
    return json;
}

/* Prints the list of the cluster's placement groups. */
static tdm_status list_groups(tdm_runtime *runtime, const struct list_filter *list_filter)
{
    static const char *const titles[] = {"GROUP",  "NAME",      "STATE", "BUNDLE",
                                         "NODE",   "RESOURCES", "GPUS",  "WAITED",
                                         "TICKET", "WAITS FOR", NULL};
    const struct tdm_placement_group_state *groups;
    uint32_t count;
    struct tdm__table *table;
    tdm_status status;

    TDM_TRY(tdm_list_placement_groups(runtime, TDM__CLUSTER_TIMEOUT_MS, &groups, &count));
    status = tdm__table_create(titles, &table);
    if (status == TDM_OK) {
        json_t *array = json_array();

        for (uint32_t i = 0; i < count; i++) {
            json_t *bundles = json_array();

            for (uint32_t bundle = 0; bundle < groups[i].bundles_count; bundle++) {
                add_bundle(table, bundles, &groups[i], bundle);
            }
            (void)json_array_append_new(array, group_json(&groups[i], bundles));
        }
        list_print(table, array, list_filter);
    }
    if (status == TDM_OK) {
        print_missing(&(struct tdm_list_missing){.nodes = tdm__list_missing_nodes(groups)});
    }
    tdm_list_free(groups);
    return status;
}

/* ---- the command ------------------------------------------------------------------------ */

/* Runs `tandem list` and returns the exit code. */
static int list_main(const struct tdm__parsed_arguments *args)
{
    static const struct {
        const char *kind;
        tdm_status (*list)(tdm_runtime *runtime, const struct list_filter *list_filter);
    } kinds[] = {{"actors", list_actors},
                 {"calls", list_calls},
                 {"objects", list_objects},
                 {"nodes", list_nodes},
                 {"groups", list_groups}};
    const struct list_filter list_filter = {.as_json = tdm__option_value(args, "--json") != NULL,
                                            .live_only = tdm__option_value(args, "--live") != NULL,
                                            .each = tdm__option_value(args, "--each") != NULL};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        tdm_runtime *runtime;
        tdm_status status;

        if (strcmp(args->operands[0], kinds[i].kind) != 0) {
            continue;
        }
        if (list_filter.live_only && kinds[i].list != list_actors) {
            return tdm__refuse_arguments("list", "--live applies to the list of actors, not of %s",
                                         kinds[i].kind);
        }
        if (list_filter.each && kinds[i].list != list_calls) {
            return tdm__refuse_arguments("list", "--each applies to the list of calls, not of %s",
                                         kinds[i].kind);
        }
        status = tdm__cluster_join(args, &runtime);
        return status == TDM_OK ? tdm__cluster_leave(runtime, kinds[i].list(runtime, &list_filter))
                                : tdm__command_failed(status);
    }
    return tdm__refuse_arguments(
        "list", "unknown list \"%s\": expected actors, calls, objects, nodes or groups",
        args->operands[0]);
}

const struct tdm__command tdm__command_list = {
    .name = "list",
    .summary = "list actors, calls, objects, nodes or groups of a running cluster",
    .help = "usage: tandem list actors|calls|objects|nodes|groups [--live] [--each]\n"
            "                   [--json] [--address ADDRESS]\n\n"
            "  actors     all that live or wait, and the last ones that died, with the reason\n"
            "  calls      of the actors that live, by method: how many wait, run, have ended\n"
            "  objects    values that others know, and large ones: where, and who holds them\n"
            "  nodes      with what they have, and how much of it is free\n"
            "  groups     placement groups, a line a bundle; of those that wait for how long,\n"
            "             with which ticket, and why\n\n"
            "  --live     of actors: without those that have died\n"
            "  --each     of calls: each that has no result yet: whose, where, for how long\n"
            "  --json     one array, for programs; ids and death causes are whole there\n"
            "  --address  of a node; default: TANDEM_ADDRESS, else the only node here\n",
    .options = options,
    .operands_min = 1,
    .operands_max = 1,
    .run = list_main};
