/* actor.h - classes, actors, calls, and references to their results. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TANDEM_ACTOR_H
#define TANDEM_ACTOR_H

#include <stddef.h>
#include <stdint.h>
#include <tandem/placement.h>
#include <tandem/runtime.h>
#include <tandem/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- classes: what an actor can do ------------------------------------------------------ */

/* One call that has arrived at an actor.  The call is valid until its method returns, or, if the
 * method keeps it, until it is replied to. */
typedef struct tdm_call tdm_call;

/* A method reads its arguments, replies at most once, and returns.  A method that returns
 * TDM_OK without a reply has replied nil.  Any other status reaches the caller as it is, with
 * the detail that tdm_fail() recorded.
 *
 * The methods of an actor run one at a time, on one thread, in the order in which each caller
 * made its calls.  If the actor has a max_concurrency over 1, or its class has concurrency
 * groups, that many methods run at once.  They then run on threads of their own and in any
 * order, and share `self` as threads do.  A method of an asynchronous class may return before
 * it replies; see tdm_call_keep(). */
typedef tdm_status tdm_method(tdm_call *call, void *self);

/* One method of a class. */
struct tdm_method_entry {
    /* Name of the method, 1 to 63 bytes. "*" stands for every name that the class does not list;
     * tdm_call_method() returns the name that was called. */
    const char *name;
    tdm_method *run; /* The function that a call runs. */
    /* Name of the class's concurrency group in which the method runs; NULL for the default
     * group. */
    const char *concurrency_group;
};

/* A concurrency group: methods that share a queue and a number of threads. Methods of different
 * groups do not wait for each other. */
struct tdm_concurrency_group {
    /* Name of the group. "default" is reserved for the group of methods that have none. */
    const char *name;
    uint32_t max_concurrency; /* Largest number of the group's methods that run at once. */
};

enum {
    TDM_METHODS_MAX = 32, /* Largest number of methods of a class. */
    /* Largest number of concurrency groups of a class, without the default group. */
    TDM_CONCURRENCY_GROUPS_MAX = 8
};

/* A class of actors. */
struct tdm_actor_class {
    /* 1 to 63 bytes; tdm_actor_create() asks for it. "*" stands for every name that the program
     * and its libraries do not register; tdm_runtime_describe() gives the name that was asked for.
     */
    const char *name;
    size_t state_bytes; /* Size of the zeroed state that `self` points at. */
    /* Receives the arguments of tdm_actor_create().  If it fails, the actor dies and its
     * callers read the reason.  NULL: there is nothing to construct. */
    tdm_status (*construct)(tdm_call *call, void *self);
    /* Runs when the actor ends gracefully, not when it is killed.  May be NULL. */
    void (*destruct)(void *self);
    /* Methods of the class.  The list ends at the first entry without a name. */
    struct tdm_method_entry methods[TDM_METHODS_MAX];
    /* Concurrency groups besides the default one.  The list ends at the first entry without a
     * name. */
    struct tdm_concurrency_group concurrency_groups[TDM_CONCURRENCY_GROUPS_MAX];
    /* 1: methods run one at a time on one thread and may keep their calls.  Up to
     * max_concurrency calls (default 1,000) are then in flight at once. */
    int asynchronous;
};

/* Registers a class in every process that runs this program or loads this library:
 *     TDM_ACTOR_CLASS(counter, .state_bytes = sizeof(struct counter),
 *                     .methods = {{"add", counter_add}});
 * At file scope, and once for each name. */
