/* collective.c - the type Collective: memberships in collective groups. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <string.h>

/* The type Collective. */
static PyTypeObject *collective_type;

PyObject *binding_collective_create(tdm_collective_group *group, bool is_borrowed)
{
    return binding_object_create(
        collective_type, is_borrowed ? BINDING_BORROWED_COLLECTIVE : BINDING_COLLECTIVE, group);
}

/* Returns the group, if no other thread is in a call of it; NULL and an exception otherwise. */
static tdm_collective_group *collective_handle(PyObject *self)
{
    tdm_collective_group *group = binding_object_handle(self);

    if (group != NULL && ((struct binding_object *)self)->users_count > 0) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is in a call of this group");
        return NULL;
    }
    return group;
}

/* join_collective(name, rank, ranks_count, timeout_ms, slot_bytes, node_id) */
static PyObject *join_collective(PyObject *module, PyObject *args)
{
    struct tdm_collective_options options = {.rank = 0};
    tdm_runtime *runtime = binding_runtime();
    tdm_collective_group *group = NULL;
    unsigned int ranks_count;
    unsigned int rank;
    long long timeout_ms;
    unsigned long long slot_bytes;
    tdm_status status;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "sIILKz", &options.name, &rank, &ranks_count,
                                             &timeout_ms, &slot_bytes, &options.node_id)) {
        return NULL;
    }
    options.rank = rank;
    options.ranks_count = ranks_count;
    options.timeout_ms = timeout_ms;
    options.slot_bytes = (size_t)slot_bytes;
    BINDING_WITH_RUNTIME(status = tdm_collective_join(runtime, &options, &group));
    return status == TDM_OK ? binding_collective_create(group, false) : binding_raise(status);
}

/* Returns None, or NULL with the exception of a failed call. */
static PyObject *collective_result(tdm_status status)
{
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Collective.leave() */
static PyObject *collective_leave(PyObject *self, PyObject *ignored)
{
    struct binding_object *object = (struct binding_object *)self;
    tdm_collective_group *group = collective_handle(self);

    (void)ignored;
    if (group == NULL) {
        return NULL;
    }
    if (object->kind == BINDING_BORROWED_COLLECTIVE) {
        PyErr_SetString(PyExc_RuntimeError, "the group belongs to the job, which leaves it");
        return NULL;
    }
    LIST_REMOVE(object, link);
    object->handle = NULL; /* tdm_collective_leave() frees it. */
    BINDING_WITH_RUNTIME(tdm_collective_leave(group));
    Py_RETURN_NONE;
}

/* Collective.barrier() */
static PyObject *collective_barrier(PyObject *self, PyObject *ignored)
{
    tdm_collective_group *group = collective_handle(self);
    tdm_status status;

    (void)ignored;
    if (group == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_collective_barrier(group));
    return collective_result(status);
}

/* Collective.all_reduce(data, is_double, is_max) */
static PyObject *collective_all_reduce(PyObject *self, PyObject *args)
{
    tdm_collective_group *group = collective_handle(self);
    enum tdm_reduction reduction;
    Py_buffer data;
    int is_double;
    int is_max;
    tdm_status status;

    if (group == NULL || !PyArg_ParseTuple(args, "w*pp", &data, &is_double, &is_max)) {
        return NULL;
    }
    reduction = is_max ? TDM_MAX : TDM_SUM;
    if (is_double) {
        BINDING_WITH_OBJECT(self,
                            status = tdm_collective_all_reduce_double(
                                group, data.buf, (size_t)data.len / sizeof(double), reduction));
    } else {
        BINDING_WITH_OBJECT(
            self, status = tdm_collective_all_reduce(group, data.buf,
                                                     (size_t)data.len / sizeof(float), reduction));
    }
    PyBuffer_Release(&data);
    return collective_result(status);
}

/* Checks that `out` has room for `factor` times the bytes of `in`. Returns false with an exception,
 * and both buffers released. */
static bool check_room(Py_buffer *in, Py_buffer *out, uint32_t factor)
{
    if (out->len == in->len * (Py_ssize_t)factor) {
        return true;
    }
    PyErr_Format(PyExc_ValueError, "%zd bytes of data and %zd of results: %zd are wanted", in->len,
                 out->len, in->len * (Py_ssize_t)factor);
    PyBuffer_Release(in);
    PyBuffer_Release(out);
    return false;
}

/* Collective.all_gather(data, results) */
static PyObject *collective_all_gather(PyObject *self, PyObject *args)
{
    tdm_collective_group *group = collective_handle(self);
    Py_buffer out;
    Py_buffer in;
    tdm_status status;

    if (group == NULL || !PyArg_ParseTuple(args, "y*w*", &in, &out) ||
        !check_room(&in, &out, tdm_collective_ranks_count(group))) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self,
                        status = tdm_collective_all_gather(group, in.buf, (size_t)in.len, out.buf));
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    return collective_result(status);
}

