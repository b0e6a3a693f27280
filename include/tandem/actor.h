/* actor.h - classes, actors, calls, and the results they leave. */
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

/* One call that arrived at an actor; lives until its method returns. */
typedef struct tdm_call tdm_call;

/* A method reads its arguments, replies at most once, and returns.  A method that returns
 * TDM_OK without replying replies nil.  Any other status reaches the caller as it is, with the
 * detail that tdm_fail() recorded.
 *
 * Methods of one actor run one at a time, on one thread, in the order in which each caller
 * called; unless the actor was made with a max_concurrency over 1, or the class has concurrency
 * groups: then that many run at once, on threads of their own, in any order, and share `self`
 * as threads do.  A method of an `asynchronous` class may return before it replies: see
 * tdm_call_keep(). */
typedef tdm_status tdm_method(tdm_call *call, void *self);

struct tdm_method_entry {
    const char *name; /* 1 to 63 bytes; "*": every name that the class does not list, for a
                         class that finds its methods elsewhere (tdm_call_method()) */
    tdm_method *run;
    const char *concurrency_group; /* one of the class; NULL: the default one */
};

/* Methods of a group wait for one another only. */
struct tdm_concurrency_group {
    const char *name; /* another than "default", the group of the methods that have none */
    uint32_t max_concurrency;
};

enum { TDM_METHODS_MAX = 32, TDM_CONCURRENCY_GROUPS_MAX = 8 };

/* A class.  `self` points at `state_bytes` zeroed bytes.  `construct` may be NULL; its call
 * carries the arguments of tdm_actor_create(); if it fails the actor dies and the callers read
 * why.  `destruct` runs when the actor ends in good order, not when it is killed. */
struct tdm_actor_class {
    const char *name; /* 1 to 63 bytes; what tdm_actor_create() asks for */
    size_t state_bytes;
    tdm_status (*construct)(tdm_call *call, void *self);
    void (*destruct)(void *self);
    struct tdm_method_entry methods[TDM_METHODS_MAX]; /* ends at the first without a name */
    struct tdm_concurrency_group
        concurrency_groups[TDM_CONCURRENCY_GROUPS_MAX]; /* likewise; besides the default one */
    int asynchronous; /* 1: methods run one at a time on one thread, and may keep their calls:
                         up to max_concurrency (default 1,000) calls are then under way */
};

/* Makes a class known to every process that runs this program or loads this library:
 *     TDM_ACTOR_CLASS(counter, .state_bytes = sizeof(struct counter), .methods = {{"add",
 * add}}); At most once per name; file scope only. */
