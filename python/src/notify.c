/* notify.c - tells Python which results have arrived and which calls were canceled. */
/* SPDX-License-Identifier: Apache-2.0 */

/* libtandem calls its callbacks with its loop locked, on whichever thread drives the loop. That
 * thread must not wait for the GIL, because a thread with the GIL may wait for the loop. The
 * callbacks therefore only move a notice to the list of a Notices object, whose descriptor becomes
 * readable. An event loop of Python polls that descriptor among its others; a thread waits for it
 * in take().
 *
 * A notice keeps its Notices object alive until Python has taken it. An event loop may end before;
 * then its Notices object is closed, and what is posted there is freed by the next call that
 * creates a notice. */
#include "binding.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* What Python is told of: a result that has arrived, or a call that was canceled. */
struct binding_notice {
    STAILQ_ENTRY(binding_notice) link; /* Entry in the list of its Notices object. */
    PyObject *token;                   /* What Python gets with the notice, owned. */
    struct notices *notices;           /* Where the notice is posted, owned. */
};

/* List head type of notices. */
STAILQ_HEAD(notice_list, binding_notice);

/* Notices for one reader: an event loop, or a thread. */
struct notices {
    PyObject_HEAD                /* The object's header. */
        struct notice_list list; /* Notices that were posted and not taken, in order. */
    int fd;                      /* Eventfd, readable while the list is not empty; -1 if closed. */
};

static PyTypeObject *notices_type; /* The type Notices. */
/* Guards the lists of all Notices objects, and `discarded`. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Notices that were posted to a closed object, to be freed by a thread with the GIL. */
static struct notice_list discarded = STAILQ_HEAD_INITIALIZER(discarded);

/* ---- notices ---------------------------------------------------------------------------- */

/* Frees a notice and returns its token. */
static PyObject *notice_token(struct binding_notice *notice)
{
    PyObject *token = notice->token;

    Py_DECREF((PyObject *)notice->notices);
    free(notice);
    return token;
}

void binding_notice_destroy(struct binding_notice *notice)
{
    if (notice != NULL) {
        Py_DECREF(notice_token(notice));
    }
}

/* Removes the first notice of a list and returns it; NULL without one. */
static struct binding_notice *list_take(struct notice_list *list)
{
    struct binding_notice *notice;

    (void)pthread_mutex_lock(&mutex);
    notice = STAILQ_FIRST(list);
    if (notice != NULL) {
        STAILQ_REMOVE_HEAD(list, link);
    }
    (void)pthread_mutex_unlock(&mutex);
    return notice;
}

struct binding_notice *binding_notice_create(PyObject *token, PyObject *notices)
{
    struct binding_notice *notice;

    while ((notice = list_take(&discarded)) != NULL) {
        binding_notice_destroy(notice);
    }
    if (!PyObject_TypeCheck(notices, notices_type)) {
        PyErr_SetString(PyExc_TypeError, "a Notices object is needed");
        return NULL;
    }
    notice = calloc(1, sizeof(*notice));
    if (notice == NULL) {
        (void)PyErr_NoMemory();
        return NULL;
    }
    notice->token = Py_NewRef(token);
    notice->notices = (struct notices *)Py_NewRef(notices);
    return notice;
}

void binding_notice_post(struct binding_notice *notice)
{
    static const uint64_t one = 1;
    struct notices *notices = notice->notices;

    (void)pthread_mutex_lock(&mutex);
    if (notices->fd < 0) {
        STAILQ_INSERT_TAIL(&discarded, notice, link);
    } else {
        /* A write of 1 to an eventfd that counts 0 or 1 cannot fail. */
        if (STAILQ_EMPTY(&notices->list) && write(notices->fd, &one, sizeof(one)) < 0) {
            abort();
        }
        STAILQ_INSERT_TAIL(&notices->list, notice, link);
    }
    (void)pthread_mutex_unlock(&mutex);
}

/* ---- the type Notices ------------------------------------------------------------------- */

/* Notices() */
static PyObject *notices_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct notices *notices =
        (struct notices *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);

    (void)args;
    (void)kwargs;
    if (notices == NULL) {
        return NULL;
    }
    STAILQ_INIT(&notices->list);
    notices->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (notices->fd < 0) {
        Py_DECREF((PyObject *)notices);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)notices;
}

/* Notices.descriptor() */
static PyObject *notices_descriptor(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return PyLong_FromLong(((struct notices *)self)->fd);
}

/* Removes the first notice and returns it; NULL without one. The descriptor is not readable any
 * more if it was the last. */
