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

/* create_group(bundles, strategy, name, namespace, detached, timeout_ms) */
static PyObject *create_group(PyObject *module, PyObject *args)
{
    struct tdm_placement_group_options options = {.detached = 0};
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

/* find_group(namespace, name, timeout_ms) */
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

/* current_group(timeout_ms) */
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

/* Group.bundles(): list of (node_id, list of GPU indices) */
static PyObject *group_bundles(PyObject *self, PyObject *ignored)
{
    const tdm_placement_group *group = binding_object_handle(self);
    PyObject *list = group == NULL ? NULL : PyList_New(0);
    uint32_t count = group == NULL ? 0 : tdm_placement_group_bundles_count(group);

    (void)ignored;
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        struct tdm_bundle_placement placement;
        PyObject *gpus = PyList_New(0);
        PyObject *item;

        (void)tdm_placement_group_locate_bundle(group, i, &placement);
        for (uint32_t j = 0; gpus != NULL && j < placement.gpus_count; j++) {
            PyObject *index = PyLong_FromUnsignedLong(placement.gpu_indices[j]);

            (void)PyList_Append(gpus, index);
            Py_XDECREF(index);
        }
        item = Py_BuildValue("(sN)", placement.node_id, gpus);
        if (item == NULL || PyList_Append(list, item) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
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
    {"bundles", group_bundles, METH_NOARGS,
     "bundles()\n--\n\nReturn (node_id, GPU indices) of each bundle."},
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
     "Reserve the bundles, a list of dicts, and return the Group."},
    {"find_group", find_group, METH_VARARGS,
     "find_group(namespace, name, timeout_ms)\n--\n\nReturn the Group of that name."},
    {"current_group", current_group, METH_O,
     "current_group(timeout_ms)\n--\n\nReturn the Group of this actor, or None."},
    {NULL, NULL, 0, NULL}};

bool binding_group_init(PyObject *module)
{
    group_type = (PyTypeObject *)PyType_FromSpec(&group_spec);
    return group_type != NULL && PyModule_AddFunctions(module, functions) == 0;
}