#define TDM_ACTOR_CLASS(identifier, ...)                                                       \
    static const struct tdm_actor_class tdm_class_##identifier = {.name = #identifier,         \
                                                                  __VA_ARGS__};                \
    __attribute__((constructor)) static void tdm_class_register_##identifier(void)             \
    {                                                                                          \
        tdm_class_register(&tdm_class_##identifier);                                           \
    }                                                                                          \
    struct tdm_actor_class /* asks for the semicolon */

/* Adds a class; the table is borrowed for ever.  Before tdm_runtime_start() or from a
 * constructor.  A second class of the same name ends the program, as two groups of one name do:
 * it is a mistake in it. */
TDM_API void tdm_class_register(const struct tdm_actor_class *actor_class);

/* The name that was called, "" in a constructor.  On any thread that has the call; valid for
 * as long as the call is: until its method returns, or a kept one is answered. */
TDM_API const char *tdm_call_method(const tdm_call *call);
/* Reads the arguments by format (value.h).  TDM_E_TYPE tells both shapes. */
TDM_API tdm_status tdm_call_unpack(tdm_call *call, const char *format, ...);
/* The arguments as an array value, borrowed until the method returns. */
TDM_API const tdm_value *tdm_call_arguments(tdm_call *call);
/* Replies; TDM_E_STATE when it has replied already. */
TDM_API tdm_status tdm_call_reply(tdm_call *call, const char *format, ...);
/* Replies with one packed array, such as a tdm_writer's after tdm_pack(). */
TDM_API tdm_status tdm_call_reply_packed(tdm_call *call, struct tdm_bytes packed_array);
/* Milliseconds until the caller's deadline; TDM_FOREVER if it has none. */
TDM_API int64_t tdm_call_remaining_ms(tdm_call *call);
/* 1 once the caller has canceled the call, or is gone: a long method looks now and then. */
TDM_API int tdm_call_is_canceled(tdm_call *call);

/* In a method of an asynchronous class: the method's return no longer answers; somebody does
 * later, on any thread, by tdm_call_reply() or tdm_call_fail(), which end the call: `call` and
 * its arguments are gone then.  TDM_E_STATE in other classes and after a reply. */
TDM_API tdm_status tdm_call_keep(tdm_call *call);
/* Answers a kept call with a failure. */
__attribute__((format(printf, 3, 4))) TDM_API void
tdm_call_fail(tdm_call *call, tdm_status status, const char *format, ...);

/* Sends one more item of a stream (to a caller that used tdm_actor_stream); the method's end
 * ends the stream.  Blocks while TDM_STREAM_ITEMS_AHEAD items wait for the caller.
 * TDM_E_CANCELED when nobody takes them any more; TDM_E_STATE when the caller asked for no
 * stream. */
TDM_API tdm_status tdm_call_yield(tdm_call *call, const char *format, ...);
enum { TDM_STREAM_ITEMS_AHEAD = 16 };

/* ---- actors ----------------------------------------------------------------------------- */

/* A handle.  Belongs to the process that made it; destroy it when done. */
typedef struct tdm_actor tdm_actor;

struct tdm_resource {
    const char *name; /* "CPU", "GPU", or any name of the user's */
    double amount;    /* kept in steps of 0.0001 */
};

enum { TDM_ACTOR_RESOURCES_MAX = 8, TDM_ACTOR_ENVIRONMENT_MAX = 32, TDM_LABELS_MAX = 8 };

/* Where an actor outside placement groups is put. */
enum tdm_scheduling {
    TDM_SCHEDULE_DEFAULT,  /* the creator's node if it has room, else the fullest that has */
    TDM_SCHEDULE_SPREAD,   /* the node with the fewest actors */
    TDM_SCHEDULE_NODE,     /* `node_id`, or never */
    TDM_SCHEDULE_NODE_SOFT /* `node_id` while it lives and has room, else as by default */
};

/* Zero in a field means the default named beside it. */
struct tdm_actor_options {
    double num_cpus; /* held for the actor's life; default 0: Ray's actors hold none either */
    double num_gpus; /* 0.25 of one GPU, or 1, 2, …: whole ones */
    struct tdm_resource resources[TDM_ACTOR_RESOURCES_MAX]; /* ends at the first without name */
    const char *name;                 /* unique in the name space; default none */
    const tdm_placement_group *group; /* take the resources from this group's … */
    uint32_t bundle;                  /* … bundle, or TDM_BUNDLE_ANY */
    int capture_children; /* 1: actors that this one makes are in its group, too, in any bundle,
                             and so are theirs; but for those that ask for a group, a scheduling
                             or labels */
    const char *library;  /* shared library that holds the class; default: this program */
    /* "NAME=value", in force before exec.  OMP_NUM_THREADS is num_cpus rounded down, at least
     * 1, unless it is set here or for the node. */
    const char *environment[TDM_ACTOR_ENVIRONMENT_MAX];
    const char *working_directory; /* default: the creator's */
    int keep_visible_devices;      /* 1: leave CUDA_VISIBLE_DEVICES as it is */
    int detached;           /* 1: outlives its creator and its handles, until it is killed */
    const char *name_space; /* of the name; default: the runtime's */
    int get_if_exists; /* 1: where the name is taken, a handle to the one who has it, whatever
                          its class and options */
    uint64_t memory_bytes;    /* of the host, only counted: as the resource "memory" */
    int32_t max_restarts;     /* after its process died: 0; -1 without end.  Not after
                                 tdm_actor_kill(), an exit of its own, or its creator's end */
    int32_t max_task_retries; /* how often a call in flight is sent again after a restart: 0; -1
                                 without end; the method then runs at least once */
    uint32_t max_concurrency; /* methods of the default group at once: 1 */
    int allow_out_of_order;   /* 1: a call that waits for an argument holds up no later one */
    uint32_t max_pending_calls; /* of this process, unanswered; more fail at once with
                                   TDM_E_AGAIN; 0: no limit */
    enum tdm_scheduling scheduling;
    const char *node_id; /* for TDM_SCHEDULE_NODE and …_SOFT */
    /* Of the node, all of them: "NAME=value" or "NAME!=value", where the value may be a list,
     * in(a,b), or exists() for any.  "!=" holds also on nodes without the name. */
    const char *labels[TDM_LABELS_MAX];
};

/* Asks for an actor of class `class_name`, constructed with the arguments that follow by
 * format, which may have the letters r, R and h of calls.  Returns at once with a handle; a
 * value behind an r may be to come: until it is there the actor has neither a place nor its
 * name, and it ends with its creator, detached or not.  What goes wrong later (no such class,
 * an r or a constructor that fails, no room) is read by the first call.  `options` may be NULL.
 */
TDM_API tdm_status tdm_actor_create(tdm_runtime *runtime, const char *class_name,
                                    const struct tdm_actor_options *options,
                                    tdm_actor **actor_out, const char *format, ...);
TDM_API tdm_status tdm_actor_create_packed(tdm_runtime *runtime, const char *class_name,
                                           const struct tdm_actor_options *options,
                                           struct tdm_bytes arguments, tdm_actor **actor_out);

/* Waits until the actor is constructed: TDM_OK, or why it cannot be. */
TDM_API tdm_status tdm_actor_wait_ready(tdm_actor *actor, int64_t timeout_ms);

/* A handle to the actor of that name in this name space; TDM_E_NOT_FOUND.  Blocks for the
 * answer, at most `timeout_ms`. */
TDM_API tdm_status tdm_actor_find(tdm_runtime *runtime, const char *name, int64_t timeout_ms,
                                  tdm_actor **actor_out);
/* The same in another name space. */
TDM_API tdm_status tdm_actor_find_in(tdm_runtime *runtime, const char *name_space,
                                     const char *name, int64_t timeout_ms,
                                     tdm_actor **actor_out);

/* Ends the actor at once (SIGKILL); calls in flight fail with TDM_E_ACTOR_DIED.  Blocks until
 * its process is gone, at most `timeout_ms`. */
TDM_API tdm_status tdm_actor_kill(tdm_actor *actor, int64_t timeout_ms);
/* Kills its process only, as a crash would: an actor with restarts left comes back, and what
 * happens to its calls is up to max_task_retries; one without has died.  Returns once the
 * signal is sent. */
TDM_API tdm_status tdm_actor_restart(tdm_actor *actor, int64_t timeout_ms);

/* Lets go of the handle.  With the last handle in the cluster (those that came from
 * tdm_actor_find() do not count) an actor that is not detached ends in good order, after the
 * calls already made; so it does when its creator leaves.  One that still waits for a place is
 * never constructed then.  NULL is allowed. */
TDM_API void tdm_actor_destroy(tdm_actor *actor);

struct tdm_actor_info {
    char id[33];
    char name[64];
    char class_name[64];
    char node_id[33];
    int64_t pid; /* 0 until it is known */
    uint32_t gpus_count;
    uint32_t gpu_indices[16];
};
/* What is known of the actor; complete once tdm_actor_wait_ready() returned TDM_OK. */
TDM_API void tdm_actor_describe(tdm_actor *actor, struct tdm_actor_info *info_out);

/* ---- calls ------------------------------------------------------------------------------ */

/* The result of a call or of tdm_put(), present or to come. */
typedef struct tdm_ref tdm_ref;

/* Sends a call; never blocks.  Calls from one process to one actor run in the order sent.
 * `ref_out` may be NULL when the result does not matter (errors are then lost too).  Besides
 * the letters of value.h the format may have
 *
 * - r (tdm_ref *): its *value* is the argument; the call leaves when that result is there, and
 *   calls sent to the same actor after it keep their place behind it;
 * - R (tdm_ref *): the *reference* is the argument, also inside ( ) and { };
 * - h (tdm_actor *): a handle, likewise. */
TDM_API tdm_status tdm_actor_call(tdm_actor *actor, const char *method, tdm_ref **ref_out,
                                  const char *format, ...);
TDM_API tdm_status tdm_actor_call_packed(tdm_actor *actor, const char *method,
                                         struct tdm_bytes arguments, tdm_ref **ref_out);

enum { TDM_RETRY_FAILURES_MAX = 4 };
/* Each but TDM_E_CANCELED, TDM_E_TIMEOUT, TDM_E_ACTOR_DIED and TDM_E_NOT_FOUND (as of a method
 * that the class has not), which have to be named. */
#define TDM_ANY_FAILURE ((tdm_status)1)

/* Zero in a field means the default named beside it. */
struct tdm_call_options {
    int64_t timeout_ms;  /* the result is TDM_E_TIMEOUT after it; default none */
    int32_t max_retries; /* as max_task_retries, for this call; default the actor's; none: -2 */
    /* Failures that the actor answers and that are a reason to make the call again, too, while
     * retries are left: {TDM_E_AGAIN, TDM_E_IO}, or TDM_ANY_FAILURE.  Each time after a pause,
     * of 1 ms first, then twice as long, a second at most, in which other calls are sent; where
     * the deadline would come before its end the failure is the result.  Not for streams.
     * Default: none */
    tdm_status retry_failures[TDM_RETRY_FAILURES_MAX];
    const char *concurrency_group; /* of the class, or "default": it runs there; default the
                                      method's own */
    uint32_t results_count; /* default 1; more: the method replies so many values, and value i
                               is the result of refs_out[i] */
};
/* `options` may be NULL.  `refs_out` has room for results_count, or is NULL. */
TDM_API tdm_status tdm_actor_call_with(tdm_actor *actor, const char *method,
                                       const struct tdm_call_options *options,
                                       tdm_ref **refs_out, const char *format, ...);
TDM_API tdm_status tdm_actor_call_packed_with(tdm_actor *actor, const char *method,
                                              const struct tdm_call_options *options,
                                              struct tdm_bytes arguments, tdm_ref **refs_out);

/* For tdm_cancel(), added up. */
enum tdm_cancel_how {
    TDM_CANCEL_FORCE = 1,   /* kills the process of an actor that runs it */
    TDM_CANCEL_CHILDREN = 2 /* also what its method has called, on its own thread and without a
                               result yet, and what those have called */
};
/* The result is no longer wanted: the reference becomes TDM_E_CANCELED, unless the result is
 * there already.  A call not begun yet never runs; a method that runs can ask
 * tdm_call_is_canceled(), and with TDM_CANCEL_FORCE its actor's process is killed (and
 * restarted, if it may be).  Never blocks.  Results of tdm_put() cannot be canceled:
 * TDM_E_STATE. */
TDM_API tdm_status tdm_cancel(tdm_ref *ref, int how);

/* ---- streams ---------------------------------------------------------------------------- */

/* The items that a method yields, one reference each, in order. */
typedef struct tdm_stream tdm_stream;
TDM_API tdm_status tdm_actor_stream(tdm_actor *actor, const char *method,
                                    const struct tdm_call_options *options,
                                    tdm_stream **stream_out, const char *format, ...);
/* The next item, waiting for it: TDM_OK, TDM_E_TIMEOUT, TDM_E_END after the last one, or the
 * method's failure after the items that came before it. */
TDM_API tdm_status tdm_stream_next(tdm_stream *stream, int64_t timeout_ms, tdm_ref **ref_out);
/* Cancels what has not come yet.  NULL is allowed. */
TDM_API void tdm_stream_destroy(tdm_stream *stream);

/* ---- references ------------------------------------------------------------------------- */

/* A reference belongs to the process that has it; the process that made it (by a call or a put)
 * *owns* the value.  Others borrow it: they got it as an argument or in a result, and the value
 * stays until the last of them has let go.  When the owner's process is gone, so is the value:
 * TDM_E_OWNER_DIED, unless it is here already.  Values over 100 KiB lie in shared memory, once
 * on each node, read-only; smaller ones travel inside messages. */

/* Waits for the result and reads it by format.  The status is the call's own when it failed,
 * TDM_E_TIMEOUT when it is not there yet (the reference stays valid).  Strings, bytes and
 * arrays are borrowed from the reference.  R and h give a tdm_ref * and a tdm_actor * of the
 * caller's own, to be released.  Does not release `ref`. */
TDM_API tdm_status tdm_get(tdm_ref *ref, int64_t timeout_ms, const char *format, ...);
/* The same, giving the result as an array value, borrowed from the reference. */
TDM_API tdm_status tdm_get_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out);
/* All of them; the first failure at once, without waiting for the others. */
TDM_API tdm_status tdm_get_many(tdm_ref *const *refs, uint32_t refs_count, int64_t timeout_ms,
                                const tdm_value **values_out);
