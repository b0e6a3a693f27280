/* error.h - status codes, and the detail of the last failure. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_ERROR_H
#define TANDEM_ERROR_H

#include <tandem/export.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One line for each code: the enum, the names and the texts come from here.  The values travel
 * between processes and never change; a retired one stays reserved.  They are grouped by what
 * has failed. */
#define TDM_STATUS_MAP(X)                                                                          \
    X(TDM_OK, 0, "success")                                                                        \
    /* -1 … -39: the call */                                                                     \
    X(TDM_E_NOMEM, -1, "out of memory")                                                            \
    X(TDM_E_INVAL, -2, "invalid argument")                                                         \
    X(TDM_E_STATE, -3, "not allowed in this state")                                                \
    X(TDM_E_AGAIN, -4, "not possible now, retry later")                                            \
    X(TDM_E_TIMEOUT, -5, "deadline passed")                                                        \
    X(TDM_E_CANCELED, -6, "canceled")                                                              \
    X(TDM_E_NOT_FOUND, -7, "not found")                                                            \
    X(TDM_E_EXISTS, -8, "exists already")                                                          \
    X(TDM_E_IO, -9, "system call failed")                                                          \
    X(TDM_E_PROTOCOL, -10, "malformed bytes from a peer or a file")                                \
    X(TDM_E_TYPE, -11, "a value has another type or shape")                                        \
    X(TDM_E_LIMIT, -12, "over a limit")                                                            \
    X(TDM_E_UNSUPPORTED, -13, "not supported")                                                     \
    X(TDM_E_METHOD, -14, "the method failed")                                                      \
    X(TDM_E_CONFLICT, -15, "another process changed it first")                                     \
    X(TDM_E_AUTH, -16, "the cluster's token is missing or wrong")                                  \
    X(TDM_E_CLOSED, -17, "the connection is closed")                                               \
    X(TDM_E_END, -18, "nothing more comes")                                                        \
    /* -40 … -59: the actor */                                                                   \
    X(TDM_E_ACTOR_DIED, -40, "the actor died")                                                     \
    X(TDM_E_OWNER_DIED, -41, "the owner of the value died")                                        \
    X(TDM_E_ACTOR_RESTARTING, -42, "the actor died and is being restarted")                        \
    X(TDM_E_VALUE_LOST, -43, "no process holds the value any more")                                \
    X(TDM_E_ACTOR_UNAVAILABLE, -44, "the actor's node does not answer")                            \
    /* -60 … -79: the node or the cluster */                                                     \
    X(TDM_E_NODE_LOST, -60, "the node is lost")                                                    \
    X(TDM_E_STORE, -61, "the cluster's store cannot be reached")                                   \
    X(TDM_E_NO_RESOURCES, -62, "no node can ever hold this")                                       \
    /* -80 … -99: the device or the job */                                                       \
    X(TDM_E_DEVICE, -80, "the device failed")                                                      \
    X(TDM_E_DEVICE_FULL, -81, "the device's memory is full")                                       \
    X(TDM_E_CHECKSUM, -82, "checksums differ")                                                     \
    X(TDM_E_ABORTED, -83, "aborted by a peer or by decision")                                      \
    X(TDM_E_BUDGET, -84, "the job does not fit")

typedef enum tdm_status {
#define X(name, value, text) name = (value),
    TDM_STATUS_MAP(X)
#undef X
} tdm_status;

/* Returns the static text of a status code; never NULL.  Any thread may call it. */
TDM_API const char *tdm_strerror(tdm_status status);

/* Returns what exactly failed when a function of Tandem last failed on this thread: the object,
 * the numbers on both sides, and what to do where that is known.  If another process decided
 * about the failure, the text is that process's.  It is valid until the next failure on this
 * thread; "" if there was none. */
TDM_API const char *tdm_error_detail(void);

/* Records a detail like printf's, cut at 3,071 bytes, and returns `status`.  Methods of actors
 * and functions of job libraries so report a failure in one statement: return
 * tdm_fail(TDM_E_METHOD, "prompt %d is longer than %d tokens", i, max); */
__attribute__((format(printf, 2, 3))) TDM_API tdm_status tdm_fail(tdm_status status,
                                                                  const char *format, ...);
/* Calls the function tdm_fail() and yields `status`.  So compilers and analyzers see that the
 * function returns the status that was passed. */
#define tdm_fail(status, ...) (tdm_fail((status), __VA_ARGS__), (status))

/* Checks a status: does nothing if `status` is TDM_OK, otherwise prints "program: what: text:
 * detail" to stderr and exits with 1. */
TDM_API void tdm_check(tdm_status status, const char *what);

/* Returns from the calling function with the status if `expression` fails. */
#define TDM_TRY(expression)                                                                        \
    do {                                                                                           \
        tdm_status tdm_try_status_ = (expression);                                                 \
        if (tdm_try_status_ != TDM_OK) {                                                           \
            return tdm_try_status_;                                                                \
        }                                                                                          \
    } while (0)

/* Ends the program and prints the reason if `expression` fails. */
#define TDM_CHECK(expression) tdm_check((expression), #expression)

#ifdef __cplusplus
}
#endif

#endif
