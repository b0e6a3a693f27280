/* actor_spec.h - everything a node needs to know to make an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_ACTOR_SPEC_H
#define TDM_ACTORS_COMMON_ACTOR_SPEC_H

#include "runtime/file.h"
#include "runtime/id.h"
#include "scheduler/placement.h"

#include <stdbool.h>
#include <tandem/actor.h>

enum {
    TDM__ACTOR_NAME_BYTES = 64,
    TDM__ADDRESS_BYTES = 160 /* of a socket, with the NUL */
};

struct tdm__actor_spec {
    struct tdm__id id;
    struct tdm__id creator; /* the process that asked; the actor ends with it unless detached */
    struct tdm__id job;     /* the driver that began it all */
    char name[TDM__ACTOR_NAME_BYTES]; /* "" for none */
    char name_space[TDM__ACTOR_NAME_BYTES];
    char class_name[TDM__ACTOR_NAME_BYTES];
    struct tdm__placement_request wish; /* `owner_node` is filled by the node that places it */
    struct tdm__id group;               /* none: anywhere */
    uint32_t bundle;
    bool captures_child_actors;      /* into the group */
    char program[TDM__PATH_BYTES];   /* "": the worker program that comes with the daemon */
    char library[TDM__PATH_BYTES];   /* "": the class is in the program */
    char directory[TDM__PATH_BYTES]; /* working directory */
    uint32_t environment_count;
    char *environment[TDM_ACTOR_ENVIRONMENT_MAX]; /* owned; "NAME=value" */
    bool keep_visible_devices;
    bool detached;
    bool get_if_exists;
    bool allow_out_of_order;
    int32_t max_restarts;       /* -1: without end */
    int32_t max_task_retries;   /* likewise */
    uint32_t max_concurrency;   /* 0: the class's default */
    uint32_t max_pending_calls; /* 0: no limit */
    void *arguments;            /* owned: one packed array */
    size_t arguments_bytes;
    bool awaits_creator_arguments; /* the creator sends them, or why not, when it has them */
};

/* Checks names, options and resources.  `program` is this process's own. */
tdm_status tdm__actor_spec_create(const char *class_name, const struct tdm_actor_options *options,
                                  struct tdm_bytes arguments, struct tdm__actor_spec **spec_out);
void tdm__actor_spec_destroy(struct tdm__actor_spec *spec); /* NULL is allowed */
/* Those that were awaited; copied. */
tdm_status tdm__actor_spec_set_arguments(struct tdm__actor_spec *spec, struct tdm_bytes arguments);

/* One packed value. */
void tdm__actor_spec_write(tdm_writer *writer, const struct tdm__actor_spec *spec);
tdm_status tdm__actor_spec_read(const tdm_value *value, struct tdm__actor_spec **spec_out);
/* The same as a message inside other messages.  The message borrows from the description. */
struct tdm__actor_spec_message tdm__actor_spec_to_message(const struct tdm__actor_spec *spec);
tdm_status tdm__actor_spec_of_message(const struct tdm__actor_spec_message *message,
                                      struct tdm__actor_spec **spec_out);

/* Names are parts of keys in the store: TDM_E_INVAL for what is not printable or `forbidden`.
 */
tdm_status tdm__check_name(const char *what, const char *name, const char *forbidden);

/* "trainer/2", or "counter 3f20…" for an actor without a name; for messages. */
const char *tdm__actor_label(const char *name, const char *class_name, const struct tdm__id *id,
                             char *text, size_t text_bytes);

#endif
