/* notify.c - tells Python which results have arrived and which calls were canceled. */
/* SPDX-License-Identifier: Apache-2.0 */

/* libtandem calls its callbacks with its loop locked, on whichever thread drives the loop. That
 * thread must not wait for the GIL, because a thread with the GIL may wait for the loop. The
 * callbacks therefore only move a notice to a list. A thread of Python takes notices of results
 * from there with next_done(), which waits. Notices of cancellations have a list of their own and a
 * descriptor, so that the event loop of an actor polls it among its others. */
#include "binding.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* What Python is told of: a result that has arrived, or a call that was canceled. */
struct binding_notice {
    STAILQ_ENTRY(binding_notice) link; /* Entry in the list of results or of cancellations. */
    PyObject *token;                   /* What Python gets with the notice, owned. */
};

/* List head type of notices. */
STAILQ_HEAD(notices, binding_notice);

/* Guards the two lists. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Signaled when `arrived` is not empty any more. */
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
/* Results that have arrived and that Python has not taken, in order. */
static struct notices arrived = STAILQ_HEAD_INITIALIZER(arrived);
/* Cancellations that Python has not taken, in order. */
static struct notices canceled = STAILQ_HEAD_INITIALIZER(canceled);
/* Descriptor that is readable while `canceled` may not be empty; -1 until Python has asked for it.
 */
static int canceled_fd = -1;

struct binding_notice *binding_notice_create(PyObject *token)
{
    struct binding_notice *notice = calloc(1, sizeof(*notice));

    if (notice == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    notice->token = Py_NewRef(token);
    return notice;
}

void binding_notice_destroy(struct binding_notice *notice)
{
    if (notice != NULL) {
        Py_DECREF(notice->token);
        free(notice);
    }
}

void binding_notice_post_canceled(struct binding_notice *notice)
{
    static const uint64_t one = 1;

    (void)pthread_mutex_lock(&mutex);
    STAILQ_INSERT_TAIL(&canceled, notice, link);
    if (canceled_fd >= 0 && write(canceled_fd, &one, sizeof(one)) != (ssize_t)sizeof(one)) {
        /* The descriptor counts so many notices that it is readable already. */
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* Called once when the result is there, without the GIL. */
static void on_done(void *arg, tdm_ref *ref)
{
    (void)ref;
    (void)pthread_mutex_lock(&mutex);
    STAILQ_INSERT_TAIL(&arrived, (struct binding_notice *)arg, link);
    (void)pthread_cond_signal(&condition);
    (void)pthread_mutex_unlock(&mutex);
}

/* watch(ref, token) */
static PyObject *watch(PyObject *module, PyObject *args)
{
    PyObject *object;
    PyObject *token;
    struct binding_notice *notice;
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
    notice = binding_notice_create(token);
    if (notice == NULL) {
        return NULL;
    }
    status = tdm_ref_on_done(ref, on_done, notice);
    if (status != TDM_OK) {
        binding_notice_destroy(notice);
        return binding_raise(status);
    }
    Py_RETURN_NONE;
}

/* Removes the first notice of a list and returns it; NULL without one. The caller holds `mutex`. */
static struct binding_notice *notices_take(struct notices *notices)
{
    struct binding_notice *notice = STAILQ_FIRST(notices);

    if (notice != NULL) {
        STAILQ_REMOVE_HEAD(notices, link);
    }
    return notice;
}

/* Frees a notice and returns its token; None for NULL. */
static PyObject *notice_token(struct binding_notice *notice)
{
    PyObject *token;

    if (notice == NULL) {
        Py_RETURN_NONE;
    }
    token = notice->token;
    free(notice);
    return token;
}

/* Waits at most `timeout_ms` for an arrived result and takes it; NULL without one. Runs without the
 * GIL. */
static struct binding_notice *take_arrived(long timeout_ms)
{
    struct binding_notice *notice;
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += timeout_ms % 1000 * 1000000;
    until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&mutex);
    while (STAILQ_EMPTY(&arrived) && pthread_cond_timedwait(&condition, &mutex, &until) == 0) {
    }
    notice = notices_take(&arrived);
    (void)pthread_mutex_unlock(&mutex);
    return notice;
}

/* next_done(timeout_ms) */
static PyObject *next_done(PyObject *module, PyObject *argument)
{
    long timeout_ms = PyLong_AsLong(argument);
    struct binding_notice *notice;

    (void)module;
    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    BINDING_WITHOUT_GIL(notice = take_arrived(timeout_ms));
    return notice_token(notice);
}

/* canceled_descriptor() */
static PyObject *canceled_descriptor(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    (void)pthread_mutex_lock(&mutex);
    if (canceled_fd < 0) {
        canceled_fd = eventfd(STAILQ_EMPTY(&canceled) ? 0 : 1, EFD_CLOEXEC);
    }
    (void)pthread_mutex_unlock(&mutex);
    return canceled_fd < 0 ? PyErr_SetFromErrno(PyExc_OSError) : PyLong_FromLong(canceled_fd);
}

/* next_canceled() */
static PyObject *next_canceled(PyObject *module, PyObject *ignored)
{
    struct binding_notice *notice;

    (void)module;
    (void)ignored;
    (void)pthread_mutex_lock(&mutex);
    notice = notices_take(&canceled);
    (void)pthread_mutex_unlock(&mutex);
    return notice_token(notice);
}

static PyMethodDef functions[] = {
    {"watch", watch, METH_VARARGS,
     "watch(ref, token)\n--\n\nLet next_done() return token once the result of ref is there."},
    {"next_done", next_done, METH_O,
     "next_done(timeout_ms)\n--\n\nReturn the token of the next result that is there, or None."},
    {"canceled_descriptor", canceled_descriptor, METH_NOARGS,
     "canceled_descriptor()\n--\n\nReturn the eventfd that becomes readable when next_canceled() "
     "has "
     "something to return."},
    {"next_canceled", next_canceled, METH_NOARGS,
     "next_canceled()\n--\n\nReturn the token that Call.on_cancel() got for the next call that was "
     "canceled, or None."},
    {NULL, NULL, 0, NULL}};

bool binding_notify_init(PyObject *module)
{
    return PyModule_AddFunctions(module, functions) == 0;
}
