/* weights.c - the types Sender and Receiver: weights without a job. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A sender or receiver has one model, or several that are committed together. Both borrow the
 * memory of tensors by address; the package's module weights keeps the tensors alive and lets one
 * thread at a time call what libtandem allows to one thread. A wait for a version is made of
 * slices, between which signals of Python are handled. */
#include "binding.h"

#include <stdlib.h>
#include <string.h>

static PyTypeObject *sender_type;   /* The type Sender. */
static PyTypeObject *receiver_type; /* The type Receiver. */

/* ---- tensors ----------------------------------------------------------------------------- */

/* Reads one (name, dtype, shape, address, shard, shards_count). Returns false with an exception. */
static bool read_tensor(PyObject *tuple, struct tdm_weights_tensor *tensor)
{
    unsigned long long address;
    unsigned int shards_count;
    unsigned int shard;
    PyObject *shape;
    Py_ssize_t dims;
    int dtype;

    if (!PyArg_ParseTuple(tuple, "siO!KII", &tensor->info.name, &dtype, &PyTuple_Type, &shape,
                          &address, &shard, &shards_count)) {
        return false;
    }
    dims = PyTuple_Size(shape);
    if (dims > TDM_DIMS_MAX) {
        PyErr_Format(PyExc_ValueError, "the tensor %s has %zd dimensions, at most %d",
                     tensor->info.name, dims, (int)TDM_DIMS_MAX);
        return false;
    }
    for (Py_ssize_t i = 0; i < dims; i++) {
        tensor->info.shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, i));
    }
    tensor->info.dtype = (enum tdm_dtype)dtype;
    tensor->info.dims_count = (uint32_t)dims;
    tensor->address = (void *)(uintptr_t)address;
    tensor->shard = shard;
    tensor->shards_count = shards_count;
    return PyErr_Occurred() == NULL;
}

/* Returns an owned array of the tensors of a list; NULL with an exception. */
static struct tdm_weights_tensor *read_tensors(PyObject *list, uint32_t *count_out)
{
    Py_ssize_t count = PyList_Size(list);
    struct tdm_weights_tensor *tensors = calloc((size_t)count + 1, sizeof(*tensors));

    if (tensors == NULL) {
        return (struct tdm_weights_tensor *)PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (!read_tensor(PyList_GetItem(list, i), &tensors[i])) {
            free(tensors);
            return NULL;
        }
    }
    *count_out = (uint32_t)count;
    return tensors;
}

/* Returns None, or NULL with the exception of a failed call. */
static PyObject *none_or_raise(tdm_status status)
{
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Returns a version, or NULL with the exception of a failed call. */
static PyObject *version_or_raise(tdm_status status, uint64_t version)
{
    return status == TDM_OK ? PyLong_FromUnsignedLongLong(version) : binding_raise(status);
}

/* Lets an object forget its handle and returns the handle; NULL if it has none any more. */
static void *take_handle(PyObject *self)
{
    void *handle = ((struct binding_object *)self)->handle;

    binding_object_forget(self);
    return handle;
}

/* ---- the sender -------------------------------------------------------------------------- */

/* Options of the models of a set, each with an owned array of tensors. */
struct sender_set {
    uint32_t count; /* Number of models. */
    struct tdm_weights_sender_options options[TDM_WEIGHTS_SET_MAX];
};

/* Frees the arrays of tensors. */
static void sender_set_fini(struct sender_set *set)
{
    for (uint32_t i = 0; i < set->count; i++) {
        free((void *)(uintptr_t)set->options[i].tensors);
    }
}

/* Returns the number of models in a list, or 0 with an exception. */
static uint32_t count_models(PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);

    if (count < 1 || count > TDM_WEIGHTS_SET_MAX) {
        PyErr_Format(PyExc_ValueError, "a set has 1 to %d models, not %zd",
                     (int)TDM_WEIGHTS_SET_MAX, count);
        return 0;
    }
    return (uint32_t)count;
}