#define TDM_ACTOR_CLASS(identifier, ...)                                                           \
    static const struct tdm_actor_class tdm_class_##identifier = {.name = #identifier,             \
                                                                  __VA_ARGS__};                    \
    __attribute__((constructor)) static void tdm_class_register_##identifier(void)                 \
    {                                                                                              \
        tdm_class_register(&tdm_class_##identifier);                                               \
    }                                                                                              \
    struct tdm_actor_class /* A declaration, so that a semicolon must follow. */

/* Registers a class.  The table is borrowed until the process ends.  Call it before
 * tdm_runtime_start(), or from a constructor function.  A second class of the same name ends
 * the program, and so do two concurrency groups of one name. */
TDM_API void tdm_class_register(const struct tdm_actor_class *actor_class);

/* Returns the name of the method that was called; "" in a constructor.  Any thread may call it
 * while the call is valid. */
TDM_API const char *tdm_call_method(const tdm_call *call);
/* Gives the arguments to the method or constructor, which destroys the document when it does not
 * need them any more.  What it has borrowed from the arguments is then valid as long as the
 * document.  TDM_E_STATE: the arguments were taken before. */
TDM_API TDM_MUST_CHECK tdm_status tdm_call_take_arguments(tdm_call *call,
                                                          tdm_document **document_out);
/* Reads the arguments of a call by format (value.h).  TDM_E_TYPE says what was wanted and what
 * came. Borrowed texts and arrays are valid as long as the call. */
TDM_API tdm_status tdm_call_unpack(tdm_call *call, const char *format, ...);
/* Returns the arguments of a call as an array value, borrowed as long as the call is valid. */
TDM_API const tdm_value *tdm_call_arguments(tdm_call *call);
/* Replies to a call with values by format (value.h).  Blocks only while a large value waits for
 * room in the node's store. TDM_E_STATE: the call was replied to already. */
TDM_API tdm_status tdm_call_reply(tdm_call *call, const char *format, ...);
/* Replies to a call with one packed array, for example the bytes of a writer after tdm_pack(). */
TDM_API tdm_status tdm_call_reply_packed(tdm_call *call, struct tdm_bytes packed_array);
/* Returns the milliseconds until the caller's deadline; TDM_FOREVER if it has none. */
TDM_API int64_t tdm_call_remaining_ms(tdm_call *call);
/* Returns 1 once the caller has canceled the call, or while the caller's connection is closed, else
 * 0.  The caller may connect again and send the call again.  Long methods ask now and then. */
TDM_API int tdm_call_is_canceled(tdm_call *call);

/* Callback of tdm_call_on_cancel(): runs at most once, when the caller has canceled the call.  It
 * runs on any thread of the process, also while the method runs, and with Tandem locked: other
 * threads that call Tandem wait until fn has returned.  So fn must not wait for anything.  It may
 * reply to a kept call, which is invalid from then on. */
typedef void tdm_cancel_fn(void *arg, tdm_call *call);
/* Installs the callback fn(arg, call) in place of an earlier one; fn NULL removes the callback.  If
 * the call has been canceled already, fn runs before this function returns.  The callback does not
 * run after it was removed or after the reply; `arg` is borrowed until then, so a method that
 * returns without a reply removes the callback first.  Never blocks for long; any thread may call
 * it while the call is valid.  TDM_E_STATE: the call was replied to already, or is that of a
 * constructor. */
TDM_API tdm_status tdm_call_on_cancel(tdm_call *call, tdm_cancel_fn *fn, void *arg);

/* Keeps the call beyond the end of its method.  Only methods of an asynchronous class may do so.
 * Later any thread replies, with tdm_call_reply() or tdm_call_fail(); the call and its arguments
 * are invalid from then on.  TDM_E_STATE: the class is not asynchronous, or the call was replied to
 * already. */
TDM_API tdm_status tdm_call_keep(tdm_call *call);
/* Replies to a kept call with a failure, and a detail like printf's. */
__attribute__((format(printf, 3, 4))) TDM_API void tdm_call_fail(tdm_call *call, tdm_status status,
                                                                 const char *format, ...);

/* Largest number of bytes of the packed values that a failure carries: 16 MiB. */
enum { TDM_FAILURE_BYTES_MAX = 16 << 20 };
/* Replies to a call with a failure that carries values besides its text, given by format (value.h),
 * for example an error of the user's own kind.  The caller reads them with tdm_ref_failure() or
 * tdm_stream_failure().  Any method may fail so, and then returns TDM_OK; a kept call may fail so
 * later.  `status` is the failure, TDM_E_METHOD if it is TDM_OK; `text` is cut at 3,071 bytes.
 * Never blocks.  TDM_E_STATE: the call was replied to already, or belongs to a constructor.
 * TDM_E_LIMIT: the values pack to more than TDM_FAILURE_BYTES_MAX bytes. */
TDM_API tdm_status tdm_call_fail_with(tdm_call *call, tdm_status status, const char *text,
                                      const char *format, ...);

/* Sends one item of a stream to a caller that used tdm_actor_stream().  The end of the method
 * ends the stream.  Blocks while TDM_STREAM_ITEMS_AHEAD items wait for the caller, or another
 * number of them (tdm_call_set_items_ahead()).
 * TDM_E_CANCELED: the caller does not take items any more.  TDM_E_STATE: the caller did not ask
 * for a stream. */
TDM_API tdm_status tdm_call_yield(tdm_call *call, const char *format, ...);
/* Largest number of items of a stream that wait for the reader, unless the method sets another. */
enum { TDM_STREAM_ITEMS_AHEAD = 16 };
/* Number of items of a stream without a limit: the method never waits for its reader. */
#define TDM_STREAM_ITEMS_UNLIMITED UINT32_MAX
/* Sets how many items of the call's stream may wait for the reader: 1 or more, or
 * TDM_STREAM_ITEMS_UNLIMITED.  Items that wait are in the memory of the reader's process.  Never
 * blocks.  TDM_E_INVAL: 0 items.  TDM_E_STATE: the caller did not ask for a stream, or it has
 * ended. */
TDM_API tdm_status tdm_call_set_items_ahead(tdm_call *call, uint32_t items_ahead);

/* ---- actors ----------------------------------------------------------------------------- */

/* A handle to an actor.  It belongs to the process that has it, which destroys it; any thread
 * may use it. */
typedef struct tdm_actor tdm_actor;

/* An amount of a resource that an actor needs. */
struct tdm_resource {
    const char *name; /* Name of the resource: "CPU", "GPU", or a name that the user defines. */
    double amount;    /* Amount of the resource, counted in steps of 0.0001. */
};

enum {
    TDM_ACTOR_METADATA_BYTES_MAX = 256 << 10, /* Largest size of an actor's metadata. */
    TDM_ACTOR_RESOURCES_MAX = 16, /* Largest number of entries in tdm_actor_options.resources. */
    /* Largest number of entries in tdm_actor_options.environment. */
    TDM_ACTOR_ENVIRONMENT_MAX = 32,
    /* Largest number of labels of a node, and of entries in tdm_actor_options.labels. */
    TDM_LABELS_MAX = 8
};

/* Where an actor outside placement groups is placed. */
enum tdm_scheduling {
    /* The actor is placed on the creator's node if that has the resources free, else on the fullest
     * node that has. */
    TDM_SCHEDULE_DEFAULT,
    /* The actor is placed on the node with the fewest actors among those that have the resources
     * free. */
    TDM_SCHEDULE_SPREAD,
    /* The actor is placed on the node `node_id`; the creation fails if that node does not have the
     * resources. */
    TDM_SCHEDULE_NODE,
    /* The actor is placed on the node `node_id` while it lives and has the resources free, else as
     * with TDM_SCHEDULE_DEFAULT. */
    TDM_SCHEDULE_NODE_SOFT
};

/* Options of tdm_actor_create().  Zero in a field means the default named beside the field.  Texts
 * are copied. */
struct tdm_actor_options {
    /* Number of CPUs that the actor holds while it lives.  Default: 0, as in Ray. */
    double num_cpus;
    /* GPUs that the actor holds: a fraction of one GPU, or a whole number.  Default: 0. */
    double num_gpus;
    /* Other resources that the actor holds.  The list ends at the first entry without a name. */
    struct tdm_resource resources[TDM_ACTOR_RESOURCES_MAX];
    /* Name of the actor, unique in its name space: at most TDM_NAME_BYTES_MAX bytes of UTF-8
     * without control characters.  Default: no name. */
    const char *name;
    /* Placement group whose resources the actor takes.  Default: no group. */
    const tdm_placement_group *group;
    uint32_t bundle; /* Index of the bundle in the placement group `group`, or TDM_BUNDLE_ANY. */
    /* 1: actors that this actor creates are in any bundle of its group, and so are theirs.
     * Actors that ask for a group, a scheduling or labels of their own are not. */
    int capture_children;
    const char *library; /* Shared library with the class.  Default: this program. */
    /* Path of the program that becomes the actor in tdm_runtime_start().  Default: this program,
     * or with a library a program of Tandem's. */
    const char *program;
    /* Arguments of the program besides its path; the list ends with NULL.  Default: none. */
    const char *const *program_arguments;
    /* "NAME=value", set before the actor's program starts.  OMP_NUM_THREADS is num_cpus rounded
     * down, at least 1, unless it is set here or on the node. */
    const char *environment[TDM_ACTOR_ENVIRONMENT_MAX];
    /* More variables like those of `environment`, of any number; the list ends with NULL.
     * Default: none. */
    const char *const *more_environment;
    /* Working directory of the actor's process.  Default: the creator's, or the node's own
     * directory on a node that does not have the creator's. */
    const char *working_directory;
    /* 1: the actor's environment variable CUDA_VISIBLE_DEVICES is left as it is. */
    int keep_visible_devices;
    int detached; /* 1: the actor outlives its creator and its handles, until it is killed. */
    const char *name_space; /* Name space to which `name` belongs.  Default: the runtime's. */
    /* 1: if the name is taken, the handle is to the actor that has it, whatever its class and
     * options are. */
    int get_if_exists;
    /* Bytes of host memory that the actor holds, only counted, as the resource "memory". */
    uint64_t memory_bytes;
    /* How often the actor is restarted after its process has died; -1: without limit.  Default:
     * 0.  It is not restarted after tdm_actor_kill(), after it has exited itself, or after its
     * creator's end. */
    int32_t max_restarts;
    /* How often a call in flight is sent again after a restart; -1: without limit.  Default: 0.
     * The method then runs at least once. */
    int32_t max_task_retries;
    /* Number of methods of the default concurrency group that run at once.  Default: 1. */
    uint32_t max_concurrency;
    int allow_out_of_order; /* 1: a call that waits for an argument does not delay later calls. */
    /* Largest number of calls of this process to the actor without a reply; more fail at once with
     * TDM_E_AGAIN. Default: no limit. */
    uint32_t max_pending_calls;
    enum tdm_scheduling scheduling; /* Where the actor is placed if it has no placement group. */
    const char *node_id; /* ID of the node for TDM_SCHEDULE_NODE and TDM_SCHEDULE_NODE_SOFT. */
    /* Conditions on the node's labels, all of which must hold: "NAME=value" or "NAME!=value".
     * The value may be a list, in(a,b), or exists().  "!=" also holds on nodes without the
     * label. */
    const char *labels[TDM_LABELS_MAX];
    /* Bytes that every process with a handle to the actor can read with tdm_actor_metadata(), such
     * as a description of its methods: at most TDM_ACTOR_METADATA_BYTES_MAX.  Copied.  Default:
     * none. */
    struct tdm_bytes metadata;
};

/* Creates an actor of class `class_name`.  Its constructor gets the arguments that follow by
 * format, which may have the letters r, R and h.  Returns at once with a handle, which the
 * caller destroys. What fails later (an unknown class, a constructor, an argument, no room) is
 * read by the first call. An actor whose argument r is not there yet has neither a place nor a
 * name, and ends with its creator even if it is detached.  `options` may be NULL.  On failure
 * `*actor_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_create(tdm_runtime *runtime, const char *class_name,
                                                   const struct tdm_actor_options *options,
                                                   tdm_actor **actor_out, const char *format, ...);
/* Does the same as tdm_actor_create() with arguments that are one packed array. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_create_packed(tdm_runtime *runtime,
                                                          const char *class_name,
                                                          const struct tdm_actor_options *options,
                                                          struct tdm_bytes arguments,
                                                          tdm_actor **actor_out);

/* Blocks until the actor is constructed, at most `timeout_ms` milliseconds.  TDM_E_TIMEOUT says
 * what it waits for.  Another status says why it cannot be constructed. */
TDM_API tdm_status tdm_actor_wait_ready(tdm_actor *actor, int64_t timeout_ms);

/* Finds the actor of that name in the runtime's name space.  That may be one whose constructor
 * still runs, or for which a process of this node has called tdm_actor_create() before and which
 * waits for a place: then the handle's calls wait as the creator's do (tdm_actor_wait_ready()), and
 * tdm_actor_describe() knows neither process nor node yet.  Blocks until the cluster's store and
 * the actor's node have replied, at most `timeout_ms` milliseconds, but not for the constructor;
 * only an actor that is about to end is waited for, until its name is free.  The caller destroys
 * the handle, which does not keep the actor alive.  TDM_E_NOT_FOUND: no actor has the name.
 * TDM_E_TIMEOUT: no reply came in time.  On failure `*actor_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_find(tdm_runtime *runtime, const char *name,
                                                 int64_t timeout_ms, tdm_actor **actor_out);
/* Does the same as tdm_actor_find() in the name space `name_space`. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_find_in(tdm_runtime *runtime, const char *name_space,
                                                    const char *name, int64_t timeout_ms,
                                                    tdm_actor **actor_out);

/* Gives the actor that calls this function a handle to itself, which the caller destroys and which
 * does not keep the actor alive.  Never blocks.  TDM_E_STATE: this process is a driver.  On failure
 * `*actor_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_current(tdm_runtime *runtime, tdm_actor **actor_out);

/* Kills the actor (SIGKILL).  Calls in flight fail with TDM_E_ACTOR_DIED, and it is not
 * restarted. Blocks until its process is gone, at most `timeout_ms` milliseconds. */
TDM_API tdm_status tdm_actor_kill(tdm_actor *actor, int64_t timeout_ms);
/* Kills the actor's process only, as a crash would.  The actor is restarted if it has restarts
 * left, and max_task_retries decides about its calls; otherwise it has died.  Blocks until the
 * signal is sent, at most `timeout_ms` milliseconds. */
TDM_API tdm_status tdm_actor_restart(tdm_actor *actor, int64_t timeout_ms);

/* Destroys the handle.  An actor that is not detached ends gracefully, after the calls already
 * made, when the last handle in the cluster is destroyed or when its creator leaves.  Handles
 * from tdm_actor_find() do not count.  An actor that still waits for a place is never
 * constructed then.  Never blocks.  May be called after tdm_runtime_stop().  NULL is allowed.
 */
TDM_API void tdm_actor_destroy(tdm_actor *actor);

/* What this process knows about an actor. */
struct tdm_actor_info {
    char id[33];                       /* ID of the actor: 32 hexadecimal digits. */
    char name[TDM_NAME_BYTES_MAX + 1]; /* Name of the actor; "" if it has none. */
    char class_name[64];               /* Name of the actor's class. */
    char node_id[33];                  /* ID of the actor's node: 32 hexadecimal digits. */
    int64_t pid;              /* Process ID of the actor on its node; 0 until it is known. */
    uint32_t gpus_count;      /* Number of GPUs of the actor. */
    uint32_t gpu_indices[16]; /* Indices of the actor's GPUs on its node, ascending. */
};
/* Writes what this process knows of the actor.  The information is complete once
 * tdm_actor_wait_ready() has returned TDM_OK.  Never blocks. */
TDM_API void tdm_actor_describe(tdm_actor *actor, struct tdm_actor_info *info_out);
/* Returns the metadata that the actor was created with, borrowed until the handle is destroyed or
 * the runtime stops.  It is known at once to the creator and to who has found the actor by its
 * name, and to others once tdm_actor_wait_ready() has returned TDM_OK; until then, and for an actor
 * without metadata, the result is {NULL, 0}.  Never blocks. */
TDM_API struct tdm_bytes tdm_actor_metadata(tdm_actor *actor);

/* ---- calls ------------------------------------------------------------------------------ */

/* A reference to the result of a call or of tdm_put(), present or to come. */
typedef struct tdm_ref tdm_ref;

/* Calls the method `method` of the actor.  Waits neither for the actor or another process, nor for
 * a value among the arguments.  It returns when it has copied the arguments, which takes time in
 * proportion to their bytes (the letter r below says what is not copied), and at most 5 s more if
 * the node's memory for large values is full.  Calls from one process to one actor run in the order
 * in which they were made.  A process may make any number of calls: it sends at most 100,000 to an
 * actor before their replies arrive, and keeps the others in its own memory until then.  The caller
 * releases `*ref_out`.  `ref_out` may be NULL if the result does not matter; failures are lost
 * then.  The arguments are given by the letters of value.h and
 *
 * - r (tdm_ref *): the referenced value is the argument.  The call is sent when the value is
 * there, and later calls to the same actor stay behind it.  A large value (over 100 KiB) that this
 * process has put is not copied for an actor on the same node.  One that another process has made
 * is copied once, into memory of this process, by the first call that passes it on.  Copied by each
 * call are values with references or handles inside, large values after the eighth of a call, and
 * all values for an actor on another node.  If the value is not there yet, the runtime's thread
 * makes the copy later.
 * - R (tdm_ref *): the reference itself is the argument, also inside ( ) and { }.
 * - h (tdm_actor *): the handle is the argument, also inside ( ) and { }.
 *
 * TDM_E_AGAIN: too many calls are pending (max_pending_calls).  TDM_E_ACTOR_DIED: the actor is
 * known to be dead.  On failure `*ref_out` is NULL. */
TDM_API tdm_status tdm_actor_call(tdm_actor *actor, const char *method, tdm_ref **ref_out,
                                  const char *format, ...);
/* Does the same as tdm_actor_call() with arguments that are one packed array. */
TDM_API tdm_status tdm_actor_call_packed(tdm_actor *actor, const char *method,
                                         struct tdm_bytes arguments, tdm_ref **ref_out);

/* Moves the calls that this process has made to the actor `from`, which has no place yet, to the
 * end of those to the actor `to`: their results come from `to`.  For pools of equal actors, in
 * which one becomes idle while another one still waits for resources.  Never blocks.  TDM_E_STATE:
 * `from` is being started or was found by its name; nothing is moved. */
TDM_API tdm_status tdm_actor_move_calls(tdm_actor *from, tdm_actor *to);

/* Largest number of entries in tdm_call_options.retry_failures. */
enum { TDM_RETRY_FAILURES_MAX = 4 };
/* Entry of tdm_call_options.retry_failures that stands for all failures except TDM_E_CANCELED,
 * TDM_E_TIMEOUT, TDM_E_ACTOR_DIED and TDM_E_NOT_FOUND, which must be listed. */
#define TDM_ANY_FAILURE ((tdm_status)1)

/* Largest number of results of one call. */
enum { TDM_RESULTS_MAX = 4096 };

/* Zero in a field means the default named beside it. */
struct tdm_call_options {
    /* Milliseconds after which the result of the call is TDM_E_TIMEOUT.  Default: no deadline. */
    int64_t timeout_ms;
    /* How often the call is sent again after a restart of the actor; -1: without limit, -2: never.
     * Default: the actor's max_task_retries. */
    int32_t max_retries;
    /* Failures that the actor replies with and for which the call is made again, while retries
     * are left: {TDM_E_AGAIN, TDM_E_IO}, or TDM_ANY_FAILURE.  Before each retry there is a
     * pause, of 1 ms first and then twice as long each time, at most 1 s, in which other calls
     * are sent.  If the deadline would pass in the pause, the failure is the result.  Not for
     * streams.  Default: none. */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX];
    /* Concurrency group of the class, or "default", in which the method runs.  Default: the
     * method's own group. */
    const char *concurrency_group;
    /* Number of results of the call, at most TDM_RESULTS_MAX.  If it is more than 1, the method
     * replies with that many values, and refs_out[i] is the reference to value i.  Default: 1. */
    uint32_t results_count;
};
/* Does the same as tdm_actor_call() with options, which may be NULL.  `refs_out` has room for
 * results_count references, or is NULL. */
