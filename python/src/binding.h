/* binding.h - what the files of the extension module tandem._tandem share. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_PYTHON_BINDING_H
#define TANDEM_PYTHON_BINDING_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

/* Python.h comes first of all headers that depend on feature macros; Py_LIMITED_API is set by the
 * build. */
#include <Python.h>
#include <tandem/tandem.h>

/* All functions here need the GIL, unless their comment says otherwise. */

/* ---- the runtime (runtime.c) ------------------------------------------------------------- */

/* Kinds of handles of libtandem that Python objects own. */
enum binding_kind {
    BINDING_REF,             /* A tdm_ref. */
    BINDING_ACTOR,           /* A tdm_actor. */
    BINDING_STREAM,          /* A tdm_stream. */
    BINDING_GROUP,           /* A tdm_placement_group. */
    BINDING_REGION,          /* A tdm_region. */
    BINDING_RETAINED_REGION, /* A tdm_region that libtandem destroys, retained by the object. */
    BINDING_COLLECTIVE,      /* A tdm_collective_group. */
    /* A tdm_collective_group that libtandem leaves, not the object. */
    BINDING_BORROWED_COLLECTIVE,
    BINDING_SENDER,        /* A tdm_weights_sender. */
    BINDING_RECEIVER,      /* A tdm_weights_receiver. */
    BINDING_OUTSIDE_MEMORY /* A tdm_outside_memory. */
};

/* A Python object that owns one handle of libtandem.  It is in the list of live objects until the
 * handle is released, which happens at the latest when the runtime stops. */
struct binding_object {
    PyObject_HEAD                        /* The object's header. */
        LIST_ENTRY(binding_object) link; /* Entry in the list of live objects. */
    enum binding_kind kind;              /* Kind of the handle. */
    void *handle;                        /* The handle, owned; NULL once it was released. */
    uint32_t users_count;                /* Threads that use the handle without the GIL. */
    /* Region and Memory: capsules, arrays, tensors and buffers that lie in the memory. */
    Py_ssize_t loans_count;
};

/* Runs the statement without the GIL. */
#define BINDING_WITHOUT_GIL(...)                                                                   \
    do {                                                                                           \
        PyThreadState *binding_thread_state_ = PyEval_SaveThread();                                \
        __VA_ARGS__;                                                                               \
        PyEval_RestoreThread(binding_thread_state_);                                               \
    } while (0)
/* Runs the statement, which uses the handle of `object`, without the GIL. */
#define BINDING_WITH_OBJECT(object, ...)                                                           \
    do {                                                                                           \
        binding_object_use(object);                                                                \
        BINDING_WITHOUT_GIL(__VA_ARGS__);                                                          \
        binding_object_unuse(object);                                                              \
    } while (0)
/* Runs the statement, which uses the runtime, without the GIL. */
#define BINDING_WITH_RUNTIME(...)                                                                  \
    do {                                                                                           \
        binding_runtime_use();                                                                     \
        BINDING_WITHOUT_GIL(__VA_ARGS__);                                                          \
        binding_runtime_unuse();                                                                   \
    } while (0)

/* Returns the runtime of this process.  NULL and an exception if it has none. */
tdm_runtime *binding_runtime(void);
/* Declares that this thread uses the runtime while it does not have the GIL; stop() waits for
 * binding_runtime_unuse(). */
void binding_runtime_use(void);
/* Ends a binding_runtime_use(). */
void binding_runtime_unuse(void);
/* Creates an object of `type` that owns the handle, or releases the handle and returns NULL with an
 * exception.  `type` is a binding type or a subclass of one. */
PyObject *binding_object_create(PyTypeObject *type, enum binding_kind kind, void *handle);
/* Returns the handle of the object.  NULL and an exception if the runtime has stopped. */
void *binding_object_handle(PyObject *object);
/* Marks the handle as in use while the GIL is released, so that it is not released meanwhile. */
void binding_object_use(PyObject *object);
/* Ends a binding_object_use(). */
void binding_object_unuse(PyObject *object);
/* Releases the handle of the object before the object ends.  No thread may use the handle. */
void binding_object_release(PyObject *object);
/* Lets the object forget its handle, which the caller releases or does not own. */
void binding_object_forget(PyObject *object);
/* Implements tp_dealloc of all binding types. */
void binding_object_dealloc(PyObject *object);
/* Functions of the module that start, stop and describe the runtime; ends with a NULL name. */
extern PyMethodDef binding_runtime_methods[];

