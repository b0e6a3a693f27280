/* outside_memory.c - memory that a program allocates without Tandem, as Python objects. */
/* SPDX-License-Identifier: Apache-2.0 */

/* tandem/memory.py calls the program's own functions between begin_resume() and end_resume(), and
 * between begin_pause() and end_pause(). The GIL is released in all four. */
#include "binding.h"

static PyTypeObject *outside_type; /* The type OutsideMemory. */

void binding_outside_memory_destroy(tdm_outside_memory *memory)
{
    /* Without a runtime there is no arbiter to tell; the process ends soon. */
    if (tdm_runtime_current() != NULL) {
        BINDING_WITH_REGIONS(tdm_outside_memory_destroy(memory));
    }
}

/* OutsideMemory(tag, size_bytes, *, keep=False, gpu=0) */
static PyObject *outside_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"tag", "size_bytes", "keep", "gpu", NULL};
    struct tdm_outside_memory_options options = {.tag = NULL};
    tdm_runtime *runtime = binding_runtime();
    Py_ssize_t size_bytes;
    unsigned int gpu = 0;
    int keep = 0;
    tdm_outside_memory *memory;
    tdm_status status;

    if (runtime == NULL || !PyArg_ParseTupleAndKeywords(args, keywords, "sn|$pI", names,
                                                        &options.tag, &size_bytes, &keep, &gpu)) {
        return NULL;
    }
    options.size_bytes = size_bytes > 0 ? (size_t)size_bytes : 0;
    options.policy = keep ? TDM_REGION_KEEP : TDM_REGION_DROP;
    options.gpu = gpu;
    binding_runtime_use();
    BINDING_WITH_REGIONS(status = tdm_outside_memory_create(runtime, &options, &memory));
    binding_runtime_unuse();
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    return binding_object_create(type, BINDING_OUTSIDE_MEMORY, memory);
}

/* Reads the argument timeout, in seconds or None. Returns -2 with an exception. */
static int64_t timeout_argument(PyObject *args)
{
    PyObject *seconds = Py_None;

    return PyArg_ParseTuple(args, "|O", &seconds) ? binding_timeout_ms(seconds) : -2;
}

/* Returns a number of bytes, or NULL with the exception of a failed call. */
static PyObject *bytes_or_raise(tdm_status status, uint64_t bytes)
{
    return status == TDM_OK ? PyLong_FromUnsignedLongLong(bytes) : binding_raise(status);
}

/* OutsideMemory.begin_resume(timeout=None) */
static PyObject *outside_begin_resume(PyObject *self, PyObject *args)
{
    tdm_outside_memory *memory = binding_object_handle(self);
    int64_t timeout_ms = timeout_argument(args);
    tdm_status status;

    if (memory == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_outside_memory_begin_resume(memory, timeout_ms));
    binding_object_unuse(self);
    return bytes_or_raise(status, 0);
}

/* OutsideMemory.end_resume() */
static PyObject *outside_end_resume(PyObject *self, PyObject *ignored)
{
    tdm_outside_memory *memory = binding_object_handle(self);
    uint64_t reported_bytes = 0;
    tdm_status status;

    (void)ignored;
    if (memory == NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_outside_memory_end_resume(memory, &reported_bytes));
    binding_object_unuse(self);
    return bytes_or_raise(status, reported_bytes);
}

/* OutsideMemory.begin_pause() */
static PyObject *outside_begin_pause(PyObject *self, PyObject *ignored)
{
    tdm_outside_memory *memory = binding_object_handle(self);
    tdm_status status;

    (void)ignored;
    if (memory == NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_outside_memory_begin_pause(memory));
    binding_object_unuse(self);
    return bytes_or_raise(status, 0);
}

/* OutsideMemory.end_pause(timeout=None) */
static PyObject *outside_end_pause(PyObject *self, PyObject *args)
{
    tdm_outside_memory *memory = binding_object_handle(self);
    int64_t timeout_ms = timeout_argument(args);
    uint64_t left_bytes = 0;
    tdm_status status;

    if (memory == NULL || PyErr_Occurred() != NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_outside_memory_end_pause(memory, timeout_ms, &left_bytes));
    binding_object_unuse(self);
    return bytes_or_raise(status, left_bytes);
}

/* Getter of OutsideMemory.is_resident. */
static PyObject *outside_is_resident(PyObject *self, void *ignored)
{
    tdm_outside_memory *memory = binding_object_handle(self);

    (void)ignored;
    return memory == NULL ? NULL : PyBool_FromLong(tdm_outside_memory_is_resident(memory));
}

static PyMethodDef outside_methods[] = {
    {"begin_resume", outside_begin_resume, METH_VARARGS,
     "begin_resume(timeout=None, /)\n--\n\nWait until the declared bytes are granted."},
    {"end_resume", outside_end_resume, METH_NOARGS,
     "end_resume()\n--\n\nReturn the bytes that the device reports as taken."},
    {"begin_pause", outside_begin_pause, METH_NOARGS,
     "begin_pause()\n--\n\nAnnounce that the memory is about to be freed."},
    {"end_pause", outside_end_pause, METH_VARARGS,
     "end_pause(timeout=None, /)\n--\n\nWait until the device reports the memory free, and return "
     "the bytes that are left."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef outside_attributes[] = {
    {"is_resident", outside_is_resident, NULL, "False while the memory is paused.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot outside_slots[] = {
    {Py_tp_new, outside_new},
    {Py_tp_dealloc, binding_object_dealloc},
    {Py_tp_methods, outside_methods},
    {Py_tp_getset, outside_attributes},
    {Py_tp_doc, "OutsideMemory(tag, size_bytes, *, keep=False, gpu=0)\n--\n\n"
                "Memory of this actor's GPU that the program allocates without Tandem."},
    {0, NULL}};
static PyType_Spec outside_spec = {"tandem._tandem.OutsideMemory", sizeof(struct binding_object), 0,
                                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, outside_slots};

bool binding_outside_memory_init(PyObject *module)
{
    outside_type = (PyTypeObject *)PyType_FromSpec(&outside_spec);
    return outside_type != NULL &&
           PyModule_AddObjectRef(module, "OutsideMemory", (PyObject *)outside_type) == 0;
}
