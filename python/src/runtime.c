/* runtime.c - the runtime of this process, and the Python objects that end with it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* A Python object may live longer than the runtime, because Python decides when it is freed. All
 * objects that own a handle of libtandem are therefore in one list. stop() releases their handles
 * first; whoever uses such an object afterwards gets an exception. Memory of values that Python
 * still reads (value.c) stays mapped until the process ends.
 *
 * A fork server forks the interpreter. Python must prepare each fork and clean up after it, which
 * the handlers of this file do. They are active only inside of run_worker(), because os.fork() does
 * the same by itself.
 *
 * The GIL guards everything here. */
#include "binding.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* All live objects; the list is guarded by the GIL. */
static LIST_HEAD(, binding_object) live_objects = LIST_HEAD_INITIALIZER(live_objects);
/* The runtime; NULL before start() and after stop(). */
static tdm_runtime *current_runtime;
/* True once stop() waits for threads that use handles. */
static bool runtime_is_stopping;
/* Number of threads that use the runtime, and no object of `live_objects`, without the GIL. */
static uint32_t runtime_users_count;
/* Thread state of the main thread while run_worker() is inside of libtandem; NULL otherwise. */
static PyThreadState *worker_thread_state;

tdm_runtime *binding_runtime(void)
{
    tdm_runtime *runtime = tdm_runtime_current();

    if (runtime == NULL || runtime_is_stopping) {
        (void)tdm_fail(TDM_E_STATE, "this process has no runtime: call init() first");
        (void)binding_raise(TDM_E_STATE);
        return NULL;
    }
    return runtime;
}

void binding_runtime_use(void)
{
    runtime_users_count++;
}

void binding_runtime_unuse(void)
{
    runtime_users_count--;
}

/* ---- objects ---------------------------------------------------------------------------- */

/* Releases the handle. */
static void handle_release(enum binding_kind kind, void *handle)
{
    switch (kind) {
    case BINDING_REF:
        tdm_ref_release(handle);
        break;
    case BINDING_ACTOR:
        tdm_actor_destroy(handle);
        break;
    case BINDING_STREAM:
        tdm_stream_destroy(handle);
        break;
    case BINDING_GROUP:
        tdm_placement_group_release(handle);
        break;
    case BINDING_REGION:
        binding_region_destroy(handle);
        break;
    case BINDING_RETAINED_REGION:
        binding_region_release(handle);
        break;
    case BINDING_COLLECTIVE:
        tdm_collective_leave(handle);
        break;
    case BINDING_BORROWED_COLLECTIVE:
        break;
    case BINDING_SENDER:
        BINDING_WITHOUT_GIL(tdm_weights_sender_shutdown(handle));
        break;
    case BINDING_RECEIVER:
        BINDING_WITHOUT_GIL(tdm_weights_receiver_shutdown(handle));
        break;
    case BINDING_OUTSIDE_MEMORY:
        binding_outside_memory_destroy(handle);
        break;
    }
}

PyObject *binding_object_create(PyTypeObject *type, enum binding_kind kind, void *handle)
{
    struct binding_object *object =
        (struct binding_object *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);

    if (object == NULL) {
        handle_release(kind, handle);
        return NULL;
    }
    object->kind = kind;
    object->handle = handle;
    object->users_count = 0;
    object->loans_count = 0;
    LIST_INSERT_HEAD(&live_objects, object, link);
    return (PyObject *)object;
}

/* Takes the handle out of the object and releases it. */
static void object_release(struct binding_object *object)
{
    void *handle = object->handle;

    if (handle != NULL) {
        LIST_REMOVE(object, link);
        object->handle = NULL;
        handle_release(object->kind, handle);
    }
}

void binding_object_release(PyObject *object)
{
    object_release((struct binding_object *)object);
}

void binding_object_forget(PyObject *object)
{
    struct binding_object *self = (struct binding_object *)object;

    if (self->handle != NULL) {
        LIST_REMOVE(self, link);
        self->handle = NULL;
    }
}

void *binding_object_handle(PyObject *object)
{
    struct binding_object *self = (struct binding_object *)object;

    if (self->handle == NULL || runtime_is_stopping) {
        (void)tdm_fail(TDM_E_STATE, "the runtime that this object belongs to has stopped");
        (void)binding_raise(TDM_E_STATE);
        return NULL;
    }
    return self->handle;
}

