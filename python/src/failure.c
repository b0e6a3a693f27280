/* failure.c - failures of libtandem as Python exceptions. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "binding.h"

#include <string.h>

/* Function that Python has set: (status, text) -> exception; owned, NULL if absent. */
static PyObject *failure_factory;

PyObject *binding_raise(tdm_status status)
{
    const char *detail = tdm_error_detail();
    PyObject *exception;

    if (failure_factory == NULL) {
        PyErr_Format(PyExc_RuntimeError, "%s: %s", tdm_strerror(status), detail);
        return NULL;
    }
    /* The detail may have output of the user's program, in any encoding, and be cut anywhere. */
    exception =
        PyObject_CallFunction(failure_factory, "isN", (int)status, tdm_strerror(status),
                              PyUnicode_DecodeUTF8(detail, (Py_ssize_t)strlen(detail), "replace"));
    if (exception != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
        Py_DECREF(exception);
    }
    return NULL;
}

/* Returns TDM_E_ABORTED or TDM_E_TIMEOUT if the exception reports that a call of libtandem has
 * failed so, else TDM_E_METHOD. */
static tdm_status status_of_exception(PyObject *exception)
{
    PyObject *number =
        exception == NULL ? NULL : PyObject_GetAttrString(exception, "_tandem_status");
    long status = number == NULL ? TDM_E_METHOD : PyLong_AsLong(number);

    Py_XDECREF(number);
    PyErr_Clear();
    return status == TDM_E_ABORTED || status == TDM_E_TIMEOUT ? (tdm_status)status : TDM_E_METHOD;
}

tdm_status binding_failure_of_exception(bool keeps_status)
{
    PyObject *type = NULL;
    PyObject *value = NULL;
    PyObject *traceback = NULL;
    PyObject *text;
    const char *bytes;
    tdm_status status;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    text = PyObject_Str(value == NULL ? type : value);
    bytes = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, NULL);
    status = tdm_fail(keeps_status ? status_of_exception(value) : TDM_E_METHOD, "%s",
                      bytes == NULL ? "an exception without text" : bytes);
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    PyErr_Clear();
    return status;
}

/* Implements set_failure_factory(function). */
static PyObject *set_failure_factory(PyObject *module, PyObject *function)
{
    (void)module;
    Py_XDECREF(failure_factory);
    failure_factory = Py_NewRef(function);
    Py_RETURN_NONE;
}

PyMethodDef binding_failure_methods[] = {
    {"set_failure_factory", set_failure_factory, METH_O,
     "set_failure_factory(function)\n--\n\n"
     "Let function(status, status_text, detail) create the exception for each failure."},
    {NULL, NULL, 0, NULL}};
