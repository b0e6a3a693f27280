/* actor_spec.h - the specification of an actor: everything a node needs to know to create it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_COMMON_ACTOR_SPEC_H
#define TDM_ACTORS_COMMON_ACTOR_SPEC_H

#include "actors/process/text_sizes.h"
#include "runtime/file.h"
#include "runtime/id.h"
#include "scheduler/placement.h"

#include <stdbool.h>
#include <tandem/actor.h>

/* A list of texts that grows. */
struct tdm__text_list {
    char **items;   /* The texts, each owned; NULL if absent. */
    uint32_t count; /* Number of texts. */
};

/* All that a node needs to know to create an actor: its identity, class, options, placement and
 * constructor arguments. It is created by the actor's creator and travels to daemons and to the
 * worker. */
struct tdm__actor_spec {
    struct tdm__id id; /* Id of the actor to be created. */
    /* Process that creates the actor; the actor ends with it unless it is detached. */
    struct tdm__id creator;
    /* Driver at whose request, directly or through other actors, the actor is created. */
    struct tdm__id job;
    char name[TDM__ACTOR_NAME_BYTES];       /* Name of the actor; "" if it has none. */
    char name_space[TDM__ACTOR_NAME_BYTES]; /* Name space to which the actor's name belongs. */
    char class_name[TDM__CLASS_NAME_BYTES]; /* Name of the actor's class. */
    /* Resources, labels and scheduling that the creator requests; the node that places the actor
     * fills `owner_node`. */
    struct tdm__placement_request placement;
    struct tdm__id group; /* Id of the actor's placement group; all zeros if it has none. */
    uint32_t bundle;      /* Bundle of the placement group, or TDM_BUNDLE_ANY. */
    /* Path of the program that runs the actor; "" for the worker program of the daemon. */
    char program[TDM__PATH_BYTES];
    /* Path or name of the library that defines the class; "" if the program defines it. */
    char library[TDM__PATH_BYTES];
    char directory[TDM__PATH_BYTES]; /* Working directory of the actor. */
    /* Arguments of the program besides its path, and variables of the actor's environment as
     * "NAME=value". */
    struct tdm__text_list program_arguments, environment;
    /* The options that are numbers or truth values: one member for each FIELD of the included file
     * actor_options.def, which describes each option. */
#define FIELD(kind, field) TDM__C_##kind field;
#include "runtime/messages/actor_options.def"
#undef FIELD
    void *arguments;        /* Constructor arguments, one packed array, owned. */
    size_t arguments_bytes; /* Number of bytes in `arguments`. */
    void *metadata;         /* What the creator tells all callers, owned; NULL if absent. */
    size_t metadata_bytes;  /* Number of bytes in `metadata`. */
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
/* Frees the specification of an actor. NULL is allowed. */
void tdm__actor_spec_destroy(struct tdm__actor_spec *spec);
/* Copies the constructor arguments, one packed array, into the specification. */
tdm_status tdm__actor_spec_set_arguments(struct tdm__actor_spec *spec, struct tdm_bytes arguments);

/* Writes the specification of an actor as one packed value. */
void tdm__actor_spec_write(tdm_writer *writer, const struct tdm__actor_spec *spec);
/* Parses a specification of an actor that tdm__actor_spec_write() wrote. */
tdm_status tdm__actor_spec_read(const tdm_value *value, struct tdm__actor_spec **spec_out);
/* Returns the specification as a message that can be part of other messages. The message borrows
 * from `spec`. */
struct tdm__actor_spec_message tdm__actor_spec_to_message(const struct tdm__actor_spec *spec);
/* Creates a specification of an actor from a message, which is copied. */
tdm_status tdm__actor_spec_of_message(const struct tdm__actor_spec_message *message,
                                      struct tdm__actor_spec **spec_out);

/* Returns TDM_E_INVAL if the name of an actor or a group, or a name space, is longer than
 * TDM_NAME_BYTES_MAX bytes or not UTF-8 without control characters. `what` describes the name in
 * the message. */
tdm_status tdm__check_name(const char *what, const char *name);

/* Writes the label of an actor for messages: its name, or class and start of the id, as "counter
 * 3f20...". Returns `text`. */
const char *tdm__actor_label(const char *name, const char *class_name, const struct tdm__id *id,
                             char *text, size_t text_bytes);

#endif
