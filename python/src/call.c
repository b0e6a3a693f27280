/* call.c - the type Call and the actor class "*": how Python methods serve calls. */
/* SPDX-License-Identifier: Apache-2.0 */

/* One asynchronous class "*" serves all Python actors. Its one method calls the function that
 * Python has set, on the main thread of the worker and with the GIL. That function replies at once,
 * or keeps the call for another thread or for a coroutine; concurrency is Python's business. The
 * main thread has the GIL only inside of these functions. */
#include "binding.h"

#include <stdlib.h>

/* A received call. */
struct call {
    PyObject_HEAD /* The object's header. */
        tdm_call
            *call; /* The call; NULL once it was replied to, or has returned without being kept. */
    bool is_kept;  /* True if the call outlives its method. */
    /* Notice to post when the call is canceled, owned; NULL if Python has not asked for one, or
     * once it was posted. Guarded by libtandem's lock until the call is over. */
    struct binding_notice *cancel_notice;
};

static PyTypeObject *call_type;      /* The type Call. */
static PyObject *construct_function; /* Function construct(call), owned; NULL until it is set. */
static PyObject
    *dispatch_function; /* Function dispatch(call, method), owned; NULL until it is set. */
static PyObject *destruct_function; /* Function destruct(), owned; NULL until it is set. */

/* ---- the type --------------------------------------------------------------------------- */

/* Returns the call; NULL and an exception if it is over. */
static tdm_call *call_handle(PyObject *self)
{
    tdm_call *call = ((struct call *)self)->call;

    if (call == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the call has been replied to");
    }
    return call;
}

/* Marks the call as over: nothing can be done with it, and no callback runs for it any more. */
static void call_end(struct call *self)
{
    self->call = NULL;
    binding_notice_destroy(self->cancel_notice);
    self->cancel_notice = NULL;
}

/* Called when the caller has canceled the call, without the GIL. */
static void on_cancel(void *arg, tdm_call *call)
{
    struct call *self = arg;
    struct binding_notice *notice = self->cancel_notice;

    (void)call;
    self->cancel_notice = NULL;
    if (notice != NULL) {
        binding_notice_post(notice);
    }
}

