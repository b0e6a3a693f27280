/* address.c - memory at an address of this process as objects of Python. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Ranks of jobs learn addresses of memory that libtandem owns (job.c). Nothing here keeps such
 * memory: Python must not use a view after its memory is gone. */
#include "binding.h"

/* view(address, size_bytes): a memoryview of memory of this process. */
static PyObject *view(PyObject *module, PyObject *args)
{
    unsigned long long address;
    Py_ssize_t size_bytes;

    (void)module;
    if (!PyArg_ParseTuple(args, "Kn", &address, &size_bytes)) {
        return NULL;
    }
    return PyMemoryView_FromMemory((char *)(uintptr_t)address, size_bytes, PyBUF_WRITE);
}

/* dlpack_of(owner, address, size_bytes, device_number, args, keywords): __dlpack__ of memory of a
 * GPU, or of the host if the number is negative. */
static PyObject *dlpack_of(PyObject *module, PyObject *args)
{
    struct binding_memory memory = {.data = NULL};
    unsigned long long address;
    Py_ssize_t size_bytes;
    PyObject *keywords;
    PyObject *owner;
    PyObject *more;
    int device_number;

    (void)module;
    if (!PyArg_ParseTuple(args, "OKniO!O!", &owner, &address, &size_bytes, &device_number,
                          &PyTuple_Type, &more, &PyDict_Type, &keywords)) {
        return NULL;
    }
    memory.data = (void *)(uintptr_t)address;
    memory.size_bytes = (size_t)size_bytes;
    memory.device = device_number < 0 ? BINDING_CPU : BINDING_CUDA;
    memory.device_number = device_number < 0 ? 0 : device_number;
    return binding_dlpack_export(owner, &memory, more, keywords);
}

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

static PyMethodDef functions[] = {
    {"view", view, METH_VARARGS,
     "view(address, size_bytes)\n--\n\nReturn a memoryview of memory of this process, which must "
     "not be used after the memory is gone."},
    {"dlpack_of", dlpack_of, METH_VARARGS,
     "dlpack_of(owner, address, size_bytes, device_number, args, keywords)\n--\n\n"
     "Return a DLPack capsule of bytes at an address; a negative number stands for the host."},
    {"check_ipc", check_ipc, METH_VARARGS,
     "check_ipc(address, size_bytes)\n--\n\n"
     "Raise an exception that names the kind of GPU memory if cudaIpc cannot export it."},
    {NULL, NULL, 0, NULL}};

bool binding_address_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) >= 0;
}
