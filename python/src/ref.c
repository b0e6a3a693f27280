/* ref.c - the type Ref: a reference to a result, and the functions that wait for results. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A wait first looks without releasing the GIL, because most results are there already. Otherwise
 * it waits without the GIL in slices of BINDING_SLICE_MS and lets Python handle its signals in
 * between, so that Ctrl-C ends every wait. */
#include "binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

PyTypeObject *binding_ref_class;
/* The type Ref itself. */
static PyTypeObject *ref_type;

PyObject *binding_ref_create(tdm_ref *ref)
{
    return binding_object_create(binding_ref_class, BINDING_REF, ref);
}

int64_t binding_timeout_ms(PyObject *seconds)
{
    double value;

    if (seconds == Py_None) {
        return TDM_FOREVER;
    }
    value = PyFloat_AsDouble(seconds);
    if (value == -1.0 && PyErr_Occurred() != NULL) {
        return -2;
    }
    if (value < 0) {
        PyErr_SetString(PyExc_ValueError, "a timeout is not negative");
        return -2;
    }
    return value > 1e12 ? TDM_FOREVER : (int64_t)(value * 1000 + 0.999);
}

/* Returns the milliseconds on CLOCK_MONOTONIC. */
static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* True in a worker whose waits lend the CPUs of its actor. */
static bool waits_lend_cpus;
enum { LEND_AFTER_MS = 10 /* Milliseconds of a wait after which CPUs are lent. */ };

/* Lends the CPUs of this process's actor, if waits do so, once in a wait: `*is_lent` says so. */
static void lend_cpus(bool *is_lent)
{
    tdm_runtime *runtime = tdm_runtime_current();

    if (waits_lend_cpus && !*is_lent && runtime != NULL) {
        *is_lent = tdm_runtime_lend_cpus(runtime) == TDM_OK;
    }
}

/* Takes the CPUs back at the end of a wait, if they were lent. */
static void take_cpus_back(bool is_lent)
{
    tdm_runtime *runtime = tdm_runtime_current();

    if (is_lent && runtime != NULL) {
        (void)tdm_runtime_take_cpus_back(runtime);
    }
}