TDM_API tdm_status tdm_actor_call_with(tdm_actor *actor, const char *method,
                                       const struct tdm_call_options *options, tdm_ref **refs_out,
                                       const char *format, ...);
/* Makes a call with options and with arguments that are one packed array. */
TDM_API tdm_status tdm_actor_call_packed_with(tdm_actor *actor, const char *method,
                                              const struct tdm_call_options *options,
                                              struct tdm_bytes arguments, tdm_ref **refs_out);

/* Options of tdm_cancel(), which may be added up. */
enum tdm_cancel_how {
    TDM_CANCEL_FORCE = 1, /* Kills the process of the actor that runs the call. */
    /* Also cancels the calls without a result that the method has made on its own thread, and
       theirs. */
    TDM_CANCEL_CHILDREN = 2
};
/* Cancels a call: its result becomes TDM_E_CANCELED, unless it is there already.  A call that
 * has not begun never runs.  A method that runs can ask tdm_call_is_canceled(); with
 * TDM_CANCEL_FORCE its actor's process is killed, and restarted if the actor may be.  Never
 * blocks.  TDM_E_STATE: the reference is not the result of a call of this process. */
TDM_API tdm_status tdm_cancel(tdm_ref *ref, int how);

/* ---- streams ---------------------------------------------------------------------------- */

