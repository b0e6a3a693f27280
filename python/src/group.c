/* group.c - the type Group: handles to placement groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <stdlib.h>

/* The type Group. */
static PyTypeObject *group_type;

const tdm_placement_group *binding_group_handle(PyObject *object)
{
    if (!PyObject_TypeCheck(object, group_type)) {
        PyErr_SetString(PyExc_TypeError, "a placement group is wanted");
        return NULL;
    }
    return binding_object_handle(object);
}

/* Reads one bundle from a dict of amounts; its texts stay borrowed from the dict. Returns false
 * with an exception. */
static bool read_bundle(PyObject *dict, struct tdm_bundle *bundle)
{
    PyObject *key;
    PyObject *value;
    Py_ssize_t position = 0;
    uint32_t count = 0;

    while (PyDict_Next(dict, &position, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        double amount = PyFloat_AsDouble(value);

        if (PyErr_Occurred() != NULL) {
            return false;
        }
        if (PyUnicode_CompareWithASCIIString(key, "CPU") == 0) {
            bundle->num_cpus = amount;
        } else if (PyUnicode_CompareWithASCIIString(key, "GPU") == 0) {
            bundle->num_gpus = amount;
        } else if (count < TDM_BUNDLE_RESOURCES_MAX) {
            bundle->resources[count].name = name;
            bundle->resources[count].amount = amount;
            count++;
        } else {
            PyErr_Format(PyExc_NotImplementedError, "a bundle of more than %d custom resources",
                         TDM_BUNDLE_RESOURCES_MAX);
            return false;
        }
    }
    return true;
}

/* Reads the list of bundles. Returns an owned array; NULL with an exception. */
static struct tdm_bundle *read_bundles(PyObject *list, uint32_t *count_out)
{
    Py_ssize_t count = PyList_Size(list);
    struct tdm_bundle *bundles = count < 0 ? NULL : calloc((size_t)count + 1, sizeof(*bundles));

    if (bundles == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *dict = PyList_GetItem(list, i);

        if (!PyDict_Check(dict) || !read_bundle(dict, &bundles[i])) {
            if (PyErr_Occurred() == NULL) {
                PyErr_SetString(PyExc_TypeError, "a bundle is a dict");
            }
            free(bundles);
            return NULL;
        }
    }
    *count_out = (uint32_t)count;
    return bundles;
}

/* Implements create_group(bundles, strategy, name, namespace, detached, timeout_ms). */
static PyObject *create_group(PyObject *module, PyObject *args)
{
    struct tdm_placement_group_options options = {.asynchronous = 1, .of_job = 1};
    tdm_runtime *runtime = binding_runtime();
    tdm_placement_group *group = NULL;
    struct tdm_bundle *bundles;
    uint32_t count = 0;
    long long timeout_ms;
    int strategy;
    PyObject *list;
    tdm_status status;

    (void)module;
    if (runtime == NULL ||
        !PyArg_ParseTuple(args, "O!izzpL", &PyList_Type, &list, &strategy, &options.name,
                          &options.name_space, &options.detached, &timeout_ms)) {
        return NULL;
    }
    bundles = read_bundles(list, &count);
    if (bundles == NULL) {
        return PyErr_Occurred() == NULL ? PyErr_NoMemory() : NULL;
    }
    options.strategy = (enum tdm_placement_strategy)strategy;
    BINDING_WITH_RUNTIME(status = tdm_placement_group_create_with(runtime, bundles, count, &options,
                                                                  timeout_ms, &group));
    free(bundles);
    return status == TDM_OK ? binding_object_create(group_type, BINDING_GROUP, group)
                            : binding_raise(status);
}

/* Implements find_group(namespace, name, timeout_ms). */
static PyObject *find_group(PyObject *module, PyObject *args)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_placement_group *group = NULL;
    const char *name_space;
    const char *name;
    long long timeout_ms;
    tdm_status status;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "zsL", &name_space, &name, &timeout_ms)) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(
        status = tdm_placement_group_find(runtime, name_space, name, timeout_ms, &group));
    return status == TDM_OK ? binding_object_create(group_type, BINDING_GROUP, group)
                            : binding_raise(status);
}

/* Implements find_group_by_id(id, timeout_ms). */
static PyObject *find_group_by_id(PyObject *module, PyObject *args)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_placement_group *group = NULL;
    const char *id;
    long long timeout_ms;
    tdm_status status;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "sL", &id, &timeout_ms)) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(status = tdm_placement_group_find_by_id(runtime, id, timeout_ms, &group));
    return status == TDM_OK ? binding_object_create(group_type, BINDING_GROUP, group)
                            : binding_raise(status);
}