/* Calls a function that lends CPUs or takes them back. */
static PyObject *change_cpus(tdm_status (*change)(tdm_runtime *runtime))
{
    tdm_runtime *runtime = binding_runtime();
    tdm_status status = runtime == NULL ? TDM_OK : change(runtime);

    if (runtime == NULL || status != TDM_OK) {
        return runtime == NULL ? NULL : binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Implements lend_cpus(). */
static PyObject *lend_cpus_function(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return change_cpus(tdm_runtime_lend_cpus);
}

/* Implements take_cpus_back(). */
static PyObject *take_cpus_back_function(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return change_cpus(tdm_runtime_take_cpus_back);
}

/* Implements lend_cpus_in_waits(enabled). */
static PyObject *lend_cpus_in_waits(PyObject *module, PyObject *enabled)
{
    (void)module;
    waits_lend_cpus = PyObject_IsTrue(enabled) == 1;
    Py_RETURN_NONE;
}

/* Returns the length of the next slice of a wait until `end_ms`, which is TDM_FOREVER or a time of
 * now_ms(). */
static int64_t next_slice_ms(int64_t end_ms, bool is_lent)
{
    int64_t longest = waits_lend_cpus && !is_lent ? LEND_AFTER_MS : BINDING_SLICE_MS;
    int64_t remaining = end_ms == TDM_FOREVER ? longest : end_ms - now_ms();

    return remaining < 0 ? 0 : remaining < longest ? remaining : longest;
}

/* True if a wait goes on after a slice: the time is not over, no signal handler has raised, and the
 * runtime goes on. */
static bool wait_goes_on(PyObject *self, int64_t end_ms, bool *failed)
{
    if (PyErr_CheckSignals() < 0 || binding_object_handle(self) == NULL) {
        *failed = true;
        return false;
    }
    return end_ms == TDM_FOREVER || now_ms() < end_ms;
}

/* Fails because a whole wait of `timeout_ms` is over. The error detail of its last slice has the
 * slice's time; what follows there, such as the method, is kept. */
static tdm_status ref_fail_late(int64_t timeout_ms)
{
    const char *rest = strstr(tdm_error_detail(), " ms");
    char text[512];

    (void)snprintf(text, sizeof(text), "%s", rest == NULL ? " ms" : rest);
    return tdm_fail(TDM_E_TIMEOUT, "no result within %lld%s", (long long)timeout_ms, text);
}

/* Waits for the value. Returns the status of libtandem; sets `*failed` if an exception is set. */
static tdm_status ref_await(PyObject *self, tdm_ref *ref, int64_t timeout_ms,
                            const tdm_value **value_out, bool *failed)
{
    tdm_status status = tdm_get_value(ref, 0, value_out);
    bool is_lent = false;
    int64_t end_ms;

    if (status != TDM_E_TIMEOUT || timeout_ms == 0) {
        return status;
    }
    end_ms = timeout_ms == TDM_FOREVER ? TDM_FOREVER : now_ms() + timeout_ms;
    for (;;) {
        int64_t slice_ms = next_slice_ms(end_ms, is_lent);

        BINDING_WITH_OBJECT(self, status = tdm_get_value(ref, slice_ms, value_out));
        if (status != TDM_E_TIMEOUT || !wait_goes_on(self, end_ms, failed)) {
            break;
        }
        lend_cpus(&is_lent);
    }
    take_cpus_back(is_lent);
    if (status == TDM_E_TIMEOUT && !*failed) {
        status = ref_fail_late(timeout_ms);
    }
    return status;
}

/* Ref.get(timeout) */
static PyObject *ref_get(PyObject *self, PyObject *timeout)
{
    int64_t timeout_ms = binding_timeout_ms(timeout);
    tdm_ref *ref = timeout_ms == -2 ? NULL : binding_object_handle(self);
    const tdm_value *value = NULL;
    bool failed = false;
    PyObject *memory;
    PyObject *result;
    tdm_status status;

    if (ref == NULL) {
        return NULL;
    }
    status = ref_await(self, ref, timeout_ms, &value, &failed);
    if (failed) {
        return NULL;
    }
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    memory = binding_memory_create(ref, NULL);
    if (memory == NULL) {
        return NULL;
    }
    result = binding_value_read(value, memory);
    Py_DECREF(memory);
    return result;
}

/* Ref.cancel(force, recursive) */
static PyObject *ref_cancel(PyObject *self, PyObject *args)
{
    int force;
    int recursive;
    tdm_ref *ref;
    tdm_status status;

    if (!PyArg_ParseTuple(args, "pp", &force, &recursive)) {
        return NULL;
    }
    ref = binding_object_handle(self);
    if (ref == NULL) {
        return NULL;
    }
    status =
        tdm_cancel(ref, (force ? TDM_CANCEL_FORCE : 0) | (recursive ? TDM_CANCEL_CHILDREN : 0));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Ref.free() */
static PyObject *ref_free_value(PyObject *self, PyObject *ignored)
{
    tdm_ref *ref = binding_object_handle(self);
    tdm_status status = ref == NULL ? TDM_OK : tdm_ref_free_value(ref);

    (void)ignored;
    if (ref == NULL || status != TDM_OK) {
        return ref == NULL ? NULL : binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Ref.object_id(): the ID of the value as text. */
static PyObject *ref_object_id(PyObject *self, PyObject *ignored)
{
    tdm_ref *ref = binding_object_handle(self);
    char id[33];
    tdm_status status;

    (void)ignored;
    if (ref == NULL) {
        return NULL;
    }
    status = tdm_ref_id(ref, id);
    return status == TDM_OK ? PyUnicode_FromString(id) : binding_raise(status);
}

/* Ref.export(): the portable form. */
static PyObject *ref_export(PyObject *self, PyObject *ignored)
{
    tdm_ref *ref = binding_object_handle(self);
    struct tdm_portable form;
    tdm_status status;

    (void)ignored;
    if (ref == NULL) {
        return NULL;
    }
    status = tdm_ref_export(ref, &form);
    return status == TDM_OK
               ? PyBytes_FromStringAndSize((const char *)form.bytes, (Py_ssize_t)form.size_bytes)
               : binding_raise(status);
}

static PyMethodDef ref_methods[] = {
    {"_get", ref_get, METH_O,
     "_get(timeout)\n--\n\nWait and return (kind, pickle, buffers, objects, awaited)."},
    {"_cancel", ref_cancel, METH_VARARGS, "_cancel(force, recursive)\n--\n\nCancel the call."},
    {"_object_id", ref_object_id, METH_NOARGS,
     "_object_id()\n--\n\nReturn the ID of the value, 32 hexadecimal digits."},
    {"_export", ref_export, METH_NOARGS,
     "_export()\n--\n\nReturn bytes of which import_ref() makes the reference in any process."},
    {"_free", ref_free_value, METH_NOARGS,
     "_free()\n--\n\nFree the value although there are references to it."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot ref_slots[] = {{Py_tp_dealloc, binding_object_dealloc},
                                  {Py_tp_methods, ref_methods},
                                  {Py_tp_doc, "A reference to a present or future value."},
                                  {0, NULL}};
static PyType_Spec ref_spec = {
    "tandem._tandem.Ref", sizeof(struct binding_object), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, ref_slots};

/* ---- functions -------------------------------------------------------------------------- */

/* Implements set_ref_class(cls). */
static PyObject *set_ref_class(PyObject *module, PyObject *cls)
{
    (void)module;
    if (!PyType_Check(cls) || !PyType_IsSubtype((PyTypeObject *)cls, ref_type)) {
        PyErr_SetString(PyExc_TypeError, "a subclass of Ref is wanted");
        return NULL;
    }
    Py_XDECREF((PyObject *)binding_ref_class);
    binding_ref_class = (PyTypeObject *)Py_NewRef(cls);
    Py_RETURN_NONE;
}

/* Implements put(kind, pickle, buffers, objects, None). */
static PyObject *put(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    tdm_runtime *runtime = binding_runtime();
    struct binding_payload payload;
    tdm_ref *ref = NULL;
    tdm_status status = TDM_E_INVAL;
    bool is_ready = runtime != NULL && binding_payload_init(&payload, args, count);

    (void)module;
    if (runtime == NULL) {
        return NULL;
    }
    if (is_ready) {
        BINDING_WITH_RUNTIME(status = BINDING_IS_PLAIN(&payload)
                                          ? tdm_put(runtime, &ref, BINDING_PLAIN_FORMAT,
                                                    BINDING_PLAIN_ARGUMENTS(&payload))
                                          : tdm_put(runtime, &ref, "ib(*)(&)",
                                                    BINDING_PLAIN_ARGUMENTS(&payload),
                                                    &payload.lists[1]));
    }
    binding_payload_release(&payload);
    if (!is_ready) {
        return NULL;
    }
    return status == TDM_OK ? binding_ref_create(ref) : binding_raise(status);
}

/* Implements import_ref(bytes). */
static PyObject *import_ref(PyObject *module, PyObject *bytes)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_ref *ref = NULL;
    Py_buffer form;
    tdm_status status;

    (void)module;
    if (runtime == NULL || PyObject_GetBuffer(bytes, &form, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    status = tdm_ref_import(runtime, (struct tdm_bytes){form.buf, (size_t)form.len}, &ref);
    PyBuffer_Release(&form);
    return status == TDM_OK ? binding_ref_create(ref) : binding_raise(status);
}

/* What wait() needs besides the objects. */
struct wait_arrays {
    tdm_ref **refs;  /* The references, borrowed from their objects; the array is owned. */
    uint8_t *done;   /* 1 for each reference that is done; owned. */
    uint32_t count;  /* Number of references. */
    uint32_t wanted; /* How many references must be done. */
};

/* Waits without the GIL until enough references are done. Returns false with an exception. */
static bool wait_for_refs(PyObject *objects, struct wait_arrays *arrays, int64_t timeout_ms)
{
    int64_t end_ms = timeout_ms == TDM_FOREVER ? TDM_FOREVER : now_ms() + timeout_ms;
    PyObject *first = PySequence_GetItem(objects, 0);
    bool is_lent = false;
    bool failed = false;
    tdm_status status;

    if (first == NULL) {
        return false;
    }
    for (;;) {
        int64_t slice_ms = next_slice_ms(end_ms, is_lent);

        BINDING_WITH_OBJECT(first, status = tdm_wait(arrays->refs, arrays->count, arrays->wanted,
                                                     slice_ms, arrays->done));
        if (status != TDM_E_TIMEOUT || !wait_goes_on(first, end_ms, &failed)) {
            break;
        }
        lend_cpus(&is_lent);
    }
    take_cpus_back(is_lent);
    Py_DECREF(first);
    if (!failed && status != TDM_OK && status != TDM_E_TIMEOUT) {
        (void)binding_raise(status);
        failed = true;
    }
    return !failed;
}

/* Returns the flags of the references as a list of bools. */
static PyObject *done_list(const struct wait_arrays *arrays)
{
    PyObject *list = PyList_New(arrays->count);

    for (uint32_t i = 0; list != NULL && i < arrays->count; i++) {
        (void)PyList_SetItem(list, i, PyBool_FromLong(arrays->done[i]));
    }
    return list;
}

/* Implements wait(refs, wanted, timeout). */
static PyObject *wait_function(PyObject *module, PyObject *args)
{
    struct wait_arrays arrays = {.refs = NULL};
    PyObject *objects;
    PyObject *timeout;
    PyObject *result = NULL;
    int64_t timeout_ms;
    bool is_ready = true;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!IO", &PyList_Type, &objects, &arrays.wanted, &timeout)) {
        return NULL;
    }
    timeout_ms = binding_timeout_ms(timeout);
    if (timeout_ms == -2) {
        return NULL;
    }
    arrays.count = (uint32_t)PyList_Size(objects);
    if (arrays.count == 0) {
        return PyList_New(0);
    }
    arrays.refs = calloc(arrays.count, sizeof(*arrays.refs));
    arrays.done = calloc(arrays.count, 1);
    if (arrays.refs == NULL || arrays.done == NULL) {
        (void)PyErr_NoMemory();
        is_ready = false;
    }
    for (uint32_t i = 0; is_ready && i < arrays.count; i++) {
        arrays.refs[i] = binding_object_handle(PyList_GetItem(objects, i));
        is_ready = arrays.refs[i] != NULL;
    }
    if (is_ready && wait_for_refs(objects, &arrays, timeout_ms)) {
        result = done_list(&arrays);
    }
    free(arrays.refs);
    free(arrays.done);
    return result;
}

static PyMethodDef functions[] = {
    {"set_ref_class", set_ref_class, METH_O,
     "set_ref_class(cls)\n--\n\nCreate references as objects of cls, a subclass of Ref."},
    {"put", (PyCFunction)(void *)put, METH_FASTCALL,
     "put(kind, pickle, buffers, objects, awaited)\n--\n\nStore a value and return its reference."},
    {"import_ref", import_ref, METH_O,
     "import_ref(bytes)\n--\n\nReturn the reference of which Ref._export() made the bytes."},
    {"wait", wait_function, METH_VARARGS,
     "wait(refs, wanted, timeout)\n--\n\nReturn for each reference of a list whether it is done."},
    {"lend_cpus", lend_cpus_function, METH_NOARGS,
     "lend_cpus()\n--\n\nLend the CPUs of this actor until take_cpus_back()."},
    {"take_cpus_back", take_cpus_back_function, METH_NOARGS,
     "take_cpus_back()\n--\n\nEnd what lend_cpus() began."},
    {"lend_cpus_in_waits", lend_cpus_in_waits, METH_O,
     "lend_cpus_in_waits(enabled)\n--\n\nLet waits for references lend the CPUs of this actor."},
    {NULL, NULL, 0, NULL}};

bool binding_ref_init(PyObject *module)
{
    ref_type = (PyTypeObject *)PyType_FromSpec(&ref_spec);
    if (ref_type == NULL) {
        return false;
    }
    binding_ref_class = (PyTypeObject *)Py_NewRef((PyObject *)ref_type);
    return PyModule_AddObjectRef(module, "Ref", (PyObject *)ref_type) == 0 &&
           PyModule_AddFunctions(module, functions) == 0;
}