/* A stream: the items that a method yields, one reference each, in order.  One thread may use it at
 * a time. */
typedef struct tdm_stream tdm_stream;
/* Calls a method that yields items by tdm_call_yield().  A method that only replies gives a stream
 * without items.  Never blocks.  Arguments and failures are those of
 * tdm_actor_call_with(); `options` may be NULL.  The caller destroys the stream.  On failure
 * `*stream_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_stream(tdm_actor *actor, const char *method,
                                                   const struct tdm_call_options *options,
                                                   tdm_stream **stream_out, const char *format,
                                                   ...);
/* Waits at most `timeout_ms` milliseconds for the next item of a stream, whose reference the caller
 * releases. TDM_E_TIMEOUT: the item is not there yet.  TDM_E_END: there are no more items.
 * Otherwise the method's failure, after the items that came before it.  On failure `*ref_out` is
 * NULL. */
TDM_API tdm_status tdm_stream_next(tdm_stream *stream, int64_t timeout_ms, tdm_ref **ref_out);
/* Callback of tdm_stream_on_item(): runs once when tdm_stream_next() would not wait, because an
 * item or the end of the stream is there; or with NULL when the stream is destroyed before.  It
 * runs where the callbacks of tdm_ref_on_done() do. */
typedef void tdm_item_fn(void *arg, tdm_stream *stream);
/* Installs the callback fn(arg, stream) for the next item or the end of the stream; if one of them
 * is there already, fn runs before this function returns.  For a later item it is installed again,
 * also from fn itself.  Never blocks.  TDM_E_STATE: a callback is installed that has not run. */