/* Implements current_group(timeout_ms). */
static PyObject *current_group(PyObject *module, PyObject *argument)
{
    tdm_runtime *runtime = binding_runtime();
    long long timeout_ms = PyLong_AsLongLong(argument);
    tdm_placement_group *group = NULL;
    tdm_status status;

    (void)module;
    if (runtime == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(status = tdm_placement_group_current(runtime, timeout_ms, &group));
    if (status == TDM_E_NOT_FOUND) {
        Py_RETURN_NONE;
    }
    return status == TDM_OK ? binding_object_create(group_type, BINDING_GROUP, group)
                            : binding_raise(status);
}

/* Group.describe() */
static PyObject *group_describe(PyObject *self, PyObject *ignored)
{
    static const char *const strategies[] = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};
    const tdm_placement_group *group = binding_object_handle(self);
    struct tdm_placement_group_info info;

    (void)ignored;
    if (group == NULL) {
        return NULL;
    }
    tdm_placement_group_describe(group, &info);
    return Py_BuildValue("{sssssssssisIsisiss}", "id", info.id, "name", info.name, "namespace",
                         info.name_space, "strategy", strategies[info.strategy], "detached",
                         info.detached, "bundles_count", (unsigned int)info.bundles_count,
                         "is_placed", info.is_placed, "is_infeasible", info.is_infeasible,
                         "pending_cause", info.pending_cause);
}

enum { WAIT_SLICE_MS = 500 /* Milliseconds of a wait between two looks for Ctrl-C. */ };

/* Group.wait(timeout_ms): whether the bundles are reserved. */
static PyObject *group_wait(PyObject *self, PyObject *argument)
{
    tdm_placement_group *group = binding_object_handle(self);
    long long left_ms = PyLong_AsLongLong(argument);
    tdm_status status;

    if (group == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    do {
        int64_t slice_ms = left_ms < WAIT_SLICE_MS ? left_ms : WAIT_SLICE_MS;

        BINDING_WITH_OBJECT(self, status = tdm_placement_group_wait(group, slice_ms));
        left_ms -= slice_ms;
        if (PyErr_CheckSignals() < 0) {
            return NULL;
        }
    } while (status == TDM_E_TIMEOUT && left_ms > 0);
    if (status == TDM_E_TIMEOUT) {
        Py_RETURN_FALSE;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_TRUE;
}

/* Group.remove(timeout_ms) */
static PyObject *group_remove(PyObject *self, PyObject *argument)
{
    struct binding_object *object = (struct binding_object *)self;
    tdm_placement_group *group = binding_object_handle(self);
    long long timeout_ms = PyLong_AsLongLong(argument);
    tdm_status status;

    if (group == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    LIST_REMOVE(object, link);
    object->handle = NULL; /* tdm_placement_group_remove() frees it. */
    BINDING_WITH_RUNTIME(status = tdm_placement_group_remove(group, timeout_ms));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

static PyMethodDef group_methods[] = {
    {"describe", group_describe, METH_NOARGS,
     "describe()\n--\n\nReturn a dict of what this process knows about the group."},
    {"wait", group_wait, METH_O,
     "wait(timeout_ms)\n--\n\nWait and return whether the bundles are reserved."},
    {"remove", group_remove, METH_O,
     "remove(timeout_ms)\n--\n\nGive the resources back and kill the actors that use them."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot group_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                    {Py_tp_methods, group_methods},
                                    {Py_tp_doc, "A handle to a placement group."},
                                    {0, NULL}};
static PyType_Spec group_spec = {"tandem._tandem.Group", sizeof(struct binding_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 group_slots};
static PyMethodDef functions[] = {
    {"create_group", create_group, METH_VARARGS,
     "create_group(bundles, strategy, name, namespace, detached, timeout_ms)\n--\n\n"
     "Ask for the bundles, a list of dicts, and return the Group, which may be pending."},
    {"find_group", find_group, METH_VARARGS,
     "find_group(namespace, name, timeout_ms)\n--\n\nReturn the Group of that name."},
    {"find_group_by_id", find_group_by_id, METH_VARARGS,
     "find_group_by_id(id, timeout_ms)\n--\n\nReturn the Group with that ID."},
    {"current_group", current_group, METH_O,
     "current_group(timeout_ms)\n--\n\nReturn the Group of this actor, or None."},
    {NULL, NULL, 0, NULL}};

bool binding_group_init(PyObject *module)
{
    group_type = (PyTypeObject *)PyType_FromSpec(&group_spec);
    return group_type != NULL && PyModule_AddFunctions(module, functions) == 0;
}
