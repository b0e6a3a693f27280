/* value.c - values on their way between Python and libtandem. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A value is one packed array: an integer that says what it is, the bytes of a pickle, the buffers
 * that the pickle refers to (protocol 5), the references and handles in it, and the values of
 * references that the callee awaits. libtandem sees the references and handles and keeps what they
 * refer to alive. It never reads the pickle.
 *
 * A buffer is sent as an array and not as bytes, because arrays are aligned and are read in place.
 * A Buffer object of a received value keeps a Memory object alive, which owns the reference or the
 * document that the bytes lie in.
 *
 * Everything needs the GIL. A payload is only read while it is packed, without the GIL. */
#include "binding.h"

#include <stdlib.h>

enum {
    LARGE_BYTES = 1 << 20, /* From this size on a payload is packed without the GIL. */
    COPIED_BYTES = 1 << 16 /* A pickle up to this size is copied out of the value. */
};

/* Owner of the memory that Buffer objects read. */
struct memory {
    PyObject_HEAD           /* The object's header. */
        tdm_ref *ref;       /* Reference to the value, owned; NULL if `document` is set. */
    tdm_document *document; /* Document of the value, owned; NULL if `ref` is set. */
    tdm_runtime *runtime;   /* Runtime of `ref`, to compare with only. */
};

/* Bytes of a value that are read in place. */
struct buffer {
    PyObject_HEAD         /* The object's header. */
        PyObject *memory; /* The struct memory that owns the bytes, owned. */
    const void *data;     /* The bytes. */
    size_t size_bytes;
};

static PyTypeObject *memory_type; /* The type Memory. */
static PyTypeObject *buffer_type; /* The type Buffer. */

/* ---- memory ----------------------------------------------------------------------------- */

PyObject *binding_memory_create(tdm_ref *ref, tdm_document *document)
{
    struct memory *memory =
        (struct memory *)((allocfunc)PyType_GetSlot(memory_type, Py_tp_alloc))(memory_type, 0);

    if (memory == NULL) {
        tdm_document_destroy(document);
        return NULL;
    }
    memory->document = document;
    memory->runtime = tdm_runtime_current();
    if (ref != NULL && tdm_ref_copy(ref, &memory->ref) != TDM_OK) {
        Py_DECREF((PyObject *)memory);
        return binding_raise(TDM_E_NOMEM);
    }
    return (PyObject *)memory;
}

void binding_memory_set_document(PyObject *memory, tdm_document *document)
{
    ((struct memory *)memory)->document = document;
}

/* Implements tp_dealloc of Memory. A reference of a runtime that has stopped is left alone: its
 * memory stays mapped until the process ends. */
static void memory_dealloc(PyObject *object)
{
    struct memory *memory = (struct memory *)object;
    PyTypeObject *type = Py_TYPE(object);

    if (memory->ref != NULL && memory->runtime == tdm_runtime_current()) {
        tdm_ref_release(memory->ref);
    }
    tdm_document_destroy(memory->document);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc}, {Py_tp_doc, "Owner of a received value."}, {0, NULL}};
static PyType_Spec memory_spec = {"tandem._tandem.Memory", sizeof(struct memory), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  memory_slots};

/* ---- buffers ---------------------------------------------------------------------------- */

/* bf_getbuffer of Buffer. */
static int buffer_get(PyObject *object, Py_buffer *view, int flags)
{
    struct buffer *buffer = (struct buffer *)object;

    return PyBuffer_FillInfo(view, object, (void *)(uintptr_t)buffer->data,
                             (Py_ssize_t)buffer->size_bytes, 1, flags);
}

/* Implements tp_dealloc of Buffer. */
static void buffer_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    Py_XDECREF(((struct buffer *)object)->memory);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

/* Returns the bytes of a Buffer for DLPack. */
static struct binding_memory buffer_memory(const struct buffer *buffer)
{
    return (struct binding_memory){.data = (void *)(uintptr_t)buffer->data,
                                   .size_bytes = buffer->size_bytes,
                                   .device = BINDING_CPU,
                                   .is_read_only = true};
}

/* Buffer.__dlpack__() */
static PyObject *buffer_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct binding_memory memory = buffer_memory((struct buffer *)self);

    return binding_dlpack_export(self, &memory, args, keywords);
}

