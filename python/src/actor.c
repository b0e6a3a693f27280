/* actor.c - the types Actor and Stream: handles to actors, and their calls. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <string.h>

PyTypeObject *binding_actor_type;
/* The type Stream. */
static PyTypeObject *stream_type;

/* ---- calls ------------------------------------------------------------------------------ */

/* A call on its way to libtandem. */
struct outgoing {
    const char *method;              /* Name of the method, borrowed from Python. */
    struct tdm_call_options options; /* Options of the call. */
    struct binding_payload payload;  /* The arguments. */
};

/* Fills the call from (method, kind, pickle, buffers, objects, awaited, results_count,
 * max_retries). A max_retries of -3 means the actor's. Returns false with an exception; the caller
 * releases the payload in any case. */
static bool outgoing_init(struct outgoing *outgoing, PyObject *const *args, Py_ssize_t count)
{
    *outgoing = (struct outgoing){.method = NULL};
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "a call has eight arguments");
        return false;
    }
    outgoing->method = PyUnicode_AsUTF8AndSize(args[0], NULL);
    if (outgoing->method == NULL || !binding_payload_init(&outgoing->payload, args + 1, 5)) {
        return false;
    }
    outgoing->options.results_count = (uint32_t)PyLong_AsUnsignedLong(args[6]);
    outgoing->options.max_retries = (int32_t)PyLong_AsLong(args[7]);
    if (outgoing->options.max_retries == -3) {
        outgoing->options.max_retries = 0;
    }
    if (PyErr_Occurred() != NULL) {
        return false;
    }
    if (outgoing->options.results_count > TDM_RESULTS_MAX) {
        PyErr_Format(PyExc_ValueError, "num_returns is %u: a call has at most %d results",
                     (unsigned)outgoing->options.results_count, TDM_RESULTS_MAX);
        return false;
    }
    return true;
}

/* Makes the call. */
static tdm_status outgoing_send(tdm_actor *actor, const struct outgoing *outgoing, tdm_ref **refs)
{
    const struct binding_payload *payload = &outgoing->payload;

    return BINDING_IS_PLAIN(payload)
               ? tdm_actor_call_with(actor, outgoing->method, &outgoing->options, refs,
                                     BINDING_PLAIN_FORMAT, BINDING_PLAIN_ARGUMENTS(payload))
               : tdm_actor_call_with(actor, outgoing->method, &outgoing->options, refs,
                                     BINDING_FORMAT, BINDING_ARGUMENTS(payload));
}

/* Returns the reference, or the list of references, of a call that was made. */
static PyObject *results_create(tdm_ref **refs, uint32_t count)
{
    PyObject *list;

    if (count <= 1) {
        return binding_ref_create(refs[0]);
    }
    list = PyList_New(count);
    for (uint32_t i = 0; list != NULL && i < count; i++) {
        PyObject *ref = binding_ref_create(refs[i]);

        if (ref == NULL) {
            Py_DECREF(list);
            return NULL;
        }
        (void)PyList_SetItem(list, i, ref);
    }
    return list;
}

/* Actor.call(method, kind, pickle, buffers, objects, awaited, results_count, max_retries) */
static PyObject *actor_call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    tdm_ref *refs[TDM_RESULTS_MAX]; /* Set by a call that succeeds. */
    tdm_actor *actor = binding_object_handle(self);
    struct outgoing outgoing;
    tdm_status status = TDM_E_INVAL;
    bool is_ready = actor != NULL && outgoing_init(&outgoing, args, count);

    if (actor == NULL) {
        return NULL;
    }
    if (is_ready && binding_payload_is_large(&outgoing.payload)) {
        BINDING_WITH_OBJECT(self, status = outgoing_send(actor, &outgoing, refs));
    } else if (is_ready) {
        status = outgoing_send(actor, &outgoing, refs);
    }
    binding_payload_release(&outgoing.payload);
    if (!is_ready) {
        return NULL;
    }
    return status == TDM_OK ? results_create(refs, outgoing.options.results_count)
                            : binding_raise(status);
}

/* Actor.stream(method, kind, pickle, buffers, objects, awaited, results_count, max_retries) */
static PyObject *actor_stream(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    tdm_actor *actor = binding_object_handle(self);
    const struct binding_payload *payload;
    struct outgoing outgoing;
    tdm_stream *stream = NULL;
    tdm_status status = TDM_E_INVAL;
    bool is_ready = actor != NULL && outgoing_init(&outgoing, args, count);

    if (actor == NULL) {
        return NULL;
    }
    payload = &outgoing.payload;
    if (is_ready) {
        outgoing.options.results_count = 0;
        status = tdm_actor_stream(actor, outgoing.method, &outgoing.options, &stream,
                                  BINDING_FORMAT, BINDING_ARGUMENTS(payload));
    }
    binding_payload_release(&outgoing.payload);
    if (!is_ready) {
        return NULL;
    }
    return status == TDM_OK ? binding_object_create(stream_type, BINDING_STREAM, stream)
                            : binding_raise(status);
}