TDM_API tdm_status tdm_stream_on_item(tdm_stream *stream, tdm_item_fn *fn, void *arg);
/* Returns the values that the failure at the end of a stream carries (tdm_call_fail_with()), as an
 * array value, borrowed from the stream; NULL if the stream has not ended, or its end carries none.
 * Never blocks. */
TDM_API const tdm_value *tdm_stream_failure(tdm_stream *stream);
/* Gives a reference that is done when the method of the stream has ended, whether or not its items
 * were taken: its value is an empty array, or it fails as the call does.  The caller releases it.
 * Never blocks.  A method that waits for its reader does not end; see tdm_call_set_items_ahead().
 * On failure `*ref_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_stream_completed(tdm_stream *stream, tdm_ref **ref_out);
/* Cancels the items that have not come yet and frees the stream.  NULL is allowed. */
TDM_API void tdm_stream_destroy(tdm_stream *stream);

/* ---- references ------------------------------------------------------------------------- */

/* A reference belongs to the process that has it; any thread may use it.  The process that made
 * it, by a call or a put, owns the value.  Other processes borrow the value: they got the
 * reference as an argument or in a result.  The value lives until the last borrower has
 * released its reference.  When the owner's process has ended, the value is lost
 * (TDM_E_OWNER_DIED), unless it is here already.  Values over 100 KiB lie in shared memory,
 * once on each node, read-only; smaller ones travel inside messages. */

