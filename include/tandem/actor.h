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
 * detail that tdm_fail() recorded.  Methods of one actor run one at a time, on one thread. */
typedef tdm_status tdm_method(tdm_call *call, void *self);

struct tdm_method_entry {
    const char *name; /* 1 to 63 bytes */
    tdm_method *run;
};

enum { TDM_METHODS_MAX = 32 };

/* A class.  `self` points at `state_bytes` zeroed bytes.  `construct` may be NULL; its call
 * carries the arguments of tdm_actor_create(); if it fails the actor dies and the callers read
 * why.  `destruct` runs when the actor ends in good order, not when it is killed. */
struct tdm_actor_class {
    const char *name; /* 1 to 63 bytes; what tdm_actor_create() asks for */
    size_t state_bytes;
    tdm_status (*construct)(tdm_call *call, void *self);
    void (*destruct)(void *self);
    struct tdm_method_entry methods[TDM_METHODS_MAX]; /* ends at the first without a name */
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
 * constructor.  A second class of the same name ends the program: it is a mistake in it. */
TDM_API void tdm_class_register(const struct tdm_actor_class *actor_class);

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

/* ---- actors ----------------------------------------------------------------------------- */

/* A handle.  Belongs to the process that made it; destroy it when done. */
typedef struct tdm_actor tdm_actor;

struct tdm_resource {
    const char *name; /* "CPU", "GPU", or any name of the user's */
    double amount;    /* kept in steps of 0.0001 */
};

enum { TDM_ACTOR_RESOURCES_MAX = 8, TDM_ACTOR_ENVIRONMENT_MAX = 32 };

/* Zero in a field means the default named beside it. */
struct tdm_actor_options {
    double num_cpus; /* held for the actor's life; default 0: Ray's actors hold none either */
    double num_gpus; /* 0.25 of one GPU, or 1, 2, …: whole ones */
    struct tdm_resource resources[TDM_ACTOR_RESOURCES_MAX]; /* ends at the first without name */
    const char *name;                 /* unique in the name space; default none */
    const tdm_placement_group *group; /* take the resources from this group's … */
    uint32_t bundle;                  /* … bundle */
    const char *library; /* shared library that holds the class; default: this program */
    const char *environment[TDM_ACTOR_ENVIRONMENT_MAX]; /* "NAME=value", in force before exec */
    const char *working_directory;                      /* default: the creator's */
    int keep_visible_devices; /* 1: leave CUDA_VISIBLE_DEVICES as it is */
    int detached;             /* 1: outlives its creator */
};

/* Asks for an actor of class `class_name`, constructed with the arguments that follow by
 * format. Returns at once with a handle; what goes wrong later (no such class, a constructor
 * that fails, no room) is read by the first call.  `options` may be NULL. */
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

/* Ends the actor at once (SIGKILL); calls in flight fail with TDM_E_ACTOR_DIED.  Blocks until
 * its process is gone, at most `timeout_ms`. */
TDM_API tdm_status tdm_actor_kill(tdm_actor *actor, int64_t timeout_ms);

/* Lets go of the handle.  The actor lives on until its creator leaves, or is killed.  NULL is
 * allowed. */
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

/* ---- calls and references --------------------------------------------------------------- */

/* The result of a call or of tdm_put(), present or to come. */
typedef struct tdm_ref tdm_ref;

/* Sends a call; never blocks.  Calls from one process to one actor run in the order sent.
 * `ref_out` may be NULL when the result does not matter (errors are then lost too).  A letter r
 * in the format takes a tdm_ref * of this process: the call leaves when that result is there,
 * and calls sent to the same actor after it keep their place behind it. */
TDM_API tdm_status tdm_actor_call(tdm_actor *actor, const char *method, tdm_ref **ref_out,
                                  const char *format, ...);
TDM_API tdm_status tdm_actor_call_packed(tdm_actor *actor, const char *method,
                                         struct tdm_bytes arguments, tdm_ref **ref_out);

/* Waits for the result and reads it by format.  The status is the call's own when it failed,
 * TDM_E_TIMEOUT when it is not there yet (the reference stays valid).  Strings and bytes are
 * borrowed from the reference.  Does not release it. */
TDM_API tdm_status tdm_get(tdm_ref *ref, int64_t timeout_ms, const char *format, ...);
/* The same, giving the result as an array value, borrowed from the reference. */
TDM_API tdm_status tdm_get_value(tdm_ref *ref, int64_t timeout_ms, const tdm_value **value_out);

/* Waits until `wanted_count` of the references are done (well or not), or the time is over;
 * sets done_out[i] to 1 for those that are.  TDM_OK or TDM_E_TIMEOUT. */
TDM_API tdm_status tdm_wait(tdm_ref *const *refs, uint32_t refs_count, uint32_t wanted_count,
                            int64_t timeout_ms, uint8_t *done_out);

/* Keeps a value in this process under a reference, to be passed to calls by r. */
TDM_API tdm_status tdm_put(tdm_runtime *runtime, tdm_ref **ref_out, const char *format, ...);

/* Lets go; a result that comes later is dropped.  NULL is allowed. */
TDM_API void tdm_ref_release(tdm_ref *ref);

#ifdef __cplusplus
}
#endif

#endif