/* Stream.next(timeout_ms): the next reference; None if it is not there yet, False at the end. */
static PyObject *stream_next(PyObject *self, PyObject *argument)
{
    tdm_stream *stream = binding_object_handle(self);
    int64_t timeout_ms = PyLong_AsLongLong(argument);
    tdm_ref *ref = NULL;
    tdm_status status;

    if (stream == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_stream_next(stream, timeout_ms, &ref));
    if (status == TDM_E_TIMEOUT) {
        Py_RETURN_NONE;
    }
    if (status == TDM_E_END) {
        Py_RETURN_FALSE;
    }
    return status == TDM_OK ? binding_ref_create(ref) : binding_raise(status);
}

/* ---- handles ---------------------------------------------------------------------------- */

/* Actor.wait_ready(timeout_ms): whether the actor is constructed. */
static PyObject *actor_wait_ready(PyObject *self, PyObject *argument)
{
    tdm_actor *actor = binding_object_handle(self);
    int64_t timeout_ms = PyLong_AsLongLong(argument);
    tdm_status status;

    if (actor == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = tdm_actor_wait_ready(actor, timeout_ms));
    if (status == TDM_E_TIMEOUT) {
        Py_RETURN_FALSE;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_TRUE;
}

/* Actor.describe() */
static PyObject *actor_describe(PyObject *self, PyObject *ignored)
{
    tdm_actor *actor = binding_object_handle(self);
    struct tdm_actor_info info;

    (void)ignored;
    if (actor == NULL) {
        return NULL;
    }
    tdm_actor_describe(actor, &info);
    return Py_BuildValue("{sssssssssL}", "id", info.id, "name", info.name, "class_name",
                         info.class_name, "node_id", info.node_id, "pid", (long long)info.pid);
}

/* Actor.metadata(): what the creator has told all callers; None if there is nothing. */
static PyObject *actor_metadata(PyObject *self, PyObject *ignored)
{
    tdm_actor *actor = binding_object_handle(self);
    struct tdm_bytes metadata;

    (void)ignored;
    if (actor == NULL) {
        return NULL;
    }
    metadata = tdm_actor_metadata(actor);
    if (metadata.data == NULL) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize(metadata.data, (Py_ssize_t)metadata.size_bytes);
}

/* Actor.kill(may_restart, timeout_ms) */
static PyObject *actor_kill(PyObject *self, PyObject *args)
{
    tdm_actor *actor;
    tdm_status status;
    long long timeout_ms;
    int may_restart;

    if (!PyArg_ParseTuple(args, "pL", &may_restart, &timeout_ms)) {
        return NULL;
    }
    actor = binding_object_handle(self);
    if (actor == NULL) {
        return NULL;
    }
    BINDING_WITH_OBJECT(self, status = may_restart ? tdm_actor_restart(actor, timeout_ms)
                                                   : tdm_actor_kill(actor, timeout_ms));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Actor.export(): the portable form. */
static PyObject *actor_export(PyObject *self, PyObject *ignored)
{
    tdm_actor *actor = binding_object_handle(self);
    struct tdm_portable form;
    tdm_status status;

    (void)ignored;
    if (actor == NULL) {
        return NULL;
    }
    status = tdm_actor_export(actor, &form);
    return status == TDM_OK
               ? PyBytes_FromStringAndSize((const char *)form.bytes, (Py_ssize_t)form.size_bytes)
               : binding_raise(status);
}

/* Actor.move_calls(to): whether the calls were moved. */
static PyObject *actor_move_calls(PyObject *self, PyObject *other)
{
    tdm_actor *from = binding_object_handle(self);
    tdm_actor *to = NULL;

    if (!PyObject_TypeCheck(other, binding_actor_type)) {
        PyErr_SetString(PyExc_TypeError, "an Actor is wanted");
        return NULL;
    }
    to = from == NULL ? NULL : binding_object_handle(other);
    if (to == NULL) {
        return NULL;
    }
    return PyBool_FromLong(tdm_actor_move_calls(from, to) == TDM_OK);
}

static PyMethodDef actor_methods[] = {
    {"call", (PyCFunction)(void *)actor_call, METH_FASTCALL,
     "call(method, kind, pickle, buffers, objects, awaited, results_count, max_retries)\n--\n\n"
     "Call a method and return its reference, or a list of results_count references."},
    {"stream", (PyCFunction)(void *)actor_stream, METH_FASTCALL,
     "stream(method, kind, pickle, buffers, objects, awaited, results_count, max_retries)\n--\n\n"
     "Call a method that yields, and return its Stream."},
    {"move_calls", actor_move_calls, METH_O,
     "move_calls(to)\n--\n\nMove the calls to this actor, if it has no place yet, to the Actor to, "
     "and "
     "return whether that was possible."},
    {"wait_ready", actor_wait_ready, METH_O,
     "wait_ready(timeout_ms)\n--\n\nWait and return whether the actor is constructed."},
    {"describe", actor_describe, METH_NOARGS,
     "describe()\n--\n\nReturn a dict of what this process knows about the actor."},
    {"metadata", actor_metadata, METH_NOARGS,
     "metadata()\n--\n\nReturn the bytes that the creator tells all callers, or None."},
    {"export", actor_export, METH_NOARGS,
     "export()\n--\n\nReturn bytes of which import_actor() makes the handle in any process."},
    {"kill", actor_kill, METH_VARARGS,
     "kill(may_restart, timeout_ms)\n--\n\nKill the process of the actor."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot actor_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                    {Py_tp_methods, actor_methods},
                                    {Py_tp_doc, "A handle to an actor."},
                                    {0, NULL}};
static PyType_Spec actor_spec = {"tandem._tandem.Actor", sizeof(struct binding_object), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 actor_slots};
/* Stream.completed() */
static PyObject *stream_completed(PyObject *self, PyObject *ignored)
{
    tdm_stream *stream = binding_object_handle(self);
    tdm_ref *ref = NULL;
    tdm_status status;

    (void)ignored;
    if (stream == NULL) {
        return NULL;
    }
    status = tdm_stream_completed(stream, &ref);
    return status == TDM_OK ? binding_ref_create(ref) : binding_raise(status);
}

static PyMethodDef stream_methods[] = {
    {"next", stream_next, METH_O,
     "next(timeout_ms)\n--\n\nReturn the next reference, None if it is not there yet, or False at "
     "the end."},
    {"completed", stream_completed, METH_NOARGS,
     "completed()\n--\n\nReturn a reference that is done when the method has ended."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot stream_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                     {Py_tp_methods, stream_methods},
                                     {Py_tp_doc, "The items that a method yields."},
                                     {0, NULL}};
static PyType_Spec stream_spec = {"tandem._tandem.Stream", sizeof(struct binding_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  stream_slots};

/* ---- creation --------------------------------------------------------------------------- */

enum { TEXTS_MAX = 1024 /* Most variables and arguments of an actor. */ };

/* Options of an actor while they are read from a dict. */
struct creation {
    struct tdm_actor_options options;       /* The options; texts are borrowed from the dict. */
    const char *arguments[TEXTS_MAX + 1];   /* Arguments of the program, borrowed. */
    const char *environment[TEXTS_MAX + 1]; /* Environment of the actor, borrowed. */
};

/* Reads a number from the dict; the default is 0. Returns false with an exception. */
static bool read_number(PyObject *dict, const char *key, double *number_out)
{
    PyObject *value = PyDict_GetItemString(dict, key);

    *number_out = value == NULL ? 0 : PyFloat_AsDouble(value);
    return PyErr_Occurred() == NULL;
}

/* Reads a text from the dict; NULL if it is absent or None. Returns false with an exception. */
static bool read_text(PyObject *dict, const char *key, const char **text_out)
{
    PyObject *value = PyDict_GetItemString(dict, key);

    Py_ssize_t size_bytes = 0;

    *text_out =
        value == NULL || value == Py_None ? NULL : PyUnicode_AsUTF8AndSize(value, &size_bytes);
    if (*text_out != NULL && strlen(*text_out) != (size_t)size_bytes) {
        PyErr_Format(PyExc_ValueError, "%s: a text with a null character", key);
    }
    return PyErr_Occurred() == NULL;
}

/* Reads the metadata, bytes, from the dict; none if they are absent. Returns false with an
 * exception. */
static bool read_metadata(PyObject *dict, struct tdm_bytes *metadata_out)
{
    PyObject *value = PyDict_GetItemString(dict, "metadata");
    char *bytes;
    Py_ssize_t size_bytes;

    if (value == NULL) {
        return true;
    }
    if (PyBytes_AsStringAndSize(value, &bytes, &size_bytes) < 0) {
        return false;
    }
    *metadata_out = (struct tdm_bytes){bytes, (size_t)size_bytes};
    return true;
}

/* Reads a list of texts from the dict into `texts`, which has room for `texts_max` and a NULL.
 * Returns false with an exception. */
static bool read_texts(PyObject *dict, const char *key, const char **texts, Py_ssize_t texts_max)
{
    PyObject *list = PyDict_GetItemString(dict, key);
    Py_ssize_t count = list == NULL ? 0 : PyList_Size(list);

    if (count < 0 || count > texts_max) {
        PyErr_Format(PyExc_ValueError, "%s: more than %zd texts", key, texts_max);
        return false;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        texts[i] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, i), NULL);
        if (texts[i] == NULL) {
            return false;
        }
    }
    texts[count] = NULL;
    return true;
}

/* Reads the custom resources, a dict of amounts. Returns false with an exception. */
static bool read_resources(PyObject *dict, struct tdm_actor_options *options)
{
    PyObject *resources = PyDict_GetItemString(dict, "resources");
    PyObject *name;
    PyObject *amount;
    Py_ssize_t position = 0;
    uint32_t count = 0;

    while (resources != NULL && PyDict_Next(resources, &position, &name, &amount)) {
        if (count == TDM_ACTOR_RESOURCES_MAX) {
            PyErr_Format(PyExc_NotImplementedError, "more than %d custom resources",
                         TDM_ACTOR_RESOURCES_MAX);
            return false;
        }
        options->resources[count].name = PyUnicode_AsUTF8AndSize(name, NULL);
        options->resources[count].amount = PyFloat_AsDouble(amount);
        count++;
        if (PyErr_Occurred() != NULL) {
            return false;
        }
    }
    return true;
}

/* Reads the numbers of the options. Returns false with an exception. */
static bool read_numbers(PyObject *dict, struct tdm_actor_options *options)
{
    double bundle;
    double memory;
    double detached;
    double get_if_exists;
    double restarts;
    double retries;
    double concurrency;
    double pending;
    double out_of_order;
    double scheduling;
    double capture;
    double keep_devices;

    if (!read_number(dict, "num_cpus", &options->num_cpus) ||
        !read_number(dict, "num_gpus", &options->num_gpus) ||
        !read_number(dict, "bundle", &bundle) || !read_number(dict, "memory", &memory) ||
        !read_number(dict, "detached", &detached) ||
        !read_number(dict, "get_if_exists", &get_if_exists) ||
        !read_number(dict, "max_restarts", &restarts) ||
        !read_number(dict, "max_task_retries", &retries) ||
        !read_number(dict, "max_concurrency", &concurrency) ||
        !read_number(dict, "max_pending_calls", &pending) ||
        !read_number(dict, "allow_out_of_order", &out_of_order) ||
        !read_number(dict, "scheduling", &scheduling) ||
        !read_number(dict, "capture_children", &capture) ||
        !read_number(dict, "keep_visible_devices", &keep_devices)) {
        return false;
    }
    options->bundle = bundle < 0 ? TDM_BUNDLE_ANY : (uint32_t)bundle;
    options->memory_bytes = (uint64_t)memory;
    options->detached = detached != 0;
    options->get_if_exists = get_if_exists != 0;
    options->max_restarts = (int32_t)restarts;
    options->max_task_retries = (int32_t)retries;
    options->max_concurrency = (uint32_t)concurrency;
    options->max_pending_calls = pending < 0 ? 0 : (uint32_t)pending;
    options->allow_out_of_order = out_of_order != 0;
    options->scheduling = (enum tdm_scheduling)(int)scheduling;
    options->capture_children = capture != 0;
    options->keep_visible_devices = keep_devices != 0;
    return true;
}

/* Fills the options from the dict. Returns false with an exception. */
static bool creation_init(struct creation *creation, PyObject *dict)
{
    struct tdm_actor_options *options = &creation->options;
    PyObject *group = PyDict_GetItemString(dict, "group");

    if (!read_numbers(dict, options) || !read_resources(dict, options) ||
        !read_metadata(dict, &options->metadata) || !read_text(dict, "name", &options->name) ||
        !read_text(dict, "namespace", &options->name_space) ||
        !read_text(dict, "node_id", &options->node_id) ||
        !read_text(dict, "program", &options->program) ||
        !read_text(dict, "working_directory", &options->working_directory) ||
        !read_texts(dict, "labels", options->labels, TDM_LABELS_MAX - 1) ||
        !read_texts(dict, "arguments", creation->arguments, TEXTS_MAX) ||
        !read_texts(dict, "environment", creation->environment, TEXTS_MAX)) {
        return false;
    }
    options->program_arguments = creation->arguments;
    options->more_environment = creation->environment;
    if (group != NULL && group != Py_None) {
        options->group = binding_group_handle(group);
        return options->group != NULL;
    }
    return true;
}

/* Implements create(class_name, options, kind, pickle, buffers, objects, awaited). */
static PyObject *create(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    static struct creation creation; /* Guarded by the GIL, which is not released. */
    struct binding_payload payload = {.kind = 0};
    tdm_runtime *runtime = binding_runtime();
    const char *class_name;
    tdm_actor *actor = NULL;
    tdm_status status = TDM_E_INVAL;
    bool is_ready;

    (void)module;
    if (runtime == NULL || count != 7) {
        return runtime == NULL ? NULL : PyErr_Format(PyExc_TypeError, "create() has 7 arguments");
    }
    creation = (struct creation){.options = {.num_cpus = 0}};
    class_name = PyUnicode_AsUTF8AndSize(args[0], NULL);
    is_ready = class_name != NULL && creation_init(&creation, args[1]) &&
               binding_payload_init(&payload, args + 2, count - 2);
    if (is_ready) {
        status = tdm_actor_create(runtime, class_name, &creation.options, &actor, BINDING_FORMAT,
                                  BINDING_ARGUMENTS(&payload));
    }
    binding_payload_release(&payload);
    if (!is_ready) {
        return NULL;
    }
    return status == TDM_OK ? binding_object_create(binding_actor_type, BINDING_ACTOR, actor)
                            : binding_raise(status);
}

/* Implements current_actor(). */
static PyObject *current_actor(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_actor *actor = NULL;
    tdm_status status = runtime == NULL ? TDM_OK : tdm_actor_current(runtime, &actor);

    (void)module;
    (void)ignored;
    if (runtime == NULL || status != TDM_OK) {
        return runtime == NULL ? NULL : binding_raise(status);
    }
    return binding_object_create(binding_actor_type, BINDING_ACTOR, actor);
}

/* Implements find(namespace, name, timeout_ms). */
static PyObject *find(PyObject *module, PyObject *args)
{
    tdm_runtime *runtime = binding_runtime();
    const char *name_space;
    const char *name;
    long long timeout_ms;
    tdm_actor *actor = NULL;
    tdm_status status;

    (void)module;
    if (runtime == NULL || !PyArg_ParseTuple(args, "zsL", &name_space, &name, &timeout_ms)) {
        return NULL;
    }
    BINDING_WITH_RUNTIME(
        status = name_space == NULL
                     ? tdm_actor_find(runtime, name, timeout_ms, &actor)
                     : tdm_actor_find_in(runtime, name_space, name, timeout_ms, &actor));
    return status == TDM_OK ? binding_object_create(binding_actor_type, BINDING_ACTOR, actor)
                            : binding_raise(status);
}

/* Implements import_actor(bytes). */
static PyObject *import_actor(PyObject *module, PyObject *bytes)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_actor *actor = NULL;
    Py_buffer form;
    tdm_status status;

    (void)module;
    if (runtime == NULL || PyObject_GetBuffer(bytes, &form, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    status = tdm_actor_import(runtime, (struct tdm_bytes){form.buf, (size_t)form.len}, &actor);
    PyBuffer_Release(&form);
    return status == TDM_OK ? binding_object_create(binding_actor_type, BINDING_ACTOR, actor)
                            : binding_raise(status);
}

static PyMethodDef functions[] = {
    {"create", (PyCFunction)(void *)create, METH_FASTCALL,
     "create(class_name, options, kind, pickle, buffers, objects, awaited)\n--\n\n"
     "Create an actor. The dict of options has the names of struct tdm_actor_options."},
    {"find", find, METH_VARARGS,
     "find(namespace, name, timeout_ms)\n--\n\nReturn the actor of that name."},
    {"current_actor", current_actor, METH_NOARGS,
     "current_actor()\n--\n\nReturn a handle to the actor of this process."},
    {"import_actor", import_actor, METH_O,
     "import_actor(bytes)\n--\n\nReturn the handle of which Actor.export() made the bytes."},
    {NULL, NULL, 0, NULL}};

bool binding_actor_init(PyObject *module)
{
    binding_actor_type = (PyTypeObject *)PyType_FromSpec(&actor_spec);
    stream_type = (PyTypeObject *)PyType_FromSpec(&stream_spec);
    return binding_actor_type != NULL && stream_type != NULL &&
           PyModule_AddObjectRef(module, "Actor", (PyObject *)binding_actor_type) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}