/* Reads a list of (model, scheme, tensors, receivers_count). Returns false with an exception. */
static bool read_sender_set(PyObject *list, struct sender_set *set)
{
    uint32_t count = count_models(list);

    for (uint32_t i = 0; i < count; i++) {
        struct tdm_weights_sender_options *options = &set->options[i];
        unsigned int receivers_count;
        PyObject *tensors;
        int scheme;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "siO!I", &options->model, &scheme,
                              &PyList_Type, &tensors, &receivers_count)) {
            return false;
        }
        options->tensors = read_tensors(tensors, &options->tensors_count);
        if (options->tensors == NULL) {
            return false;
        }
        options->scheme = (enum tdm_weights_scheme)scheme;
        options->receivers_count = receivers_count;
        set->count++;
    }
    return count != 0;
}

/* create_sender(models, timeout_ms, bucket_bytes, receiver): models is a list of (model, scheme,
 * tensors, receivers_count), which are committed together. */
static PyObject *create_sender(PyObject *module, PyObject *args)
{
    struct sender_set set = {.count = 0};
    tdm_runtime *runtime = binding_runtime();
    tdm_weights_receiver *relay_of = NULL;
    tdm_weights_sender *sender = NULL;
    tdm_status status = TDM_E_INVAL;
    unsigned long long bucket_bytes;
    long long timeout_ms;
    PyObject *receiver;
    PyObject *list;
    bool is_read;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "O!LKO", &PyList_Type, &list, &timeout_ms,
                                             &bucket_bytes, &receiver)) {
        return NULL;
    }
    if (receiver != Py_None) {
        if (!PyObject_TypeCheck(receiver, receiver_type)) {
            PyErr_SetString(PyExc_TypeError, "a Receiver is wanted");
            return NULL;
        }
        relay_of = binding_object_handle(receiver);
        if (relay_of == NULL) {
            return NULL;
        }
    }
    is_read = read_sender_set(list, &set);
    for (uint32_t i = 0; i < set.count; i++) {
        set.options[i].timeout_ms = timeout_ms;
        set.options[i].bucket_bytes = (size_t)bucket_bytes;
        set.options[i].relay_of = relay_of;
    }
    if (is_read) {
        status = tdm_weights_sender_create_set(runtime, set.options, set.count, &sender);
    }
    sender_set_fini(&set);
    if (!is_read) {
        return NULL;
    }
    return status == TDM_OK ? binding_object_create(sender_type, BINDING_SENDER, sender)
                            : binding_raise(status);
}

/* Sender.connect() */
static PyObject *sender_connect(PyObject *self, PyObject *ignored)
{
    tdm_weights_sender *sender = binding_object_handle(self);
    tdm_status status;

    (void)ignored;
    if (sender == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_weights_sender_connect(sender));
    return none_or_raise(status);
}

/* Sender.attach(data): a copy of these bytes travels with each version from now on. */
static PyObject *sender_attach(PyObject *self, PyObject *argument)
{
    tdm_weights_sender *sender = binding_object_handle(self);
    Py_ssize_t size_bytes;
    char *data;

    if (sender == NULL || PyBytes_AsStringAndSize(argument, &data, &size_bytes) < 0) {
        return NULL;
    }
    return none_or_raise(tdm_weights_attach(sender, (struct tdm_bytes){data, (size_t)size_bytes}));
}

/* Sender.send() */
static PyObject *sender_send(PyObject *self, PyObject *ignored)
{
    tdm_weights_sender *sender = binding_object_handle(self);
    uint64_t version = 0;
    tdm_status status;

    (void)ignored;
    if (sender == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_weights_send(sender, &version));
    return version_or_raise(status, version);
}

/* Sender.send_async() */
static PyObject *sender_send_async(PyObject *self, PyObject *ignored)
{
    tdm_weights_sender *sender = binding_object_handle(self);

    (void)ignored;
    return sender == NULL ? NULL : none_or_raise(tdm_weights_send_async(sender));
}