/* Buffer.__dlpack_device__() */
static PyObject *buffer_dlpack_device(PyObject *self, PyObject *ignored)
{
    struct binding_memory memory = buffer_memory((struct buffer *)self);

    (void)ignored;
    return binding_dlpack_device(&memory);
}

/* Buffer.unmarked_dlpack() */
static PyObject *buffer_unmarked_dlpack(PyObject *self, PyObject *ignored)
{
    struct binding_memory memory = buffer_memory((struct buffer *)self);

    (void)ignored;
    return binding_dlpack_create(self, &memory, false);
}

static PyMethodDef buffer_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))buffer_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "Return a read-only capsule of the bytes, which needs DLPack 1.0."},
    {"__dlpack_device__", buffer_dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\nReturn the kind and number of the device: the host."},
    {"unmarked_dlpack", buffer_unmarked_dlpack, METH_NOARGS,
     "unmarked_dlpack()\n--\n\nReturn a capsule that does not say that a write is a fault."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot buffer_slots[] = {{Py_tp_dealloc, buffer_dealloc},
                                     {Py_tp_methods, buffer_methods},
                                     {Py_bf_getbuffer, buffer_get},
                                     {Py_tp_doc, "Read-only bytes of a received value, in place."},
                                     {0, NULL}};
static PyType_Spec buffer_spec = {"tandem._tandem.Buffer", sizeof(struct buffer), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                  buffer_slots};

/* Creates a buffer of bytes that `memory` owns. */
static PyObject *buffer_create(PyObject *memory, const void *data, size_t size_bytes)
{
    struct buffer *buffer =
        (struct buffer *)((allocfunc)PyType_GetSlot(buffer_type, Py_tp_alloc))(buffer_type, 0);

    if (buffer != NULL) {
        buffer->memory = Py_NewRef(memory);
        buffer->data = data;
        buffer->size_bytes = size_bytes;
    }
    return (PyObject *)buffer;
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Describes `size_bytes` bytes as an array of the largest elements that divide them, because an
 * array is aligned at least as its elements. */
static struct tdm_ndarray bytes_as_array(const void *data, size_t size_bytes)
{
    enum tdm_dtype dtype = size_bytes % 8 == 0   ? TDM_I64
                           : size_bytes % 4 == 0 ? TDM_I32
                           : size_bytes % 2 == 0 ? TDM_I16
                                                 : TDM_U8;

    return (struct tdm_ndarray){.dtype = dtype,
                                .dims_count = 1,
                                .shape = {size_bytes / tdm_dtype_bytes(dtype)},
                                .data = data};
}

/* Returns the length of a sequence or of None; -1 with an exception. */
static Py_ssize_t sequence_length(PyObject *sequence)
{
    return sequence == Py_None ? 0 : PySequence_Size(sequence);
}

/* Exports the buffers of the sequence into the first list. */
static bool payload_add_buffers(struct binding_payload *payload, PyObject *sequence,
                                Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *exporter = PySequence_GetItem(sequence, i);
        Py_buffer *buffer = &payload->buffers[i];
        int rc = exporter == NULL ? -1 : PyObject_GetBuffer(exporter, buffer, PyBUF_SIMPLE);

        Py_XDECREF(exporter);
        if (rc < 0) {
            return false;
        }
        payload->buffers_count++;
        payload->size_bytes += (size_t)buffer->len;
        payload->arrays[i] = bytes_as_array(buffer->buf, (size_t)buffer->len);
        payload->items[i] = (struct tdm_item){.letter = 'a', .object = &payload->arrays[i]};
    }
    return true;
}

/* Writes the handles of Ref and Actor objects to `items`, references with `letter`. */
static bool payload_add_objects(struct tdm_item *items, PyObject *sequence, Py_ssize_t count,
                                char letter)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *object = PySequence_GetItem(sequence, i);
        void *handle = NULL;
        bool is_actor = object != NULL && PyObject_TypeCheck(object, binding_actor_type);

        if (object != NULL && letter == 'r' && is_actor) {
            PyErr_SetString(PyExc_TypeError, "only the value of a reference can be awaited");
        } else if (object != NULL) {
            handle = binding_object_handle(object);
        }
        Py_XDECREF(object); /* The sequence still owns it. */
        if (handle == NULL) {
            return false;
        }
        items[i] = (struct tdm_item){.letter = is_actor ? 'h' : letter, .object = handle};
    }
    return true;
}