/* Call.on_cancel(token, notices) */
static PyObject *call_on_cancel(PyObject *self, PyObject *args)
{
    struct call *object = (struct call *)self;
    tdm_call *call = call_handle(self);
    PyObject *token;
    PyObject *notices;
    tdm_status status;

    if (call == NULL || !PyArg_ParseTuple(args, "OO", &token, &notices)) {
        return NULL;
    }
    if (object->cancel_notice != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the call has a token for its cancellation already");
        return NULL;
    }
    object->cancel_notice = binding_notice_create(token, notices);
    if (object->cancel_notice == NULL) {
        return NULL;
    }
    status = tdm_call_on_cancel(call, on_cancel, object);
    if (status != TDM_OK) {
        binding_notice_destroy(object->cancel_notice);
        object->cancel_notice = NULL;
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Call.arguments() */
static PyObject *call_arguments(PyObject *self, PyObject *ignored)
{
    tdm_call *call = call_handle(self);
    PyObject *memory = call == NULL ? NULL : binding_memory_create(NULL, NULL);
    tdm_document *document = NULL;
    PyObject *result;

    (void)ignored;
    if (memory == NULL) {
        return NULL;
    }
    if (tdm_call_take_arguments(call, &document) == TDM_OK) {
        binding_memory_set_document(memory, document);
    }
    result = binding_value_read(tdm_call_arguments(call), memory);
    Py_DECREF(memory);
    return result;
}

/* Replies with one payload. */
static tdm_status reply_one(tdm_call *call, const struct binding_payload *payload)
{
    return BINDING_IS_PLAIN(payload)
               ? tdm_call_reply(call, BINDING_PLAIN_FORMAT, BINDING_PLAIN_ARGUMENTS(payload))
               : tdm_call_reply(call, "ib(*)(&)", BINDING_PLAIN_ARGUMENTS(payload),
                                &payload->lists[1]);
}

/* Call.reply(kind, pickle, buffers, objects, None) */
static PyObject *call_reply(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    tdm_call *call = call_handle(self);
    struct binding_payload payload;
    tdm_status status = TDM_E_INVAL;
    bool is_ready = call != NULL && binding_payload_init(&payload, args, count);

    if (call == NULL) {
        return NULL;
    }
    if (is_ready && binding_payload_is_large(&payload)) {
        BINDING_WITHOUT_GIL(status = reply_one(call, &payload));
    } else if (is_ready) {
        status = reply_one(call, &payload);
    }
    binding_payload_release(&payload);
    if (!is_ready) {
        return NULL;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    call_end((struct call *)self);
    Py_RETURN_NONE;
}

/* Several results on their way into a reply. */
struct results {
    struct binding_payload *payloads; /* One for each result, owned. */
    /* For each result the lists in `parts` as items, after the list of all results; owned. */
    struct tdm_item *items;
    /* For each result the list of its values, owned. */
    struct tdm_items *lists;
    uint32_t count; /* Number of results. */
};

/* Number of values of one result: kind, pickle, buffers, and references and handles. */
enum { RESULT_VALUES = 4 };

/* Allocates the arrays for `count` results. Returns false with an exception. */
static bool results_allocate(struct results *results, uint32_t count)
{
    *results = (struct results){.count = count};
    results->payloads = calloc(count, sizeof(*results->payloads));
    results->items = calloc((size_t)count * (1 + RESULT_VALUES), sizeof(*results->items));
    results->lists = calloc(count, sizeof(*results->lists));
    if (results->payloads == NULL || results->items == NULL || results->lists == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    return true;
}

/* Frees the arrays, which may be NULL, and what the payloads hold. */
static void results_release(struct results *results)
{
    for (uint32_t i = 0; results->payloads != NULL && i < results->count; i++) {
        binding_payload_release(&results->payloads[i]);
    }
    free(results->payloads);
    free(results->items);
    free(results->lists);
}

/* Fills the payload of result `i` from a tuple (kind, pickle, buffers, objects, None), and the
 * items that describe it. Returns false with an exception. */
static bool results_fill(struct results *results, uint32_t i, PyObject *tuple)
{
    struct binding_payload *payload = &results->payloads[i];
    struct tdm_item *values = &results->items[results->count + (size_t)i * RESULT_VALUES];
    PyObject *parts[5];

    for (Py_ssize_t j = 0; j < 5; j++) {
        parts[j] = PyTuple_GetItem(tuple, j);
    }
    if (PyErr_Occurred() != NULL || !binding_payload_init(payload, parts, 5)) {
        return false;
    }
    values[0] = (struct tdm_item){.letter = 'i', .object = &payload->kind};
    values[1] = (struct tdm_item){
        .letter = 'b', .object = payload->head.buf, .size_bytes = (size_t)payload->head.len};
    values[2] = (struct tdm_item){.letter = '(', .object = &payload->lists[0]};
    values[3] = (struct tdm_item){.letter = '(', .object = &payload->lists[1]};
    results->lists[i] =
        (struct tdm_items){values, BINDING_IS_PLAIN(payload) ? RESULT_VALUES - 1 : RESULT_VALUES};
    results->items[i] = (struct tdm_item){.letter = '(', .object = &results->lists[i]};
    return true;
}

/* Replies with all results. Those without references are packed straight into shared memory. */
static tdm_status results_reply(const struct results *results, tdm_call *call)
{
    const struct tdm_items list = {results->items, results->count};

    for (uint32_t i = 0; i < results->count; i++) {
        if (!BINDING_IS_PLAIN(&results->payloads[i])) {
            return tdm_call_reply(call, "&", &list);
        }
    }
    return tdm_call_reply(call, "*", &list);
}

/* Call.reply_several(list of (kind, pickle, buffers, objects, None)) */
static PyObject *call_reply_several(PyObject *self, PyObject *list)
{
    tdm_call *call = call_handle(self);
    Py_ssize_t count = call == NULL ? -1 : PyList_Size(list);
    struct results results = {.count = 0};
    tdm_status status = TDM_E_INVAL;
    bool is_ready;

    if (count >= 0 && (count == 0 || count > TDM_RESULTS_MAX)) {
        return PyErr_Format(PyExc_ValueError, "%zd results: a call has 1 to %d", count,
                            TDM_RESULTS_MAX);
    }
    is_ready = count > 0 && results_allocate(&results, (uint32_t)count);
    for (uint32_t i = 0; is_ready && i < results.count; i++) {
        is_ready = results_fill(&results, i, PyList_GetItem(list, (Py_ssize_t)i));
    }
    if (is_ready) {
        BINDING_WITHOUT_GIL(status = results_reply(&results, call));
    }
    results_release(&results);
    if (!is_ready) {
        return NULL;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    call_end((struct call *)self);
    Py_RETURN_NONE;
}

/* Call.send_item(kind, pickle, buffers, objects, None) */
static PyObject *call_send_item(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    tdm_call *call = call_handle(self);
    struct binding_payload payload;
    tdm_status status = TDM_E_INVAL;
    bool is_ready = call != NULL && binding_payload_init(&payload, args, count);

    if (call == NULL) {
        return NULL;
    }
    if (is_ready) {
        BINDING_WITHOUT_GIL(
            status =
                BINDING_IS_PLAIN(&payload)
                    ? tdm_call_yield(call, BINDING_PLAIN_FORMAT, BINDING_PLAIN_ARGUMENTS(&payload))
                    : tdm_call_yield(call, "ib(*)(&)", BINDING_PLAIN_ARGUMENTS(&payload),
                                     &payload.lists[1]));
    }
    binding_payload_release(&payload);
    if (!is_ready) {
        return NULL;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Call.set_items_ahead(count) */
static PyObject *call_set_items_ahead(PyObject *self, PyObject *count)
{
    tdm_call *call = call_handle(self);
    uint32_t items_ahead = (uint32_t)PyLong_AsUnsignedLong(count);
    tdm_status status;

    if (call == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    status =
        tdm_call_set_items_ahead(call, items_ahead == 0 ? TDM_STREAM_ITEMS_UNLIMITED : items_ahead);
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Call.keep() */
static PyObject *call_keep(PyObject *self, PyObject *ignored)
{
    tdm_call *call = call_handle(self);
    tdm_status status = call == NULL ? TDM_OK : tdm_call_keep(call);

    (void)ignored;
    if (call == NULL || status != TDM_OK) {
        return call == NULL ? NULL : binding_raise(status);
    }
    ((struct call *)self)->is_kept = true;
    Py_RETURN_NONE;
}

/* Call.is_canceled() */
static PyObject *call_is_canceled(PyObject *self, PyObject *ignored)
{
    tdm_call *call = ((struct call *)self)->call;

    (void)ignored;
    return PyBool_FromLong(call != NULL && tdm_call_is_canceled(call) != 0);
}

/* Implements tp_dealloc of Call. A kept call that nothing can reply to any more fails. */
static void call_dealloc(PyObject *object)
{
    struct call *self = (struct call *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (self->call != NULL && self->is_kept) {
        tdm_call_fail(self->call, TDM_E_METHOD, "the method ended without a reply");
    }
    call_end(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef call_methods[] = {
    {"arguments", call_arguments, METH_NOARGS,
     "arguments()\n--\n\nReturn (kind, pickle, buffers, objects, awaited), once."},
    {"reply", (PyCFunction)(void *)call_reply, METH_FASTCALL,
     "reply(kind, pickle, buffers, objects, None)\n--\n\nReply with a value."},
    {"reply_several", call_reply_several, METH_O,
     "reply_several(values)\n--\n\nReply with several values, each a tuple as for reply()."},
    {"send_item", (PyCFunction)(void *)call_send_item, METH_FASTCALL,
     "send_item(kind, pickle, buffers, objects, None)\n--\n\nSend an item of a stream. Waits while "
     "the reader is behind."},
    {"set_items_ahead", call_set_items_ahead, METH_O,
     "set_items_ahead(count)\n--\n\nLet that many items wait for the reader; 0: any number."},
    {"keep", call_keep, METH_NOARGS, "keep()\n--\n\nKeep the call beyond the end of its method."},
    {"is_canceled", call_is_canceled, METH_NOARGS,
     "is_canceled()\n--\n\nReturn whether the caller has canceled the call, or is gone."},
    {"on_cancel", call_on_cancel, METH_VARARGS,
     "on_cancel(token, notices)\n--\n\nPost token to the Notices object once the caller has "
     "canceled "
     "the call, unless it was replied to."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot call_slots[] = {{Py_tp_dealloc, call_dealloc},
                                   {Py_tp_methods, call_methods},
                                   {Py_tp_doc, "A call that this actor has received."},
                                   {0, NULL}};
static PyType_Spec call_spec = {"tandem._tandem.Call", sizeof(struct call), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, call_slots};

/* ---- the class -------------------------------------------------------------------------- */

/* Calls function(call, name), or function(call) if `name` is NULL, with the GIL. */
static tdm_status call_python(PyObject *function, tdm_call *call, const char *name)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    struct call *object =
        (struct call *)((allocfunc)PyType_GetSlot(call_type, Py_tp_alloc))(call_type, 0);
    PyObject *result = NULL;
    tdm_status status = TDM_OK;

    if (object != NULL) {
        object->call = call;
        result = name == NULL ? PyObject_CallFunction(function, "O", (PyObject *)object)
                              : PyObject_CallFunction(function, "Os", (PyObject *)object, name);
    }
    if (result == NULL) {
        status = binding_failure_of_exception(false);
    }
    if (object != NULL && object->call != NULL && !object->is_kept) {
        if (object->cancel_notice != NULL) {
            (void)tdm_call_on_cancel(call, NULL, NULL);
        }
        call_end(object);
    }
    Py_XDECREF((PyObject *)object);
    Py_XDECREF(result);
    PyGILState_Release(gil);
    return status;
}

/* Constructor of the class. */
static tdm_status python_construct(tdm_call *call, void *self)
{
    (void)self;
    return call_python(construct_function, call, NULL);
}

/* Method "*" of the class. */
static tdm_status python_method(tdm_call *call, void *self)
{
    (void)self;
    return call_python(dispatch_function, call, tdm_call_method(call));
}

/* Runs when the actor ends gracefully. */
static void python_destruct(void *self)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *result = PyObject_CallFunction(destruct_function, NULL);

    (void)self;
    if (result == NULL) {
        PyErr_Print();
    }
    Py_XDECREF(result);
    PyGILState_Release(gil);
}

static const struct tdm_actor_class python_class = {.name = "*",
                                                    .construct = python_construct,
                                                    .destruct = python_destruct,
                                                    .asynchronous = 1,
                                                    .methods = {{"*", python_method, NULL}}};

/* Implements set_actor_functions(construct, dispatch, destruct). */
static PyObject *set_actor_functions(PyObject *module, PyObject *args)
{
    (void)module;
    if (construct_function != NULL) {
        PyErr_SetString(PyExc_RuntimeError, "the functions are set already");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "OOO", &construct_function, &dispatch_function,
                          &destruct_function)) {
        return NULL;
    }
    (void)Py_NewRef(construct_function);
    (void)Py_NewRef(dispatch_function);
    (void)Py_NewRef(destruct_function);
    tdm_class_register(&python_class);
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"set_actor_functions", set_actor_functions, METH_VARARGS,
     "set_actor_functions(construct, dispatch, destruct)\n--\n\n"
     "Let construct(call), dispatch(call, method) and destruct() be the actor of this worker."},
    {NULL, NULL, 0, NULL}};

bool binding_call_init(PyObject *module)
{
    call_type = (PyTypeObject *)PyType_FromSpec(&call_spec);
    return call_type != NULL && PyModule_AddFunctions(module, functions) == 0;
}