void binding_object_use(PyObject *object)
{
    ((struct binding_object *)object)->users_count++;
}

void binding_object_unuse(PyObject *object)
{
    ((struct binding_object *)object)->users_count--;
}

void binding_object_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    object_release((struct binding_object *)object);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

/* True if a thread uses the runtime or the handle of an object without the GIL. */
static bool runtime_is_used(void)
{
    struct binding_object *object;

    if (runtime_users_count > 0) {
        return true;
    }
    LIST_FOREACH(object, &live_objects, link)
    {
        if (object->users_count > 0) {
            return true;
        }
    }
    return false;
}

/* ---- start and stop --------------------------------------------------------------------- */

/* Implements start(address, name_space, cpus, gpus, log_to_driver, object_store_bytes, directory).
 */
static PyObject *start(PyObject *module, PyObject *args)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    unsigned long long store_bytes;
    unsigned cpus;
    unsigned gpus;
    tdm_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "zzIIiKz", &options.address, &options.name_space, &cpus, &gpus,
                          &options.log_to_driver, &store_bytes, &options.directory)) {
        return NULL;
    }
    options.cpus = cpus;
    options.gpus = gpus;
    options.object_store_bytes = store_bytes;
    BINDING_WITHOUT_GIL(status = tdm_runtime_start(&options, &current_runtime));
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Implements stop(). */
static PyObject *stop(PyObject *module, PyObject *ignored)
{
    struct binding_object *object;
    tdm_runtime *runtime = current_runtime;

    (void)module;
    (void)ignored;
    if (runtime == NULL) {
        Py_RETURN_NONE;
    }
    /* Threads that wait notice the end within one slice. */
    runtime_is_stopping = true;
    while (runtime_is_used()) {
        struct timespec pause = {.tv_nsec = 1000000};

        BINDING_WITHOUT_GIL((void)nanosleep(&pause, NULL));
    }
    while ((object = LIST_FIRST(&live_objects)) != NULL) {
        object_release(object);
    }
    current_runtime = NULL;
    BINDING_WITHOUT_GIL(tdm_runtime_stop(runtime));
    runtime_is_stopping = false;
    Py_RETURN_NONE;
}

/* Implements is_running(). */
static PyObject *is_running(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    return PyBool_FromLong(tdm_runtime_current() != NULL && !runtime_is_stopping);
}

/* Implements shared_refs_count(). */
static PyObject *shared_refs_count(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();

    (void)module;
    (void)ignored;
    return runtime == NULL ? NULL : PyLong_FromUnsignedLong(tdm_runtime_shared_refs_count(runtime));
}

/* Implements describe(). */
static PyObject *describe(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    struct tdm_runtime_info info;
    PyObject *gpus;

    (void)module;
    (void)ignored;
    if (runtime == NULL) {
        return NULL;
    }
    tdm_runtime_describe(runtime, &info);
    gpus = PyList_New(info.gpus_count);
    for (uint32_t i = 0; gpus != NULL && i < info.gpus_count; i++) {
        (void)PyList_SetItem(gpus, i, PyLong_FromUnsignedLong(info.gpu_indices[i]));
    }
    return gpus == NULL
               ? NULL
               : Py_BuildValue("{sssssssssssssssssNsssI}", "node_id", info.node_id, "node_name",
                               info.node_name, "address", info.address, "directory", info.directory,
                               "namespace", info.name_space, "actor_id", info.actor_id,
                               "actor_name", info.actor_name, "job_id", info.job_id, "gpus", gpus,
                               "class_name", info.class_name, "restarts", info.restarts_count);
}