/* ---- failures (failure.c) ---------------------------------------------------------------- */

/* Sets the exception for a failed call of libtandem, with the detail of this thread.  Returns NULL.
 */
PyObject *binding_raise(tdm_status status);
/* Records the current exception, with its text, as the failure of a method of this process, and
 * clears it.  The status is TDM_E_METHOD; with `keeps_status` it is TDM_E_ABORTED or TDM_E_TIMEOUT
 * if the exception reports that a call of libtandem has failed so. */
tdm_status binding_failure_of_exception(bool keeps_status);
/* Functions of the module about failures; ends with a NULL name. */
extern PyMethodDef binding_failure_methods[];

/* ---- values (value.c) -------------------------------------------------------------------- */

/* One value on its way into a message: bytes of a pickle, buffers that the pickle refers to, and
 * references and handles that it contains. */
struct binding_payload {
    int64_t kind;               /* Meaning of the value, which this module does not interpret. */
    Py_buffer head;             /* The pickle; `obj` is NULL if absent. */
    struct tdm_item *items;     /* Items of all lists, owned. */
    struct tdm_ndarray *arrays; /* The buffers as arrays, owned. */
    Py_buffer *buffers;         /* The buffers, exported until the payload is released, owned. */
    uint32_t buffers_count;     /* Number of buffers that are exported. */
    struct tdm_items lists[3];  /* Buffers, references and handles, and awaited references. */
    PyObject *objects[2];       /* Sequences behind lists[1] and lists[2], owned; NULL if empty. */
    size_t size_bytes;          /* Bytes of pickle and buffers. */
};

/* Fills the payload from (kind, pickle, buffers, objects, awaited).  The last three are sequences
 * or None: buffers that are C-contiguous, Ref and Actor objects, and Ref objects whose values
 * become arguments.  Returns false with an exception. */
bool binding_payload_init(struct binding_payload *payload, PyObject *const *parts,
                          Py_ssize_t count);
/* Releases the buffers and lists.  A zeroed payload is allowed. */
void binding_payload_release(struct binding_payload *payload);
/* True if copying the payload takes so long that other threads should run meanwhile. */
bool binding_payload_is_large(const struct binding_payload *payload);

/* Format and arguments that pack a payload; `BINDING_ARGUMENTS` is for the payload p. */
#define BINDING_FORMAT "ib(*)(&)&"
#define BINDING_ARGUMENTS(p)                                                                       \
    (p)->kind, (const void *)(p)->head.buf, (size_t)(p)->head.len, &(p)->lists[0], &(p)->lists[1], \
        &(p)->lists[2]
/* The same for a payload without references and handles, which is packed straight into shared
 * memory. */
#define BINDING_PLAIN_FORMAT "ib(*)"
#define BINDING_PLAIN_ARGUMENTS(p)                                                                 \
    (p)->kind, (const void *)(p)->head.buf, (size_t)(p)->head.len, &(p)->lists[0]
/* True if the payload has no references and handles. */
#define BINDING_IS_PLAIN(p) ((p)->lists[1].count == 0 && (p)->lists[2].count == 0)

/* Returns (kind, pickle, buffers, objects, awaited) of a packed payload; `awaited` has one such
 * tuple for each awaited reference.  The buffers keep `memory` alive.  NULL with an exception. */
PyObject *binding_value_read(const tdm_value *array, PyObject *memory);
/* Creates the object that owns a reference (a copy is made) or a document (taken); one of them is
 * NULL.  NULL with an exception. */
PyObject *binding_memory_create(tdm_ref *ref, tdm_document *document);
/* Gives the document to an object that was created with NULL for both. */
void binding_memory_set_document(PyObject *memory, tdm_document *document);
/* Creates the types of this file.  Returns false with an exception. */
bool binding_value_init(PyObject *module);

/* ---- DLPack (dlpack.c) ------------------------------------------------------------------- */

/* Kinds of memory, with the numbers of DLPack. */
enum binding_device {
    BINDING_CPU = 1, /* Memory of the host. */
    BINDING_CUDA = 2 /* Memory of a CUDA GPU. */
};

/* Bytes that are exported. */
struct binding_memory {
    void *data;                 /* The bytes. */
    size_t size_bytes;          /* Number of bytes. */
    enum binding_device device; /* Kind of the memory. */
    int32_t device_number;      /* Number of the GPU among the visible ones; 0 for the host. */
    bool is_read_only;          /* True if a write would be a fault. */
    /* Counter of the loans of this memory, in its owner; NULL if nobody counts them. */
    Py_ssize_t *loans_count;
};

