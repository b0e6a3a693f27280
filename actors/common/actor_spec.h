/* actor_spec.h - the specification of an actor: everything a node needs to know to create it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_ACTOR_SPEC_H
#define TDM_ACTORS_COMMON_ACTOR_SPEC_H

#include "runtime/file.h"
#include "runtime/id.h"
#include "scheduler/placement.h"

#include <stdbool.h>
#include <tandem/actor.h>

enum {
    /* Bytes of an actor's name, name space or class name, with the terminating NUL. */
    TDM__ACTOR_NAME_BYTES = 64,
    TDM__ADDRESS_BYTES = 160 /* Bytes of a socket address as text, with the terminating NUL. */
};

/* A list of texts that grows. */
struct tdm__text_list {
    char **items;   /* The texts, each owned; NULL if there are none. */
    uint32_t count; /* Number of texts. */
};

/* All that a node needs to know to create an actor: its identity, class, options, placement and
 * constructor arguments. It is created by the actor's creator and travels to daemons and to the
 * worker. */
struct tdm__actor_spec {
    struct tdm__id id; /* Id of the actor. */
    /* Process that creates the actor; the actor ends with it unless it is detached. */
    struct tdm__id creator;
    /* Driver at whose request, directly or through other actors, the actor is created. */
    struct tdm__id job;
    char name[TDM__ACTOR_NAME_BYTES];       /* Name of the actor; "" if it has none. */
    char name_space[TDM__ACTOR_NAME_BYTES]; /* Name space of the actor's name. */
    char class_name[TDM__ACTOR_NAME_BYTES]; /* Class of the actor. */
    /* Resources, labels and scheduling that the creator requests; the node that places the actor
     * fills `owner_node`. */
    struct tdm__placement_request wish;
    struct tdm__id group; /* Placement group of the actor; the none id if it belongs to none. */
    uint32_t bundle;      /* Bundle of the placement group, or TDM_BUNDLE_ANY. */
    /* True if actors that this actor creates join its placement group. */
    bool captures_child_actors;
    /* Path of the program that runs the actor; "" for the worker program of the daemon. */
    char program[TDM__PATH_BYTES];
    /* Path or name of the library that defines the class; "" if the program defines it. */
    char library[TDM__PATH_BYTES];
    char directory[TDM__PATH_BYTES]; /* Working directory of the actor. */
    /* Arguments of the program besides its path, and variables of the actor's environment as
     * "NAME=value". */
    struct tdm__text_list program_arguments, environment;
    bool keep_visible_devices; /* True if the worker's CUDA_VISIBLE_DEVICES is left as it is. */
    bool detached;             /* True if the actor outlives its creator and all handles. */
    /* True if an existing actor with the name is used instead of creating one. */
    bool get_if_exists;
    /* True if a call whose arguments are ready may overtake calls that wait for theirs. */
    bool allow_out_of_order;
    /* How often the actor is restarted after its process ended; -1 for no limit. */
    int32_t max_restarts;
    int32_t max_task_retries;   /* How often a call is sent again by default; -1 for no limit. */
    uint32_t max_concurrency;   /* Most calls that run at a time; 0 for the default of the class. */
    uint32_t max_pending_calls; /* Most calls of one caller that have no result; 0 for no limit. */
    void *arguments;            /* Constructor arguments, one packed array, owned. */
    size_t arguments_bytes;     /* Number of bytes in `arguments`. */
    /* True if the creator sends the constructor arguments, or a failure, later
     * ("actor.arguments"). */
    bool awaits_creator_arguments;
};

/* Appends a copy of the text to the list. */
tdm_status tdm__text_list_add(struct tdm__text_list *list, const char *text);

/* Creates a specification with a new id and checks names, options and resources. The program is
 * that of this process unless the options name a library. Copies `arguments`; `options` may be
 * NULL. */
tdm_status tdm__actor_spec_create(const char *class_name, const struct tdm_actor_options *options,
                                  struct tdm_bytes arguments, struct tdm__actor_spec **spec_out);
/* Frees the specification. NULL is allowed. */
void tdm__actor_spec_destroy(struct tdm__actor_spec *spec);
/* Copies the constructor arguments, one packed array, into the specification. */
tdm_status tdm__actor_spec_set_arguments(struct tdm__actor_spec *spec, struct tdm_bytes arguments);

/* Writes the specification as one packed value. */
void tdm__actor_spec_write(tdm_writer *writer, const struct tdm__actor_spec *spec);
/* Parses a specification that tdm__actor_spec_write() wrote. */
tdm_status tdm__actor_spec_read(const tdm_value *value, struct tdm__actor_spec **spec_out);
/* Returns the specification as a message that can be part of other messages. The message borrows
 * from `spec`. */
struct tdm__actor_spec_message tdm__actor_spec_to_message(const struct tdm__actor_spec *spec);
/* Creates a specification from a message; copies everything. */
tdm_status tdm__actor_spec_of_message(const struct tdm__actor_spec_message *message,
                                      struct tdm__actor_spec **spec_out);

/* Returns TDM_E_INVAL if the name contains characters that are not printable ASCII or are in
 * `forbidden`. Names are parts of keys in the store. `what` describes the name in the message. */
tdm_status tdm__check_name(const char *what, const char *name, const char *forbidden);

/* Writes the label of an actor for messages: its name, or class and start of the id, as "counter
 * 3f20...". Returns `text`. */
const char *tdm__actor_label(const char *name, const char *class_name, const struct tdm__id *id,
                             char *text, size_t text_bytes);

#endif