/* Waits at most `timeout_ms` milliseconds for the result behind a reference and reads it by format
 * (value.h).  Returns the call's own status if it failed, TDM_E_TIMEOUT if the result is not there
 * yet, TDM_E_TYPE if it has another shape. Texts, bytes and arrays are borrowed from the reference;
 * R and h give references and handles that the caller frees.  The format "n" also reads the result
 * of a method that did not reply.  Does not release `ref`. */
TDM_API tdm_status tdm_get(tdm_ref *ref, int64_t timeout_ms, const char *format, ...);
/* Waits for a result as tdm_get() does, and gives it as an array value, borrowed from the
 * reference.  The result of a method that did not reply is an empty array.  On failure `*value_out`
 * is NULL. */
TDM_API tdm_status tdm_get_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out);
/* Returns the values that the failure of a result carries (tdm_call_fail_with()), as an array
 * value, borrowed from the reference; NULL if the result is not there yet, is no failure, or
 * carries none. All references to the result have them, in every process, and so has the result of
 * a call whose argument r failed so.  Never blocks. */
TDM_API const tdm_value *tdm_ref_failure(tdm_ref *ref);
/* Waits for all of `refs_count` results, at most `timeout_ms` milliseconds.  The first failure
 * is returned at once, without waiting for the others.  `values_out` has room for refs_count
 * values, which are valid on TDM_OK only.  Both arrays may be NULL if refs_count is 0. */