static struct binding_notice *notices_take_first(struct notices *notices)
{
    struct binding_notice *notice;
    uint64_t count;

    (void)pthread_mutex_lock(&mutex);
    notice = STAILQ_FIRST(&notices->list);
    if (notice != NULL) {
        STAILQ_REMOVE_HEAD(&notices->list, link);
        /* The eventfd counts 1 while the list is not empty, so that this cannot fail. */
        if (STAILQ_EMPTY(&notices->list) && read(notices->fd, &count, sizeof(count)) < 0) {
            abort();
        }
    }
    (void)pthread_mutex_unlock(&mutex);
    return notice;
}

/* Notices.take(timeout_ms) */
static PyObject *notices_take(PyObject *self, PyObject *argument)
{
    struct notices *notices = (struct notices *)self;
    long timeout_ms = PyLong_AsLong(argument);
    struct binding_notice *notice;

    if (PyErr_Occurred() != NULL) {
        return NULL;
    }
    notice = notices_take_first(notices);
    if (notice == NULL && timeout_ms != 0 && notices->fd >= 0) {
        struct pollfd watched = {.fd = notices->fd, .events = POLLIN};

        BINDING_WITHOUT_GIL((void)poll(&watched, 1, (int)timeout_ms));
        notice = notices_take_first(notices);
    }
    if (notice == NULL) {
        Py_RETURN_NONE;
    }
    return notice_token(notice);
}

/* Notices.close() */
static PyObject *notices_close(PyObject *self, PyObject *ignored)
{
    struct notices *notices = (struct notices *)self;
    int fd;

    (void)ignored;
    (void)pthread_mutex_lock(&mutex);
    fd = notices->fd;
    notices->fd = -1;
    STAILQ_CONCAT(&discarded, &notices->list);
    (void)pthread_mutex_unlock(&mutex);
    if (fd >= 0) {
        (void)close(fd);
    }
    Py_RETURN_NONE;
}

/* Implements tp_dealloc of Notices. Its list is empty, because a notice keeps the object alive. */
static void notices_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    struct notices *notices = (struct notices *)object;

    if (notices->fd >= 0) {
        (void)close(notices->fd);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF((PyObject *)type);
}

static PyMethodDef notices_methods[] = {
    {"descriptor", notices_descriptor, METH_NOARGS,
     "descriptor()\n--\n\nReturn the descriptor that is readable while take() has something to "
     "return; -1 after close()."},
    {"take", notices_take, METH_O,
     "take(timeout_ms)\n--\n\nReturn the token of the next notice, or None if none comes in time. "
     "A "
     "negative time means without a limit."},
    {"close", notices_close, METH_NOARGS,
     "close()\n--\n\nClose the descriptor and drop the notices, because nobody reads them any "
     "more."},
    {NULL, NULL, 0, NULL}};
static PyType_Slot notices_slots[] = {
    {Py_tp_new, notices_new},
    {Py_tp_dealloc, notices_dealloc},
    {Py_tp_methods, notices_methods},
    {Py_tp_doc, "Notices of results and cancellations for one event loop or thread."},
    {0, NULL}};
static PyType_Spec notices_spec = {"tandem._tandem.Notices", sizeof(struct notices), 0,
                                   Py_TPFLAGS_DEFAULT, notices_slots};

/* ---- results ---------------------------------------------------------------------------- */

/* Called once when the result is there, without the GIL. */
static void on_done(void *arg, tdm_ref *ref)
{
    (void)ref;
    binding_notice_post(arg);
}

/* Implements watch(ref, token, notices). */
static PyObject *watch(PyObject *module, PyObject *args)
{
    PyObject *object;
    PyObject *token;
    PyObject *notices;
    struct binding_notice *notice;
    tdm_ref *ref;
    tdm_status status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OOO", &object, &token, &notices)) {
        return NULL;
    }
    ref = binding_object_handle(object);
    notice = ref == NULL ? NULL : binding_notice_create(token, notices);
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

static PyMethodDef functions[] = {
    {"watch", watch, METH_VARARGS,
     "watch(ref, token, notices)\n--\n\nPost token to the Notices object once the result of ref is "
     "there."},
    {NULL, NULL, 0, NULL}};

bool binding_notify_init(PyObject *module)
{
    notices_type = (PyTypeObject *)PyType_FromSpec(&notices_spec);
    return notices_type != NULL && PyModule_AddFunctions(module, functions) == 0 &&
           PyModule_AddObjectRef(module, "Notices", (PyObject *)notices_type) == 0;
}