/* Fills the three lists of the payload, whose arrays have been allocated. */
static bool payload_fill(struct binding_payload *payload, PyObject *const *sequences,
                         const Py_ssize_t *counts)
{
    struct tdm_item *next = payload->items;

    for (int i = 0; i < 3; i++) {
        payload->lists[i] = (struct tdm_items){next, (uint32_t)counts[i]};
        next += counts[i];
    }
    for (int i = 0; i < 2; i++) {
        payload->objects[i] = counts[i + 1] == 0 ? NULL : Py_NewRef(sequences[i + 1]);
    }
    return payload_add_buffers(payload, sequences[0], counts[0]) &&
           payload_add_objects(payload->items + counts[0], sequences[1], counts[1], 'R') &&
           payload_add_objects(payload->items + counts[0] + counts[1], sequences[2], counts[2],
                               'r');
}

bool binding_payload_init(struct binding_payload *payload, PyObject *const *parts, Py_ssize_t count)
{
    Py_ssize_t counts[3];
    Py_ssize_t items_count;

    *payload = (struct binding_payload){.kind = 0};
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "a value has five parts");
        return false;
    }
    payload->kind = PyLong_AsLongLong(parts[0]);
    if (PyErr_Occurred() != NULL ||
        PyObject_GetBuffer(parts[1], &payload->head, PyBUF_SIMPLE) < 0) {
        return false;
    }
    payload->size_bytes = (size_t)payload->head.len;
    for (int i = 0; i < 3; i++) {
        counts[i] = sequence_length(parts[2 + i]);
        if (counts[i] < 0) {
            return false;
        }
    }
    items_count = counts[0] + counts[1] + counts[2];
    if (items_count == 0) {
        return true;
    }
    payload->items = calloc((size_t)items_count, sizeof(*payload->items));
    payload->arrays = calloc((size_t)counts[0] + 1, sizeof(*payload->arrays));
    payload->buffers = calloc((size_t)counts[0] + 1, sizeof(*payload->buffers));
    if (payload->items == NULL || payload->arrays == NULL || payload->buffers == NULL) {
        (void)PyErr_NoMemory();
        return false;
    }
    return payload_fill(payload, parts + 2, counts);
}

void binding_payload_release(struct binding_payload *payload)
{
    for (uint32_t i = 0; i < payload->buffers_count; i++) {
        PyBuffer_Release(&payload->buffers[i]);
    }
    if (payload->head.obj != NULL) {
        PyBuffer_Release(&payload->head);
    }
    Py_XDECREF(payload->objects[0]);
    Py_XDECREF(payload->objects[1]);
    free(payload->items);
    free(payload->arrays);
    free(payload->buffers);
}

bool binding_payload_is_large(const struct binding_payload *payload)
{
    return payload->size_bytes >= LARGE_BYTES;
}

/* ---- receiving -------------------------------------------------------------------------- */

/* Returns the pickle of a value: a copy if it is small, else a Buffer. */
static PyObject *read_head(const tdm_value *value, PyObject *memory)
{
    struct tdm_bytes head = tdm_value_bytes(value);

    return head.size_bytes <= COPIED_BYTES
               ? PyBytes_FromStringAndSize(head.data, (Py_ssize_t)head.size_bytes)
               : buffer_create(memory, head.data, head.size_bytes);
}

/* Returns the list of Buffer objects for an array of arrays. */
static PyObject *read_buffers(const tdm_value *array, PyObject *memory)
{
    uint32_t count = tdm_value_count(array);
    PyObject *buffers = PyList_New(count);

    for (uint32_t i = 0; buffers != NULL && i < count; i++) {
        const struct tdm_ndarray *ndarray = tdm_value_ndarray(tdm_value_at(array, i));
        PyObject *buffer = ndarray == NULL
                               ? NULL
                               : buffer_create(memory, ndarray->data, tdm_ndarray_bytes(ndarray));

        if (buffer == NULL || PyList_SetItem(buffers, i, buffer) < 0) {
            Py_DECREF(buffers);
            return ndarray == NULL ? binding_raise(TDM_E_PROTOCOL) : NULL;
        }
    }
    return buffers;
}

