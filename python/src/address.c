/* address.c - memory at an address of this process as objects of Python. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Ranks of jobs learn addresses of memory that libtandem owns (job.c). An object Memory shows such
 * bytes. If they lie in a region of this process, the object retains the region, and counts the
 * tensors, arrays and buffers that keep the object: so the region ends with the last of them, also
 * if the rank has closed before. Other memory, such as a tensor of another process that is mapped
 * during an update, is not kept: Python must not use a view of it afterwards. */
#include "binding.h"

/* Memory at an address. */
struct memory_object {
    struct binding_object object; /* The handle is the retained region; NULL if there is none. */
    void *data;                   /* First byte. */
    size_t size_bytes;            /* Number of bytes. */
    int device_number;            /* Number of the GPU; negative for the host. */
};

void binding_region_release(tdm_region *region)
{
    /* A runtime that stops destroys all regions, retained or not. */
    if (tdm_runtime_current() != NULL) {
        BINDING_WITH_REGIONS(tdm_region_release(region));
    }
}

/* Memory(address, size_bytes, device_number=-1) */
static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"address", "size_bytes", "device_number", NULL};
    struct memory_object *memory;
    unsigned long long address;
    Py_ssize_t size_bytes;
    tdm_region *region;
    int device_number = -1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "Kn|i", names, &address, &size_bytes,
                                     &device_number)) {
        return NULL;
    }
    BINDING_WITH_REGIONS(region = tdm_region_find((const void *)(uintptr_t)address);
                         if (region != NULL) { tdm_region_retain(region); });
    memory =
        region != NULL
            ? (struct memory_object *)binding_object_create(type, BINDING_RETAINED_REGION, region)
            : (struct memory_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (memory != NULL) {
        memory->data = (void *)(uintptr_t)address;
        memory->size_bytes = (size_t)size_bytes;
        memory->device_number = device_number;
    }
    return (PyObject *)memory;
}

/* Fills `bytes` with the memory, unless its region is paused. Returns false with an exception. */
static bool memory_bytes(PyObject *self, struct binding_memory *bytes)
{
    struct memory_object *memory = (struct memory_object *)self;
    const tdm_region *region = memory->object.handle;

    if (region != NULL && !tdm_region_is_resident(region)) {
        PyErr_Format(PyExc_BufferError, "the region %s is paused: use it after it was resumed",
                     tdm_region_tag(region));
        return false;
    }
    *bytes = (struct binding_memory){
        .data = memory->data,
        .size_bytes = memory->size_bytes,
        .device = memory->device_number < 0 ? BINDING_CPU : BINDING_CUDA,
        .device_number = memory->device_number < 0 ? 0 : memory->device_number,
        .loans_count = &memory->object.loans_count};
    return true;
}

/* Memory.__dlpack__() */
static PyObject *memory_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct binding_memory bytes;

    return memory_bytes(self, &bytes) ? binding_dlpack_export(self, &bytes, args, keywords) : NULL;
}

/* Memory.__dlpack_device__() */
static PyObject *memory_dlpack_device(PyObject *self, PyObject *ignored)
{
    int number = ((struct memory_object *)self)->device_number;
    const struct binding_memory bytes = {.device = number < 0 ? BINDING_CPU : BINDING_CUDA,
                                         .device_number = number < 0 ? 0 : number};

    (void)ignored;
    return binding_dlpack_device(&bytes);
}

/* bf_getbuffer of Memory: the bytes, which may be written. */
static int memory_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct binding_memory bytes;

    view->obj = NULL;
    if (!memory_bytes(self, &bytes)) {
        return -1;
    }
    if (bytes.device != BINDING_CPU) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is on a GPU, where only DLPack gives access to it");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, bytes.data, (Py_ssize_t)bytes.size_bytes, 0, flags) < 0) {
        return -1;
    }
    *bytes.loans_count += 1;
    return 0;
}

/* bf_releasebuffer of Memory. */
static void memory_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)view;
    ((struct binding_object *)self)->loans_count -= 1;
}

/* Getter of Memory.users_count. */
static PyObject *memory_users_count(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromSsize_t(((struct binding_object *)self)->loans_count);
}

static PyMethodDef memory_methods[] = {
    {"__dlpack__", (PyCFunction)(void (*)(void))memory_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "Return a capsule of the bytes; BufferError while their region is paused."},
    {"__dlpack_device__", memory_dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\nReturn the kind and number of the device."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef memory_attributes[] = {
    {"users_count", memory_users_count, NULL,
     "Number of tensors, arrays and buffers that lie in the memory and keep its region.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot memory_slots[] = {
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, binding_object_dealloc},
    {Py_tp_methods, memory_methods},
    {Py_tp_getset, memory_attributes},
    {Py_bf_getbuffer, memory_get_buffer},
    {Py_bf_releasebuffer, memory_release_buffer},
    {Py_tp_doc, "Memory(address, size_bytes, device_number=-1)\n--\n\nBytes of this process. If "
                "they lie in a region, its memory stays while this object, or a view of it, does."},
    {0, NULL}};
static PyType_Spec memory_spec = {"tandem._tandem.Memory", sizeof(struct memory_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, memory_slots};

/* check_ipc(address, size_bytes): refuses GPU memory that PyTorch cannot export. */
static PyObject *check_ipc(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size_bytes;
    tdm_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "Kn", &address, &size_bytes)) {
        return NULL;
    }
    status = tdm_gpu_memory_check_ipc((const void *)(uintptr_t)address, (size_t)size_bytes);
    return status == TDM_OK ? Py_NewRef(Py_None) : binding_raise(status);
}

/* descriptor(address, size_bytes): the file behind bytes of a region, and their place in it. */
static PyObject *descriptor(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size_bytes;
    uint64_t offset = 0;
    int number = -1;
    tdm_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "Kn", &address, &size_bytes)) {
        return NULL;
    }
    if (address == 0) {
        Py_RETURN_NONE;
    }
    BINDING_WITH_REGIONS(status = tdm_region_descriptor((const void *)(uintptr_t)address,
                                                        (size_t)size_bytes, &number, &offset));
    if (status == TDM_E_NOT_FOUND) {
        Py_RETURN_NONE;
    }
    return status == TDM_OK ? Py_BuildValue("iK", number, (unsigned long long)offset)
                            : binding_raise(status);
}

static PyMethodDef functions[] = {
    {"check_ipc", check_ipc, METH_VARARGS,
     "check_ipc(address, size_bytes)\n--\n\n"
     "Raise an exception that names the kind of GPU memory if cudaIpc cannot export it."},
    {"descriptor", descriptor, METH_VARARGS,
     "descriptor(address, size_bytes)\n--\n\nReturn the descriptor of the file behind bytes of a "
     "resident region of this process, which keeps it, and the offset of the first byte; None if "
     "no "
     "region has the address."},
    {NULL, NULL, 0, NULL}};

bool binding_address_init(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&memory_spec);

    return type != NULL && PyModule_AddFunctions(module, functions) >= 0 &&
           PyModule_AddObjectRef(module, "Memory", type) == 0;
}