/* A reference or handle inside a value, as a new one of the caller's own. */
TDM_API tdm_status tdm_value_ref(tdm_runtime *runtime, const tdm_value *value,
                                 tdm_ref **ref_out);
TDM_API tdm_status tdm_value_actor(tdm_runtime *runtime, const tdm_value *value,
                                   tdm_actor **actor_out);

/* Waits until `wanted_count` of the references are done (well or not), or the time is over;
 * sets done_out[i] to 1 for those that are.  TDM_OK or TDM_E_TIMEOUT. */
TDM_API tdm_status tdm_wait(tdm_ref *const *refs, uint32_t refs_count, uint32_t wanted_count,
                            int64_t timeout_ms, uint8_t *done_out);

/* Calls fn(arg, ref) once when the result is there, well or not: at once, inside this call, if
 * it is.  In an actor between its methods, on the thread that runs them; in a driver on any
 * thread of Tandem's.  The reference stays valid until fn has returned; fn may release it. */
typedef void tdm_done_fn(void *arg, tdm_ref *ref);
TDM_API tdm_status tdm_ref_on_done(tdm_ref *ref, tdm_done_fn *fn, void *arg);

/* Keeps a value under a reference, owned by this process.  Blocks while others must make room
 * on disk for a large one; TDM_E_LIMIT for more than the node's store can hold. */
TDM_API tdm_status tdm_put(tdm_runtime *runtime, tdm_ref **ref_out, const char *format, ...);

/* One more reference to the same value. */
TDM_API tdm_status tdm_ref_copy(tdm_ref *ref, tdm_ref **ref_out);
/* Lets go; a result that comes later is dropped.  NULL is allowed. */
TDM_API void tdm_ref_release(tdm_ref *ref);
/* Gives the value's memory back at once, though references to it live: to read one of them is
 * TDM_E_VALUE_LOST from then on.  Other processes that have the value already keep it until
 * they let go; what this one has read from it is no longer valid, and nobody may be reading it.
 * For its owner: TDM_E_STATE elsewhere, and while the result is not there yet. */
TDM_API tdm_status tdm_ref_free_value(tdm_ref *ref);

#ifdef __cplusplus
}
#endif

#endif
