/* state.c - lists of the nodes, actors and placement groups of the cluster, and what workers
 * printed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

enum { LIST_TIMEOUT_MS = 10000 /* Milliseconds in which a list must be complete. */ };

/* Returns a dict of name -> (total, free). */
static PyObject *amounts_dict(const struct tdm_amount *amounts, uint32_t count)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict != NULL && i < count; i++) {
        PyObject *pair = Py_BuildValue("(dd)", amounts[i].total, amounts[i].free);

        if (pair == NULL || PyDict_SetItemString(dict, amounts[i].name, pair) < 0) {
            Py_CLEAR(dict);
        }
        Py_XDECREF(pair);
    }
    return dict;
}

/* Appends `item`, which is taken, to `*list`; sets `*list` to NULL if that fails, and leaves it so.
 */
static void list_append(PyObject **list, PyObject *item)
{
    if (*list == NULL || item == NULL || PyList_Append(*list, item) < 0) {
        Py_CLEAR(*list);
    }
    Py_XDECREF(item);
}

/* Returns the labels of a node as a list of texts. */
static PyObject *labels_list(const struct tdm_node_state *node)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list != NULL && i < node->labels_count; i++) {
        list_append(&list, PyUnicode_FromString(node->labels[i]));
    }
    return list;
}

/* Implements list_nodes(). */
static PyObject *list_nodes(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    const struct tdm_node_state *nodes;
    uint32_t count;
    PyObject *list;
    tdm_status status;

    (void)module;
    (void)ignored;
    if (runtime == NULL) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(status = tdm_list_nodes(runtime, LIST_TIMEOUT_MS, &nodes, &count));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        list_append(&list, Py_BuildValue("{sssssssssNsN}", "id", nodes[i].id, "name", nodes[i].name,
                                         "unix_address", nodes[i].unix_address, "tcp_address",
                                         nodes[i].tcp_address, "amounts",
                                         amounts_dict(nodes[i].amounts, nodes[i].amounts_count),
                                         "labels", labels_list(&nodes[i])));
    }
    tdm_list_free(nodes);
    return list;
}

/* Implements list_actors(). */
static PyObject *list_actors(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    const struct tdm_actor_state *actors;
    uint32_t count;
    PyObject *list;
    tdm_status status;

    (void)module;
    (void)ignored;
    if (runtime == NULL) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(status = tdm_list_actors(runtime, LIST_TIMEOUT_MS, &actors, &count, NULL));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        list_append(&list,
                    Py_BuildValue("{sssssssssssssssLsi}", "id", actors[i].id, "class_name",
                                  actors[i].class_name, "name", actors[i].name, "namespace",
                                  actors[i].name_space, "state", actors[i].state, "node_id",
                                  actors[i].node_id, "death_cause", actors[i].death_cause, "pid",
                                  (long long)actors[i].pid, "detached", actors[i].detached));
    }
    tdm_list_free(actors);
    return list;
}

/* Returns the bundles of a placement group as a list of (node_id, amounts). */
static PyObject *bundles_list(const struct tdm_placement_group_state *group)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list != NULL && i < group->bundles_count; i++) {
        const struct tdm_bundle_state *bundle = &group->bundles[i];

        list_append(&list, Py_BuildValue("(sN)", bundle->node_id,
                                         amounts_dict(bundle->amounts, bundle->amounts_count)));
    }
    return list;
}

/* Implements list_groups(). */
static PyObject *list_groups(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    const struct tdm_placement_group_state *groups;
    uint32_t count;
    PyObject *list;
    tdm_status status;

    (void)module;
    (void)ignored;
    if (runtime == NULL) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(status =
                             tdm_list_placement_groups(runtime, LIST_TIMEOUT_MS, &groups, &count));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        list_append(&list,
                    Py_BuildValue("{sssssssssssssLsKsN}", "id", groups[i].id, "name",
                                  groups[i].name, "namespace", groups[i].name_space, "state",
                                  groups[i].state, "strategy", groups[i].strategy, "waits_for",
                                  groups[i].waits_for, "waited_ms", (long long)groups[i].waited_ms,
                                  "ticket", (unsigned long long)groups[i].ticket, "bundles",
                                  bundles_list(&groups[i])));
    }
    tdm_list_free(groups);
    return list;
}

/* Appends (origin, is_error, text) to the list `arg`; called without the GIL. */
static void append_output(void *arg, const struct tdm_worker_output *output)
{
    PyGILState_STATE gil = PyGILState_Ensure();

    list_append(arg, Py_BuildValue("(siy#)", output->origin, output->is_error, output->text,
                                   (Py_ssize_t)output->text_bytes));
    PyGILState_Release(gil);
}

/* Implements take_output(node_id, timeout_ms). */
static PyObject *take_output(PyObject *module, PyObject *args)
{
    tdm_runtime *runtime = binding_runtime();
    const char *node_id;
    long long timeout_ms;
    PyObject *list;
    tdm_status status;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "zL", &node_id, &timeout_ms)) {
        return NULL;
    }
    list = PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(
        status = tdm_take_worker_output(runtime, node_id, timeout_ms, append_output, &list));
    if (status != TDM_OK) {
        Py_XDECREF(list);
        return binding_raise(status);
    }
    return list;
}

static PyMethodDef functions[] = {
    {"list_nodes", list_nodes, METH_NOARGS,
     "list_nodes()\n--\n\nReturn a dict about each node; its amounts are (total, free)."},
    {"list_actors", list_actors, METH_NOARGS,
     "list_actors()\n--\n\nReturn a dict about each actor of the cluster."},
    {"list_groups", list_groups, METH_NOARGS,
     "list_groups()\n--\n\n"
     "Return a dict about each placement group; bundles are (node, amounts).\n\n"
     "A PENDING one has waited for waited_ms milliseconds because of waits_for.\n"
     "Of several, the one with the lowest ticket goes first."},
    {"take_output", take_output, METH_VARARGS,
     "take_output(node_id, timeout_ms)\n--\n\nReturn what workers of this job have printed on a "
     "node and was not taken: a list of (origin, is_error, text)."},
    {NULL, NULL, 0, NULL}};

bool binding_state_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