/* Sender.wait(timeout_ms): the version, or None if the send is still in progress. */
static PyObject *sender_wait(PyObject *self, PyObject *argument)
{
    tdm_weights_sender *sender = binding_object_handle(self);
    long long left_ms = PyLong_AsLongLong(argument);
    uint64_t version = 0;
    tdm_status status;

    if (sender == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    do {
        int64_t slice_ms = left_ms < BINDING_SLICE_MS ? left_ms : (int64_t)BINDING_SLICE_MS;

        BINDING_WITH_OBJECT(self, status = tdm_weights_wait(sender, slice_ms, &version));
        left_ms -= slice_ms;
        if (PyErr_CheckSignals() < 0 || binding_object_handle(self) == NULL) {
            return NULL;
        }
    } while (status == TDM_E_TIMEOUT && left_ms > 0);
    return version_or_raise(status, version);
}

/* Sender.receivers_count */
static PyObject *sender_receivers_count(PyObject *self, void *closure)
{
    const tdm_weights_sender *sender = binding_object_handle(self);

    (void)closure;
    return sender == NULL ? NULL : PyLong_FromUnsignedLong(tdm_weights_receivers_count(sender));
}

/* Sender.shutdown() */
static PyObject *sender_shutdown(PyObject *self, PyObject *ignored)
{
    tdm_weights_sender *sender = take_handle(self);

    (void)ignored;
    BINDING_WITH_RUNTIME(tdm_weights_sender_shutdown(sender));
    Py_RETURN_NONE;
}

/* ---- the receiver ------------------------------------------------------------------------ */

/* Options of the models of a receiver's set, each with an owned array of tensors. */
struct receiver_set {
    uint32_t count; /* Number of models. */
    struct tdm_weights_receiver_options options[TDM_WEIGHTS_SET_MAX];
};

/* Reads a list of (model, tensors). Returns false with an exception. */
static bool read_receiver_set(PyObject *list, struct receiver_set *set)
{
    uint32_t count = count_models(list);

    for (uint32_t i = 0; i < count; i++) {
        struct tdm_weights_receiver_options *options = &set->options[i];
        PyObject *tensors;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "sO!", &options->model, &PyList_Type,
                              &tensors)) {
            return false;
        }
        options->tensors = read_tensors(tensors, &options->tensors_count);
        if (options->tensors == NULL) {
            return false;
        }
        set->count++;
    }
    return count != 0;
}

/* create_receiver(models, timeout_ms, background): models is a list of (model, tensors), which are
 * received together. */
static PyObject *create_receiver(PyObject *module, PyObject *args)
{
    struct receiver_set set = {.count = 0};
    tdm_runtime *runtime = binding_runtime();
    tdm_weights_receiver *receiver = NULL;
    tdm_status status = TDM_E_INVAL;
    long long timeout_ms;
    PyObject *list;
    int background;
    bool is_read;

    (void)module;
    if (runtime == NULL ||
        !PyArg_ParseTuple(args, "O!Lp", &PyList_Type, &list, &timeout_ms, &background)) {
        return NULL;
    }
    is_read = read_receiver_set(list, &set);
    for (uint32_t i = 0; i < set.count; i++) {
        set.options[i].timeout_ms = timeout_ms;
        set.options[i].background = background;
    }
    if (is_read) {
        status = tdm_weights_receiver_create_set(runtime, set.options, set.count, &receiver);
    }
    for (uint32_t i = 0; i < set.count; i++) {
        free((void *)(uintptr_t)set.options[i].tensors);
    }
    if (!is_read) {
        return NULL;
    }
    return status == TDM_OK ? binding_object_create(receiver_type, BINDING_RECEIVER, receiver)
                            : binding_raise(status);
}

/* Receiver.connect() */
static PyObject *receiver_connect(PyObject *self, PyObject *ignored)
{
    tdm_weights_receiver *receiver = binding_object_handle(self);
    tdm_status status;

    (void)ignored;
    if (receiver == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_weights_receiver_connect(receiver));
    return none_or_raise(status);
}

