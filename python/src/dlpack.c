/* dlpack.c - bytes of this process as DLPack capsules, which torch and numpy read in place. */
/* SPDX-License-Identifier: Apache-2.0 */

/* DLPack is an exchange format of array libraries: a C struct in a capsule with one of two names,
 * unversioned ("dltensor") or versioned ("dltensor_versioned"). Only the versioned one can say that
 * the memory is read-only. Whoever takes the struct renames the capsule and calls the struct's
 * deleter in the end, on any thread. The struct keeps its owner, a Python object, alive until then.
 *
 * All memory is exported as an array of bytes; views give it another type and shape. */
#include "binding.h"

#include <stdlib.h>

enum {
    DLPACK_UINT = 1,         /* Type code of unsigned integers. */
    DLPACK_READ_ONLY = 1,    /* Flag: the memory must not be written. */
    DLPACK_MAJOR_VERSION = 1 /* Major version of the versioned struct. */
};

/* An array, as DLPack lays it out. */
struct dlpack_tensor {
    void *data;           /* First byte. */
    int32_t device_type;  /* Kind of memory: enum binding_device. */
    int32_t device_id;    /* Number of the device among the visible ones of its kind. */
    int32_t dims_count;   /* Number of dimensions: 1. */
    uint8_t type_code;    /* DLPACK_UINT. */
    uint8_t type_bits;    /* Bits of one element. */
    uint16_t type_lanes;  /* Numbers in one element: 1. */
    int64_t *shape;       /* Elements of each dimension. */
    int64_t *strides;     /* Elements from one index to the next of each dimension. */
    uint64_t byte_offset; /* Bytes from `data` to the first element. */
};

/* The struct in an unversioned capsule, as DLPack lays it out. */
struct dlpack_unversioned {
    struct dlpack_tensor tensor;                      /* The array. */
    void *context;                                    /* The struct loan, owned. */
    void (*deleter)(struct dlpack_unversioned *self); /* Called by who took the struct. */
};

/* The struct in a versioned capsule, as DLPack lays it out. */
struct dlpack_versioned {
    uint32_t major_version;                         /* DLPACK_MAJOR_VERSION. */
    uint32_t minor_version;                         /* 0. */
    void *context;                                  /* The struct loan, owned. */
    void (*deleter)(struct dlpack_versioned *self); /* Called by who took the struct. */
    uint64_t flags;                                 /* 0 or DLPACK_READ_ONLY. */
    struct dlpack_tensor tensor;                    /* The array. */
};

/* One loan of memory to another library; freed by the deleter of its struct. */
struct loan {
    struct dlpack_unversioned unversioned; /* Used if the capsule is unversioned. */
    struct dlpack_versioned versioned;     /* Used if the capsule is versioned. */
    int64_t size_bytes;                    /* The shape of the array. */
    int64_t stride;                        /* The stride of the array: 1. */
    PyObject *owner;                       /* The object whose memory it is, owned. */
    /* Counter of the loans, in the owner; NULL if nobody counts them. */
    Py_ssize_t *loans_count;
};

static const char unversioned_name[] = "dltensor";
static const char versioned_name[] = "dltensor_versioned";

/* Frees a loan on a thread with or without the GIL. After the end of the interpreter the owner
 * is left alone. */
static void loan_destroy(struct loan *loan)
{
    if (Py_IsInitialized()) {
        PyGILState_STATE state = PyGILState_Ensure();

        if (loan->loans_count != NULL) {
            *loan->loans_count -= 1;
        }
        Py_DECREF(loan->owner);
        PyGILState_Release(state);
    }
    free(loan);
}

/* Deleter of an unversioned struct. */
static void delete_unversioned(struct dlpack_unversioned *self)
{
    loan_destroy(self->context);
}

/* Deleter of a versioned struct. */
static void delete_versioned(struct dlpack_versioned *self)
{
    loan_destroy(self->context);
}

/* Destructor of the capsules: frees the loan unless somebody took it, and with it the name. */
static void capsule_destroy(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, unversioned_name)) {
        delete_unversioned(PyCapsule_GetPointer(capsule, unversioned_name));
    } else if (PyCapsule_IsValid(capsule, versioned_name)) {
        delete_versioned(PyCapsule_GetPointer(capsule, versioned_name));
    }
}

PyObject *binding_dlpack_create(PyObject *owner, const struct binding_memory *memory,
                                bool is_versioned)
{
    struct loan *loan = calloc(1, sizeof(*loan));
    PyObject *capsule;

    if (loan == NULL) {
        return PyErr_NoMemory();
    }
    loan->size_bytes = (int64_t)memory->size_bytes;
    loan->stride = 1;
    loan->versioned =
        (struct dlpack_versioned){.major_version = DLPACK_MAJOR_VERSION,
                                  .context = loan,
                                  .deleter = delete_versioned,
                                  .flags = memory->is_read_only ? DLPACK_READ_ONLY : 0,
                                  .tensor = {.data = memory->data,
                                             .device_type = memory->device,
                                             .device_id = memory->device_number,
                                             .dims_count = 1,
                                             .type_code = DLPACK_UINT,
                                             .type_bits = 8,
                                             .type_lanes = 1,
                                             .shape = &loan->size_bytes,
                                             .strides = &loan->stride}};
    loan->unversioned = (struct dlpack_unversioned){
        .tensor = loan->versioned.tensor, .context = loan, .deleter = delete_unversioned};
    capsule = is_versioned ? PyCapsule_New(&loan->versioned, versioned_name, capsule_destroy)
                           : PyCapsule_New(&loan->unversioned, unversioned_name, capsule_destroy);
    if (capsule == NULL) {
        free(loan);
        return NULL;
    }
    loan->owner = Py_NewRef(owner);
    loan->loans_count = memory->loans_count;
    if (loan->loans_count != NULL) {
        *loan->loans_count += 1;
    }
    return capsule;
}

PyObject *binding_dlpack_device(const struct binding_memory *memory)
{
    return Py_BuildValue("(ii)", (int)memory->device, (int)memory->device_number);
}

/* True if `wanted`, the argument dl_device, is None or the device of the memory. */
static bool is_same_device(PyObject *wanted, const struct binding_memory *memory)
{
    PyObject *own;
    int is_same;

    if (wanted == Py_None) {
        return true;
    }
    own = binding_dlpack_device(memory);
    is_same = own == NULL ? -1 : PyObject_RichCompareBool(wanted, own, Py_EQ);
    Py_XDECREF(own);
    PyErr_Clear();
    return is_same == 1;
}

PyObject *binding_dlpack_export(PyObject *owner, const struct binding_memory *memory,
                                PyObject *args, PyObject *keywords)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None; /* Nothing has to be waited for: no stream of ours writes. */
    PyObject *max_version = Py_None;
    PyObject *device = Py_None;
    PyObject *copy = Py_None;
    unsigned int major = 0;
    unsigned int minor = 0;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|$OOOO", names, &stream, &max_version,
                                     &device, &copy) ||
        (max_version != Py_None && !PyArg_ParseTuple(max_version, "II", &major, &minor))) {
        return NULL;
    }
    if (copy == Py_True || !is_same_device(device, memory)) {
        PyErr_SetString(PyExc_BufferError, "the memory is exported in place only");
        return NULL;
    }
    if (memory->is_read_only && major < DLPACK_MAJOR_VERSION) {
        PyErr_SetString(PyExc_BufferError,
                        "the memory is read-only, which only DLPack 1.0 and later can say");
        return NULL;
    }
    return binding_dlpack_create(owner, memory, major >= DLPACK_MAJOR_VERSION);
}