TDM_API tdm_status tdm_get_many(tdm_ref *const *refs, uint32_t refs_count, int64_t timeout_ms,
                                const tdm_value **values_out);
/* Gives the reference that a value holds, as a new reference that the caller releases.  Never
 * blocks. TDM_E_TYPE: the value is NULL or of another kind.  On failure `*ref_out` is NULL. */
TDM_API tdm_status tdm_value_ref(tdm_runtime *runtime, const tdm_value *value, tdm_ref **ref_out);
/* Gives a new handle to the actor whose handle `value` holds; the caller destroys the new handle.
 * Never blocks.  Failures are those of tdm_value_ref(). */
TDM_API tdm_status tdm_value_actor(tdm_runtime *runtime, const tdm_value *value,
                                   tdm_actor **actor_out);

/* ---- references and handles outside of calls --------------------------------------------- */

/* Largest size in bytes of the portable form of a reference or a handle. */
enum { TDM_PORTABLE_BYTES_MAX = 2048 };

/* The portable form of a reference or of a handle: bytes that a program stores or passes on as it
 * likes.  Every process of the cluster can make a reference or handle of them, also several times.
 * It is meant for the life of a cluster; a build of Tandem with another protocol refuses it. */
struct tdm_portable {
    size_t size_bytes;                     /* Number of bytes of the form; 0 after a failure. */
    uint8_t bytes[TDM_PORTABLE_BYTES_MAX]; /* The bytes of the form. */
};

