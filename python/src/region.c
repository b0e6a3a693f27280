/* region.c - regions of device memory as Python objects. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A region's addresses stay the same while its memory is taken away and given back, so that a
 * tensor made of it stays usable after a resume. A tensor keeps the Region object alive, and the
 * object counts its tensors, arrays and buffers. Reading a tensor while its region is paused is a
 * fault that nothing can turn into an exception (libtandem names the region on stderr); making one
 * of a paused region is an exception.
 *
 * libtandem lets one thread at a time use the regions of a process, so that a mutex guards all
 * calls that change them. It is only taken without the GIL. */
#include "binding.h"

#include <string.h>

static PyTypeObject *region_type; /* The type Region. */
pthread_mutex_t binding_regions_mutex = PTHREAD_MUTEX_INITIALIZER;

void binding_region_destroy(tdm_region *region)
{
    /* A runtime that stops destroys all regions. */
    if (tdm_runtime_current() != NULL) {
        BINDING_WITH_REGIONS(tdm_region_destroy(region));
    }
}

/* Region(tag, size_bytes, *, keep=True, gpu=0, paused=False) */
static PyObject *region_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"tag", "size_bytes", "keep", "gpu", "paused", NULL};
    struct tdm_region_options options = {.tag = NULL};
    tdm_runtime *runtime = binding_runtime();
    unsigned int gpu = 0;
    Py_ssize_t size_bytes;
    int keep = 1;
    tdm_region *region;
    tdm_status status;

    if (runtime == NULL ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "sn|$pIp", names, &options.tag, &size_bytes,
                                     &keep, &gpu, &options.paused)) {
        return NULL;
    }
    if (size_bytes <= 0) {
        PyErr_SetString(PyExc_ValueError, "a region has at least one byte");
        return NULL;
    }
    options.size_bytes = (size_t)size_bytes;
    options.policy = keep ? TDM_REGION_KEEP : TDM_REGION_DROP;
    options.gpu = gpu;
    binding_runtime_use();
    BINDING_WITH_REGIONS(status = tdm_region_create(runtime, &options, &region));
    binding_runtime_unuse();
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    return binding_object_create(type, BINDING_REGION, region);
}

/* Returns the region's handle. NULL with an exception if it was freed or the runtime stopped. */
static tdm_region *region_handle(PyObject *self)
{
    if (((struct binding_object *)self)->handle == NULL && tdm_runtime_current() != NULL) {
        (void)tdm_fail(TDM_E_STATE, "the region was freed");
        (void)binding_raise(TDM_E_STATE);
        return NULL;
    }
    return binding_object_handle(self);
}

tdm_region *binding_region_handle(PyObject *object)
{
    if (!PyObject_TypeCheck(object, region_type)) {
        PyErr_SetString(PyExc_TypeError, "the argument is no tandem.memory.Region");
        return NULL;
    }
    return region_handle(object);
}

/* Region.pause() */
static PyObject *region_pause(PyObject *self, PyObject *ignored)
{
    tdm_region *region = region_handle(self);
    tdm_status status;

    (void)ignored;
    if (region == NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_region_pause(region));
    binding_object_unuse(self);
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Region.resume(timeout=None) */
static PyObject *region_resume(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"timeout", NULL};
    tdm_region *region = region_handle(self);
    PyObject *seconds = Py_None;
    int64_t timeout_ms;
    tdm_status status;

    if (region == NULL || !PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &seconds)) {
        return NULL;
    }
    timeout_ms = binding_timeout_ms(seconds);
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    binding_object_use(self);
    BINDING_WITH_REGIONS(status = tdm_region_resume(region, timeout_ms));
    binding_object_unuse(self);
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Fills `memory` with the region's bytes. Returns false with an exception. */
static bool region_memory(PyObject *self, struct binding_memory *memory)
{
    tdm_region *region = region_handle(self);

    if (region == NULL) {
        return false;
    }
    *memory = (struct binding_memory){.data = tdm_region_address(region),
                                      .size_bytes = tdm_region_size(region),
                                      .device = BINDING_CPU,
                                      .loans_count = &((struct binding_object *)self)->loans_count};
    if (strcmp(tdm_region_device(region), "cuda") == 0) {
        memory->device = BINDING_CUDA;
        memory->device_number = tdm_region_device_number(region);
    }
    return true;
}

/* Fills `memory` with the region's bytes, unless the region is paused. Returns false with an
 * exception. */
static bool region_resident_memory(PyObject *self, struct binding_memory *memory)
{
    tdm_region *region;

    if (!region_memory(self, memory)) {
        return false;
    }
    region = ((struct binding_object *)self)->handle;
    if (!tdm_region_is_resident(region)) {
        PyErr_Format(PyExc_BufferError, "the region %s is paused: call resume() first",
                     tdm_region_tag(region));
        return false;
    }
    return true;
}

/* Region.__dlpack__() */
static PyObject *region_dlpack(PyObject *self, PyObject *args, PyObject *keywords)
{
    struct binding_memory memory;

    return region_resident_memory(self, &memory)
               ? binding_dlpack_export(self, &memory, args, keywords)
               : NULL;
}

/* bf_getbuffer of Region: the bytes, which may be written. */
static int region_get_buffer(PyObject *self, Py_buffer *view, int flags)
{
    struct binding_memory memory;

    view->obj = NULL;
    if (!region_resident_memory(self, &memory)) {
        return -1;
    }
    if (memory.device != BINDING_CPU) {
        PyErr_SetString(PyExc_BufferError,
                        "the region is on a GPU, where only DLPack gives access to it");
        return -1;
    }
    if (PyBuffer_FillInfo(view, self, memory.data, (Py_ssize_t)memory.size_bytes, 0, flags) < 0) {
        return -1;
    }
    *memory.loans_count += 1;
    return 0;
}