/* Collective.reduce_scatter(data, result) */
static PyObject *collective_reduce_scatter(PyObject *self, PyObject *args)
{
    tdm_collective_group *group = collective_handle(self);
    Py_buffer out;
    Py_buffer in;
    tdm_status status;

    if (group == NULL || !PyArg_ParseTuple(args, "y*w*", &in, &out) ||
        !check_room(&out, &in, tdm_collective_ranks_count(group))) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_collective_reduce_scatter(
                                  group, in.buf, (size_t)out.len / sizeof(float), out.buf));
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    return collective_result(status);
}

/* Collective.broadcast(data, root) */
static PyObject *collective_broadcast(PyObject *self, PyObject *args)
{
    tdm_collective_group *group = collective_handle(self);
    unsigned int root;
    Py_buffer data;
    tdm_status status;

    if (group == NULL || !PyArg_ParseTuple(args, "w*I", &data, &root)) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self,
                        status = tdm_collective_broadcast(group, data.buf, (size_t)data.len, root));
    PyBuffer_Release(&data);
    return collective_result(status);
}

/* Collective.gather(data, results, root): `results` has room at the root, and is empty elsewhere.
 */
static PyObject *collective_gather(PyObject *self, PyObject *args)
{
    tdm_collective_group *group = collective_handle(self);
    unsigned int root;
    bool is_root;
    Py_buffer out;
    Py_buffer in;
    tdm_status status;

    if (group == NULL || !PyArg_ParseTuple(args, "y*w*I", &in, &out, &root)) {
        return NULL;
    }
    is_root = tdm_collective_rank(group) == root;
    if (!check_room(&in, &out, is_root ? tdm_collective_ranks_count(group) : 0)) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_collective_gather(group, in.buf, (size_t)in.len,
                                                             is_root ? out.buf : NULL, root));
    PyBuffer_Release(&in);
    PyBuffer_Release(&out);
    return collective_result(status);
}

/* Collective.rank */
static PyObject *collective_rank(PyObject *self, void *closure)
{
    const tdm_collective_group *group = binding_object_handle(self);

    (void)closure;
    return group == NULL ? NULL : PyLong_FromUnsignedLong(tdm_collective_rank(group));
}

/* Collective.ranks_count */
static PyObject *collective_ranks_count(PyObject *self, void *closure)
{
    const tdm_collective_group *group = binding_object_handle(self);

    (void)closure;
    return group == NULL ? NULL : PyLong_FromUnsignedLong(tdm_collective_ranks_count(group));
}

static PyMethodDef collective_methods[] = {
    {"leave", collective_leave, METH_NOARGS, "leave()\n--\n\nLeave the group."},
    {"barrier", collective_barrier, METH_NOARGS,
     "barrier()\n--\n\nWait until all ranks have called this method."},
    {"all_reduce", collective_all_reduce, METH_VARARGS,
     "all_reduce(data, is_double, is_max)\n--\n\nReplace floats or doubles by their sum or "
     "maximum over all ranks."},
    {"all_gather", collective_all_gather, METH_VARARGS,
     "all_gather(data, results)\n--\n\nCollect the bytes of all ranks, in the order of ranks."},
    {"reduce_scatter", collective_reduce_scatter, METH_VARARGS,
     "reduce_scatter(data, result)\n--\n\nSum floats and give each rank its part of the sums."},
    {"broadcast", collective_broadcast, METH_VARARGS,
     "broadcast(data, root)\n--\n\nCopy the bytes of one rank to all ranks."},
    {"gather", collective_gather, METH_VARARGS,
     "gather(data, results, root)\n--\n\nCollect the bytes of all ranks at one rank."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef collective_attributes[] = {
    {"rank", collective_rank, NULL, "Rank of this process in the group.", NULL},
    {"ranks_count", collective_ranks_count, NULL, "Number of members of the group.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot collective_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                         {Py_tp_methods, collective_methods},
                                         {Py_tp_getset, collective_attributes},
                                         {Py_tp_doc, "A membership in a collective group."},
                                         {0, NULL}};
static PyType_Spec collective_spec = {"tandem._tandem.Collective", sizeof(struct binding_object), 0,
                                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                      collective_slots};
static PyMethodDef functions[] = {
    {"join_collective", join_collective, METH_VARARGS,
     "join_collective(name, rank, ranks_count, timeout_ms, slot_bytes, node_id)\n--\n\n"
     "Join a collective group and wait for its other members."},
    {NULL, NULL, 0, NULL}};

bool binding_collective_init(PyObject *module)
{
    collective_type = (PyTypeObject *)PyType_FromSpec(&collective_spec);
    return collective_type != NULL && PyModule_AddFunctions(module, functions) == 0;
}
