/* notify.c - tells Python which results have arrived, for futures and asyncio. */
/* SPDX-License-Identifier: Apache-2.0 */

/* libtandem calls on_done() with its loop locked, on whichever thread drives the loop. That thread
 * must not wait for the GIL, because a thread with the GIL may wait for the loop. on_done()
 * therefore only moves an entry to a list, and a thread of Python takes it from there with
 * next_done(). */
#include "binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

/* A result that Python waits for. */
struct awaited {
    STAILQ_ENTRY(awaited) link; /* Entry in the list of arrived results. */
    PyObject *token;            /* What Python gets when the result arrives, owned. */
};

/* Guards `arrived`. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Signaled when `arrived` is not empty any more. */
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
/* Results that have arrived and that Python has not taken, in order. */
static STAILQ_HEAD(, awaited) arrived = STAILQ_HEAD_INITIALIZER(arrived);

/* Called once when the result is there, without the GIL. */
static void on_done(void *arg, tdm_ref *ref)
{
    struct awaited *awaited = arg;

    (void)ref;
    (void)pthread_mutex_lock(&mutex);
    STAILQ_INSERT_TAIL(&arrived, awaited, link);
    (void)pthread_cond_signal(&condition);
    (void)pthread_mutex_unlock(&mutex);
}

/* watch(ref, token) */
static PyObject *watch(PyObject *module, PyObject *args)
{
    PyObject *object;
    PyObject *token;
    struct awaited *awaited;
    tdm_ref *ref;
    tdm_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO", &object, &token)) {
        return NULL;
    }
    ref = binding_object_handle(object);
    if (ref == NULL) {
        return NULL;
    }
    awaited = calloc(1, sizeof(*awaited));
    if (awaited == NULL) {
        return PyErr_NoMemory();
    }
    awaited->token = Py_NewRef(token);
    status = tdm_ref_on_done(ref, on_done, awaited);
    if (status != TDM_OK) {
        Py_DECREF(token);
        free(awaited);
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Waits at most `timeout_ms` for an arrived result and takes it; NULL without one. Runs without the
 * GIL. */
static struct awaited *take_arrived(long timeout_ms)
{
    struct awaited *awaited;
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&mutex);
    while (STAILQ_EMPTY(&arrived) && pthread_cond_timedwait(&condition, &mutex, &until) == 0) {
    }
    awaited = STAILQ_FIRST(&arrived);
    if (awaited != NULL) {
        STAILQ_REMOVE_HEAD(&arrived, link);
    }
    (void)pthread_mutex_unlock(&mutex);
    return awaited;
}

/* next_done(timeout_ms) */
static PyObject *next_done(PyObject *module, PyObject *argument)
{
    long timeout_ms = PyLong_AsLong(argument);
    struct awaited *awaited;
    PyObject *token;

    (void)module;
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    BINDING_WITHOUT_GIL(awaited = take_arrived(timeout_ms));
    if (awaited == NULL) {
        Py_RETURN_NONE;
    }
    token = awaited->token;
    free(awaited);
    return token;
}

static PyMethodDef functions[] = {
    {"watch", watch, METH_VARARGS,
     "watch(ref, token)\n--\n\nLet next_done() return token once the result of ref is there."},
    {"next_done", next_done, METH_O,
     "next_done(timeout_ms)\n--\n\nReturn the token of the next result that is there, or None."},
    {NULL, NULL, 0, NULL}};

bool binding_notify_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