/* Writes the ID of the value behind the reference to `id_out`, which has room for 33 bytes: 32
 * hexadecimal digits and a NUL.  It is the same in all processes that have the reference.  Never
 * blocks.  TDM_E_STATE: the runtime has stopped.  On failure the text is "". */
TDM_API tdm_status tdm_ref_id(tdm_ref *ref, char *id_out);
/* Writes the portable form of the reference.  No process knows who has the bytes, so the owner
 * keeps the value until its own process ends, or until tdm_ref_free_value().  Never blocks.
 * TDM_E_STATE: the runtime has stopped. */
TDM_API tdm_status tdm_ref_export(tdm_ref *ref, struct tdm_portable *portable_out);
/* Makes a reference of its portable form; the caller releases the reference.  Never blocks.
 * Reading the value fails with TDM_E_OWNER_DIED if the owner's process has ended.  TDM_E_PROTOCOL:
 * the bytes are no portable form, or of a build with another protocol.  TDM_E_TYPE: they are the
 * form of a handle.  On failure `*ref_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_ref_import(tdm_runtime *runtime, struct tdm_bytes bytes,
                                                 tdm_ref **ref_out);
/* Writes the portable form of the handle.  If the handle keeps its actor alive, the actor then
 * lives until its creator ends, or until it is killed.  Never blocks.  TDM_E_STATE: the runtime has
 * stopped, or it is not known yet which actor has the name (get_if_exists). */
TDM_API tdm_status tdm_actor_export(tdm_actor *actor, struct tdm_portable *portable_out);
/* Makes a handle of its portable form; the caller destroys the handle.  Never blocks.  Calls fail
 * with TDM_E_ACTOR_DIED if the actor has ended.  Failures are those of tdm_ref_import(). */
TDM_API TDM_MUST_CHECK tdm_status tdm_actor_import(tdm_runtime *runtime, struct tdm_bytes bytes,
                                                   tdm_actor **actor_out);

/* ---- waiting ----------------------------------------------------------------------------- */

/* Waits at most `timeout_ms` milliseconds until `wanted_count` of the references are done, well
 * or not. Sets done_out[i] to 1 if reference i is done, else to 0.  Returns TDM_OK or
 * TDM_E_TIMEOUT.  Both arrays have refs_count elements and may be NULL if it is 0. */
TDM_API tdm_status tdm_wait(tdm_ref *const *refs, uint32_t refs_count, uint32_t wanted_count,
                            int64_t timeout_ms, uint8_t *done_out);

/* Callback of tdm_ref_on_done(): runs once when the result is there, also if it is a failure.  If
 * the result is there already, fn runs before tdm_ref_on_done() returns. In an actor fn runs
 * between methods, on the thread that runs them; in a driver on any thread of Tandem's.  The
 * reference stays valid until fn has returned; fn may release it. */
typedef void tdm_done_fn(void *arg, tdm_ref *ref);
/* Installs the callback fn(arg, ref), which runs once when the result of `ref` is there. */
TDM_API tdm_status tdm_ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg);

/* Stores values, given by format (value.h), under a reference that this process owns and the caller
 * releases. Blocks while other values must be moved to disk to make room for a large one.
 * TDM_E_LIMIT: the value is larger than the node's store.  On failure `*ref_out` is NULL. */
TDM_API TDM_MUST_CHECK tdm_status tdm_put(tdm_runtime *runtime, tdm_ref **ref_out,
                                          const char *format, ...);

/* Gives one more reference to the same value, which the caller releases.  Never blocks. */
TDM_API TDM_MUST_CHECK tdm_status tdm_ref_copy(tdm_ref *ref, tdm_ref **ref_out);
/* Releases a reference to a value.  A result that arrives later is dropped.  Never blocks.  NULL is
 * allowed. */
TDM_API void tdm_ref_release(tdm_ref *ref);
/* Frees a value's memory at once, although there are references to the value.  Reading one of them
 * fails with TDM_E_VALUE_LOST from then on.  Other processes that have the value keep it until they
 * release it.  What this process has read from it is invalid, and no thread may be reading it.
 * TDM_E_STATE: this process is not the owner, or the result is not there yet. */
TDM_API tdm_status tdm_ref_free_value(tdm_ref *ref);

#ifdef __cplusplus
}
#endif

#endif