/* bf_releasebuffer of Region. */
static void region_release_buffer(PyObject *self, Py_buffer *view)
{
    (void)view;
    ((struct binding_object *)self)->loans_count -= 1;
}

/* Region.free() */
static PyObject *region_free(PyObject *self, PyObject *ignored)
{
    struct binding_object *object = (struct binding_object *)self;

    (void)ignored;
    if (region_handle(self) == NULL) {
        return NULL;
    }
    if (object->loans_count > 0 || object->users_count > 0) {
        (void)tdm_fail(TDM_E_STATE,
                       "the region %s is in use: %lld tensors, arrays and buffers lie in it, and "
                       "%u threads pause or resume it; delete them first",
                       tdm_region_tag(object->handle), (long long)object->loans_count,
                       object->users_count);
        return binding_raise(TDM_E_STATE);
    }
    binding_object_release(self);
    Py_RETURN_NONE;
}

/* Region.__dlpack_device__() */
static PyObject *region_dlpack_device(PyObject *self, PyObject *ignored)
{
    struct binding_memory memory;

    (void)ignored;
    return region_memory(self, &memory) ? binding_dlpack_device(&memory) : NULL;
}

/* Getter of Region.tag. */
static PyObject *region_tag(PyObject *self, void *ignored)
{
    tdm_region *region = region_handle(self);

    (void)ignored;
    return region == NULL ? NULL : PyUnicode_FromString(tdm_region_tag(region));
}

/* Getter of Region.size_bytes. */
static PyObject *region_size_bytes(PyObject *self, void *ignored)
{
    tdm_region *region = region_handle(self);

    (void)ignored;
    return region == NULL ? NULL : PyLong_FromSize_t(tdm_region_size(region));
}

/* Getter of Region.is_resident. */
static PyObject *region_is_resident(PyObject *self, void *ignored)
{
    tdm_region *region = region_handle(self);

    (void)ignored;
    return region == NULL ? NULL : PyBool_FromLong(tdm_region_is_resident(region));
}

/* Getter of Region.users_count. */
static PyObject *region_users_count(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromSsize_t(((struct binding_object *)self)->loans_count);
}

static PyMethodDef region_methods[] = {
    {"pause", region_pause, METH_NOARGS,
     "pause()\n--\n\nGive the memory back to the device. Tensors made of it must not be used "
     "until resume()."},
    {"resume", (PyCFunction)(void (*)(void))region_resume, METH_VARARGS | METH_KEYWORDS,
     "resume(timeout=None)\n--\n\nTake memory again, at the same address; wait that many seconds "
     "for it."},
    {"free", region_free, METH_NOARGS,
     "free()\n--\n\nGive memory and addresses back before the object ends. An exception while "
     "tensors, arrays or buffers lie in the region."},
    {"__dlpack__", (PyCFunction)(void (*)(void))region_dlpack, METH_VARARGS | METH_KEYWORDS,
     "__dlpack__(*, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "Return a capsule of the region's bytes; BufferError while the region is paused."},
    {"__dlpack_device__", region_dlpack_device, METH_NOARGS,
     "__dlpack_device__()\n--\n\nReturn the kind and number of the region's device."},
    {NULL, NULL, 0, NULL}};
static PyGetSetDef region_attributes[] = {
    {"tag", region_tag, NULL, "What the memory is for.", NULL},
    {"size_bytes", region_size_bytes, NULL, "Size in bytes, after rounding up.", NULL},
    {"is_resident", region_is_resident, NULL, "False while the region is paused.", NULL},
    {"users_count", region_users_count, NULL,
     "Number of tensors, arrays and buffers that lie in the region and keep it.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};
static PyType_Slot region_slots[] = {
    {Py_tp_new, region_new},
    {Py_tp_dealloc, binding_object_dealloc},
    {Py_tp_methods, region_methods},
    {Py_tp_getset, region_attributes},
    {Py_bf_getbuffer, region_get_buffer},
    {Py_bf_releasebuffer, region_release_buffer},
    {Py_tp_doc, "Region(tag, size_bytes, *, keep=True, gpu=0, paused=False)\n--\n\n"
                "Device memory of this actor that can be taken away and given back at the same "
                "address."},
    {0, NULL}};
static PyType_Spec region_spec = {"tandem._tandem.Region", sizeof(struct binding_object), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, region_slots};

/* region_is_resident(address): whether the region at an address is resident, also one that Tandem
 * has created for a rank of a job. */
static PyObject *address_is_resident(PyObject *module, PyObject *args)
{
    unsigned long long address;
    const tdm_region *region;
    bool is_resident;

    (void)module;
    if (!PyArg_ParseTuple(args, "K", &address)) {
        return NULL;
    }
    BINDING_WITH_REGIONS(region = tdm_region_find((const void *)(uintptr_t)address);
                         is_resident = tdm_region_is_resident(region) != 0);
    if (region == NULL) {
        PyErr_Format(PyExc_KeyError, "no region has the address 0x%llx", address);
        return NULL;
    }
    return PyBool_FromLong(is_resident);
}

static PyMethodDef functions[] = {{"region_is_resident", address_is_resident, METH_VARARGS,
                                   "region_is_resident(address)\n--\n\nReturn whether the region "
                                   "of this process with the address "
                                   "is resident; KeyError if there is none."},
                                  {NULL, NULL, 0, NULL}};

bool binding_region_init(PyObject *module)
{
    region_type = (PyTypeObject *)PyType_FromSpec(&region_spec);
    return region_type != NULL && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Region", (PyObject *)region_type) == 0;
}