/* Implements exit_actor(). */
static PyObject *exit_actor(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime = binding_runtime();
    tdm_status status = runtime == NULL ? TDM_OK : tdm_runtime_exit_actor(runtime);

    (void)module;
    (void)ignored;
    if (runtime == NULL || status != TDM_OK) {
        return runtime == NULL ? NULL : binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Calls tdm_actor_watch() or tdm_actor_unwatch() with the process id `number`. */
static PyObject *call_with_pid(PyObject *number, tdm_status (*call)(tdm_runtime *, int64_t))
{
    tdm_runtime *runtime = binding_runtime();
    long long pid = runtime == NULL ? -1 : PyLong_AsLongLong(number);
    tdm_status status;

    if (runtime == NULL || (pid == -1 && PyErr_Occurred() != NULL)) {
        return NULL;
    }
    status = call(runtime, pid);
    if (status != TDM_OK) {
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Implements actor_watch(pid). */
static PyObject *actor_watch(PyObject *module, PyObject *pid)
{
    (void)module;
    return call_with_pid(pid, tdm_actor_watch);
}

/* Implements actor_unwatch(pid). */
static PyObject *actor_unwatch(PyObject *module, PyObject *pid)
{
    (void)module;
    return call_with_pid(pid, tdm_actor_unwatch);
}

/* ---- the worker ------------------------------------------------------------------------- */

/* These three run around fork() in the main thread of a fork server. */
static void before_fork(void)
{
    if (worker_thread_state != NULL) {
        PyEval_RestoreThread(worker_thread_state);
        PyOS_BeforeFork();
    }
}

static void after_fork_in_parent(void)
{
    if (worker_thread_state != NULL) {
        PyOS_AfterFork_Parent();
        worker_thread_state = PyEval_SaveThread();
    }
}

static void after_fork_in_child(void)
{
    if (worker_thread_state != NULL) {
        PyOS_AfterFork_Child();
        worker_thread_state = PyEval_SaveThread();
    }
}

/* run_worker(): returns only in a process that is no worker, with an exception. */
static PyObject *run_worker(PyObject *module, PyObject *ignored)
{
    tdm_runtime *runtime;

    (void)module;
    (void)ignored;
    if (getenv("TANDEM_WORKER") == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "this process was not started as a worker of Tandem");
        return NULL;
    }
    if (pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0) {
        return PyErr_NoMemory();
    }
    worker_thread_state = PyEval_SaveThread();
    (void)tdm_runtime_start(NULL, &runtime);
    abort(); /* A worker never returns from tdm_runtime_start(). */
}

/* forking_ended(): the forked worker has begun; later forks are those of the user. */
static PyObject *forking_ended(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    worker_thread_state = NULL;
    Py_RETURN_NONE;
}

/* getenv(name): the variable as C sees it. */
static PyObject *get_variable(PyObject *module, PyObject *name)
{
    PyObject *encoded = PyUnicode_EncodeFSDefault(name);
    const char *value = encoded == NULL ? NULL : getenv(PyBytes_AsString(encoded));

    (void)module;
    Py_XDECREF(encoded);
    if (encoded == NULL) {
        return NULL;
    }
    if (value == NULL) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeFSDefault(value);
}

PyMethodDef binding_runtime_methods[] = {
    {"start", start, METH_VARARGS,
     "start(address, name_space, cpus, gpus, log_to_driver, object_store_bytes, directory)\n--\n\n"
     "Join the node at address, or start a private node. See struct tdm_runtime_options."},
    {"stop", stop, METH_NOARGS,
     "stop()\n--\n\nLeave the cluster. Objects of this module raise an exception afterwards."},
    {"is_running", is_running, METH_NOARGS,
     "is_running()\n--\n\nReturn whether this process has a runtime."},
    {"describe", describe, METH_NOARGS,
     "describe()\n--\n\nReturn a dict about this process: its node, actor, job and GPUs."},
    {"shared_refs_count", shared_refs_count, METH_NOARGS,
     "shared_refs_count()\n--\n\nReturn how many references of this process others have."},
    {"exit_actor", exit_actor, METH_NOARGS,
     "exit_actor()\n--\n\nEnd the actor of this process after its running methods."},
    {"actor_watch", actor_watch, METH_O,
     "actor_watch(pid)\n--\n\nLet the actor of this process fail when another process ends."},
    {"actor_unwatch", actor_unwatch, METH_O,
     "actor_unwatch(pid)\n--\n\nEnd the watch of a process."},
    {"run_worker", run_worker, METH_NOARGS,
     "run_worker()\n--\n\nBecome the worker or fork server that this process was started as.\n\n"
     "Never returns in such a process; raises RuntimeError in any other."},
    {"forking_ended", forking_ended, METH_NOARGS,
     "forking_ended()\n--\n\nDeclare that this process is a worker and forks no workers itself."},
    {"getenv", get_variable, METH_O,
     "getenv(name)\n--\n\nReturn a variable of the process, which os.environ may not know; None "
     "without it."},
    {NULL, NULL, 0, NULL}};