/* Receiver.receive(timeout_ms) */
static PyObject *receiver_receive(PyObject *self, PyObject *argument)
{
    tdm_weights_receiver *receiver = binding_object_handle(self);
    long long left_ms = PyLong_AsLongLong(argument);
    uint64_t version = 0;
    tdm_status status;

    if (receiver == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    do {
        int64_t slice_ms = left_ms < BINDING_SLICE_MS ? left_ms : (int64_t)BINDING_SLICE_MS;

        BINDING_WITH_OBJECT(self, status = tdm_weights_receive(receiver, slice_ms, &version));
        left_ms -= slice_ms;
        if (PyErr_CheckSignals() < 0 || binding_object_handle(self) == NULL) {
            return NULL;
        }
    } while (status == TDM_E_TIMEOUT && left_ms > 0);
    return version_or_raise(status, version);
}

/* Receiver.read_begin() */
static PyObject *receiver_read_begin(PyObject *self, PyObject *ignored)
{
    tdm_weights_receiver *receiver = binding_object_handle(self);
    uint64_t version = 0;
    tdm_status status;

    (void)ignored;
    if (receiver == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_weights_read_begin(receiver, &version));
    return version_or_raise(status, version);
}

/* Receiver.read_end() */
static PyObject *receiver_read_end(PyObject *self, PyObject *ignored)
{
    tdm_weights_receiver *receiver = binding_object_handle(self);

    (void)ignored;
    if (receiver == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, tdm_weights_read_end(receiver));
    Py_RETURN_NONE;
}

/* Returns the receiver of one model of a set, or NULL with an exception. */
static const tdm_weights_receiver *receiver_of_model(PyObject *self, const char *model)
{
    const tdm_weights_receiver *receiver = binding_object_handle(self);

    if (receiver == NULL) {
        return NULL;
    }
    receiver = tdm_weights_receiver_of(receiver, model);
    if (receiver == NULL) {
        PyErr_Format(PyExc_KeyError, "this receiver does not have the model %s", model);
    }
    return receiver;
}

/* Receiver.address(model, index): of a tensor, between read_begin() and read_end(). */
static PyObject *receiver_address(PyObject *self, PyObject *args)
{
    const tdm_weights_receiver *receiver;
    const char *model;
    unsigned int index;
    const void *data;

    if (!PyArg_ParseTuple(args, "sI", &model, &index)) {
        return NULL;
    }
    receiver = receiver_of_model(self, model);
    if (receiver == NULL) {
        return NULL;
    }
    data = tdm_weights_data(receiver, index);
    if (data == NULL) {
        PyErr_SetString(PyExc_IndexError, "there is no such tensor");
        return NULL;
    }
    return PyLong_FromVoidPtr((void *)(uintptr_t)data);
}

/* Receiver.attached(model): the bytes of the version, between read_begin() and read_end(). */
static PyObject *receiver_attached(PyObject *self, PyObject *argument)
{
    const char *model = PyUnicode_AsUTF8AndSize(argument, NULL);
    const tdm_weights_receiver *receiver = model == NULL ? NULL : receiver_of_model(self, model);
    struct tdm_bytes attached;

    if (receiver == NULL) {
        return NULL;
    }
    attached = tdm_weights_attached(receiver);
    return PyBytes_FromStringAndSize(attached.data, (Py_ssize_t)attached.size_bytes);
}

/* Receiver.shutdown() */
static PyObject *receiver_shutdown(PyObject *self, PyObject *ignored)
{
    tdm_weights_receiver *receiver = take_handle(self);

    (void)ignored;
    BINDING_WITH_RUNTIME(tdm_weights_receiver_shutdown(receiver));
    Py_RETURN_NONE;
}

static PyMethodDef sender_methods[] = {
    {"connect", sender_connect, METH_NOARGS,
     "connect()\n--\n\nWait for the receivers and send the first weights."},
    {"attach", sender_attach, METH_O,
     "attach(data)\n--\n\nAttach bytes to each version that is sent from now on."},
    {"send", sender_send, METH_NOARGS, "send()\n--\n\nSend the tensors and return the version."},
    {"send_async", sender_send_async, METH_NOARGS,
     "send_async()\n--\n\nBegin to send the tensors, which must not change before wait() ends."},
    {"wait", sender_wait, METH_O,
     "wait(timeout_ms)\n--\n\nReturn the version of send_async() once all have it."},
    {"shutdown", sender_shutdown, METH_NOARGS, "shutdown()\n--\n\nEnd the sender."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef sender_attributes[] = {{"receivers_count", sender_receivers_count, NULL,
                                           "Number of receivers to which the last send went.",
                                           NULL},
                                          {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot sender_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                     {Py_tp_methods, sender_methods},
                                     {Py_tp_getset, sender_attributes},
                                     {Py_tp_doc, "A sender of a model's weights."},
                                     {0, NULL}};
static PyType_Spec sender_spec = {"tandem._tandem.Sender", sizeof(struct binding_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  sender_slots};
static PyMethodDef receiver_methods[] = {
    {"connect", receiver_connect, METH_NOARGS,
     "connect()\n--\n\nWait for the sender and receive the first weights."},
    {"receive", receiver_receive, METH_O,
     "receive(timeout_ms)\n--\n\nWait for a version to go live and return its number."},
    {"read_begin", receiver_read_begin, METH_NOARGS,
     "read_begin()\n--\n\nKeep the tensors as they are until read_end(); return their version."},
    {"read_end", receiver_read_end, METH_NOARGS, "read_end()\n--\n\nEnd a read_begin()."},
    {"address", receiver_address, METH_VARARGS,
     "address(model, index)\n--\n\n"
     "Return the address of a tensor, which is valid until read_end()."},
    {"attached", receiver_attached, METH_O,
     "attached(model)\n--\n\nReturn the bytes that are attached to the version that is read."},
    {"shutdown", receiver_shutdown, METH_NOARGS, "shutdown()\n--\n\nEnd the receiver."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot receiver_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                       {Py_tp_methods, receiver_methods},
                                       {Py_tp_doc, "A receiver of a model's weights."},
                                       {0, NULL}};
static PyType_Spec receiver_spec = {"tandem._tandem.Receiver", sizeof(struct binding_object), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                    receiver_slots};
static PyMethodDef functions[] = {
    {"create_sender", create_sender, METH_VARARGS,
     "create_sender(models, timeout_ms, bucket_bytes, receiver)\n--\n\n"
     "Create a sender of (model, scheme, tensors, receivers_count) in a list; the memory of the "
     "tensors is borrowed."},
    {"create_receiver", create_receiver, METH_VARARGS,
     "create_receiver(models, timeout_ms, background)\n--\n\n"
     "Create a receiver of (model, tensors) in a list; the memory of the tensors is borrowed."},
    {NULL, NULL, 0, NULL}};

/* Sets an item of a dict and releases the value.  Returns false with an exception, also if the
 * value is NULL. */
static bool set_item(PyObject *dict, const char *key, PyObject *value)
{
    bool done = value != NULL && PyDict_SetItemString(dict, key, value) == 0;

    Py_XDECREF(value);
    return done;
}

/* Adds the dicts SCHEMES, the numbers of the schemes by name, and TORCHRL_SCHEMES, their names by
 * TorchRL's class. */
static bool add_schemes(PyObject *module)
{
    PyObject *numbers = PyDict_New();
    PyObject *names = PyDict_New();
    bool done = numbers != NULL && names != NULL;

    for (int i = TDM_WEIGHTS_SHARED;
         done && tdm_weights_scheme_name((enum tdm_weights_scheme)i) != NULL; i++) {
        enum tdm_weights_scheme scheme = (enum tdm_weights_scheme)i;
        const char *name = tdm_weights_scheme_name(scheme);

        done = set_item(numbers, name, PyLong_FromLong(i)) &&
               set_item(names, tdm_weights_scheme_torchrl(scheme), PyUnicode_FromString(name));
    }
    done = done && PyModule_AddObjectRef(module, "SCHEMES", numbers) == 0 &&
           PyModule_AddObjectRef(module, "TORCHRL_SCHEMES", names) == 0;
    Py_XDECREF(numbers);
    Py_XDECREF(names);
    return done;
}

/* Adds the list STRATEGIES, the names of TorchRL's strategies. */
static bool add_strategies(PyObject *module)
{
    PyObject *list = PyList_New(0);
    bool done = list != NULL;

    for (uint32_t i = 0; done && tdm_weights_strategy_name(i) != NULL; i++) {
        PyObject *name = PyUnicode_FromString(tdm_weights_strategy_name(i));

        done = name != NULL && PyList_Append(list, name) == 0;
        Py_XDECREF(name);
    }
    done = done && PyModule_AddObjectRef(module, "STRATEGIES", list) == 0;
    Py_XDECREF(list);
    return done;
}

bool binding_weights_init(PyObject *module)
{
    sender_type = (PyTypeObject *)PyType_FromSpec(&sender_spec);
    receiver_type = (PyTypeObject *)PyType_FromSpec(&receiver_spec);
    return sender_type != NULL && receiver_type != NULL && add_schemes(module) &&
           add_strategies(module) && PyModule_AddFunctions(module, functions) == 0;
}