/* Returns a capsule of the bytes, which keeps `owner` alive until it or the array made of it is
 * freed. An unversioned capsule does not say that memory is read-only. NULL with an exception. */
PyObject *binding_dlpack_create(PyObject *owner, const struct binding_memory *memory,
                                bool is_versioned);
/* __dlpack__ of an object: a capsule of the bytes, for the arguments of that method. NULL with an
 * exception. */
PyObject *binding_dlpack_export(PyObject *owner, const struct binding_memory *memory,
                                PyObject *args, PyObject *keywords);
/* __dlpack_device__ of an object: the pair of kind and number. */
PyObject *binding_dlpack_device(const struct binding_memory *memory);

/* ---- notices (notify.c) ------------------------------------------------------------------ */

/* Something of which Python is told, with a token. */
struct binding_notice;
/* Creates a notice with a token for a Notices object.  NULL with an exception. */
struct binding_notice *binding_notice_create(PyObject *token, PyObject *notices);
/* Frees a notice that was not posted.  NULL is allowed. */
void binding_notice_destroy(struct binding_notice *notice);
/* Lets take() of the Notices object return the token of the notice, which this takes over.  Needs
 * no GIL. */
void binding_notice_post(struct binding_notice *notice);

/* ---- regions (region.c), outside memory (outside_memory.c) -------------------------------- */

/* Guards the calls of libtandem that change regions and outside memory, of which one thread at a
 * time may make one. */
extern pthread_mutex_t binding_regions_mutex;
/* Runs the statement without the GIL and with that mutex. */
#define BINDING_WITH_REGIONS(...)                                                                  \
    BINDING_WITHOUT_GIL((void)pthread_mutex_lock(&binding_regions_mutex); __VA_ARGS__;             \
                        (void)pthread_mutex_unlock(&binding_regions_mutex))
/* Destroys a region, unless the runtime has stopped and destroyed it. Gives the GIL away. */
void binding_region_destroy(tdm_region *region);
/* Releases a retained region, unless the runtime has stopped and destroyed it. Gives the GIL
 * away. */
void binding_region_release(tdm_region *region);
/* Returns the handle of a Region object. NULL with an exception if the object is none, was freed,
 * or the runtime has stopped. */
tdm_region *binding_region_handle(PyObject *object);
/* Ends the declaration of outside memory. Gives the GIL away. */
void binding_outside_memory_destroy(tdm_outside_memory *memory);

/* ---- collective groups (collective.c), jobs (job.c), weights (weights.c) ------------------ */

/* Creates an object for a collective group.  It leaves the group when it is freed unless the group
 * is borrowed; binding_object_forget() ends a loan. */
PyObject *binding_collective_create(tdm_collective_group *group, bool is_borrowed);
/* Creates the types of these files and registers the tables of job libraries in Python.  Each
 * returns false with an exception. */
bool binding_collective_init(PyObject *module);
bool binding_job_init(PyObject *module);
bool binding_address_init(PyObject *module);
bool binding_allocator_init(PyObject *module);
bool binding_weights_init(PyObject *module);

/* ---- references (ref.c), actors (actor.c), placement groups (group.c), calls (call.c) ---- */

/* The class of new reference objects: Ref, or the subclass that Python has set. */
extern PyTypeObject *binding_ref_class;
/* The type Actor. */
extern PyTypeObject *binding_actor_type;
/* Longest time in milliseconds that a wait lasts before signals of Python are handled. */
enum { BINDING_SLICE_MS = 50 };

/* Creates a reference object that owns `ref`. */
PyObject *binding_ref_create(tdm_ref *ref);
/* Returns the milliseconds of a time in seconds as Python gives it: None is TDM_FOREVER.  Returns
 * -2 with an exception. */
int64_t binding_timeout_ms(PyObject *seconds);
/* These create the types and add the functions of their files to the module.  Each returns false
 * with an exception. */
bool binding_ref_init(PyObject *module);
bool binding_actor_init(PyObject *module);
bool binding_group_init(PyObject *module);
bool binding_call_init(PyObject *module);
bool binding_notify_init(PyObject *module);
bool binding_state_init(PyObject *module);
bool binding_region_init(PyObject *module);
bool binding_outside_memory_init(PyObject *module);
/* Returns the placement group handle of a Group object; NULL with an exception. */
const tdm_placement_group *binding_group_handle(PyObject *object);

#endif