/* Returns a Ref or Actor object for a reference or handle in a value. */
static PyObject *read_object(tdm_runtime *runtime, const tdm_value *value)
{
    tdm_actor *actor = NULL;
    tdm_ref *ref = NULL;
    tdm_status status = tdm_value_kind_of(value) == TDM_HANDLE
                            ? tdm_value_actor(runtime, value, &actor)
                            : tdm_value_ref(runtime, value, &ref);

    if (status != TDM_OK) {
        return binding_raise(status);
    }
    return actor != NULL ? binding_object_create(binding_actor_type, BINDING_ACTOR, actor)
                         : binding_ref_create(ref);
}

/* Returns the list of Ref and Actor objects for an array of references and handles. */
static PyObject *read_objects(const tdm_value *array)
{
    uint32_t count = tdm_value_count(array);
    tdm_runtime *runtime = count == 0 ? NULL : binding_runtime();
    PyObject *objects = count > 0 && runtime == NULL ? NULL : PyList_New(count);

    for (uint32_t i = 0; objects != NULL && i < count; i++) {
        PyObject *object = read_object(runtime, tdm_value_at(array, i));

        if (object == NULL || PyList_SetItem(objects, i, object) < 0) {
            Py_DECREF(objects);
            return NULL;
        }
    }
    return objects;
}

/* Returns the list of the values of the awaited references, which follow the first four. */
static PyObject *read_awaited(const tdm_value *array, PyObject *memory)
{
    uint32_t total = tdm_value_count(array);
    uint32_t count = total > 4 ? total - 4 : 0;
    PyObject *awaited = PyList_New(count);

    for (uint32_t i = 0; awaited != NULL && i < count; i++) {
        PyObject *value = binding_value_read(tdm_value_at(array, 4 + i), memory);

        if (value == NULL || PyList_SetItem(awaited, i, value) < 0) {
            Py_DECREF(awaited);
            return NULL;
        }
    }
    return awaited;
}

PyObject *binding_value_read(const tdm_value *array, PyObject *memory)
{
    int64_t kind;
    PyObject *parts[4];

    /* One of several results is an array in an array. */
    if (tdm_value_count(array) == 1 && tdm_value_kind_of(tdm_value_at(array, 0)) == TDM_ARRAY) {
        array = tdm_value_at(array, 0);
    }
    if (tdm_value_kind_of(array) == TDM_ARRAY && tdm_value_count(array) == 0) {
        return Py_BuildValue("(iy[][][])", 0, "N."); /* No value: the pickle of None. */
    }
    if (tdm_value_kind_of(array) != TDM_ARRAY ||
        tdm_value_kind_of(tdm_value_at(array, 1)) != TDM_BYTES) {
        return Py_BuildValue("(iy[][][])", -1, ""); /* The value of a program in C. */
    }
    kind = tdm_value_int(tdm_value_at(array, 0), 0);
    parts[0] = read_head(tdm_value_at(array, 1), memory);
    parts[1] = parts[0] == NULL ? NULL : read_buffers(tdm_value_at(array, 2), memory);
    parts[2] = parts[1] == NULL ? NULL : read_objects(tdm_value_at(array, 3));
    parts[3] = parts[2] == NULL ? NULL : read_awaited(array, memory);
    if (parts[3] == NULL) {
        for (int i = 0; i < 3; i++) {
            Py_XDECREF(parts[i]);
            if (parts[i] == NULL) {
                break;
            }
        }
        return NULL;
    }
    return Py_BuildValue("(LNNNN)", (long long)kind, parts[0], parts[1], parts[2], parts[3]);
}

bool binding_value_init(PyObject *module)
{
    memory_type = (PyTypeObject *)PyType_FromSpec(&memory_spec);
    buffer_type = (PyTypeObject *)PyType_FromSpec(&buffer_spec);
    return memory_type != NULL && buffer_type != NULL &&
           PyModule_AddObjectRef(module, "Buffer", (PyObject *)buffer_type) == 0;
}
