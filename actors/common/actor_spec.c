/* actor_spec.c - the specification of an actor: everything a node needs to know to create it. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Owns struct tdm__actor_spec. There are two ways to create one: tdm__actor_spec_create() checks
 * the user's options in the creator's process, and tdm__actor_spec_of_message() copies a message
 * in daemons and workers. A specification holds copies of all its texts, and is changed after
 * its creation only by the process that owns it. Nothing here locks.
 *
 * The wire format is the message actor_spec (runtime/messages).
 * docs/protocols/actor_lifecycle.md says when a specification travels. */

#include "actors/common/actor_spec.h"

#include "actors/common/placement_group.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Largest max_concurrency of an actor. */
enum { CONCURRENCY_MAX = 100000 };
/* Largest number of environment variables, and of arguments of the program, of an actor. */
enum { TEXTS_MAX = 4096 };

/* Copies a text into `target` of `target_bytes` bytes; NULL counts as "". Returns TDM_E_INVAL if
 * the text is too long. */
static tdm_status spec_copy_text(const char *what, const char *text, char *target,
                                 size_t target_bytes)
{
    size_t length = text == NULL ? 0 : strlen(text);

    if (length >= target_bytes) {
        return tdm__fail(TDM_E_INVAL, "%s of %zu bytes, at most %zu: \"%.40s…\"", what, length,
                         target_bytes - 1, text);
    }
    memcpy(target, text == NULL ? "" : text, length + 1);
    return TDM_OK;
}

tdm_status tdm__text_list_add(struct tdm__text_list *list, const char *text)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof(*items));
    char *copy = strdup(text);

    list->items = items == NULL ? list->items : items;
    if (items == NULL || copy == NULL || list->count == TEXTS_MAX) {
        free(copy);
        return list->count == TEXTS_MAX
                   ? tdm__fail(TDM_E_LIMIT, "more than %d variables or arguments of one actor",
                               (int)TEXTS_MAX)
                   : tdm__fail(TDM_E_NOMEM, "a variable or argument of an actor");
    }
    list->items[list->count++] = copy;
    return TDM_OK;
}

/* Frees all texts of the list. */
static void text_list_free(struct tdm__text_list *list)
{
    for (uint32_t i = 0; i < list->count; i++) {
        free(list->items[i]);
    }
    free(list->items);
    *list = (struct tdm__text_list){NULL, 0};
}

/* Appends a copy of "NAME=value" to the actor's environment variables. */
static tdm_status spec_add_environment(struct tdm__actor_spec *spec, const char *assignment)
{
    const char *equals = strchr(assignment, '=');

    if (equals == NULL || equals == assignment) {
        return tdm__fail(TDM_E_INVAL, "environment \"%.60s\" is not NAME=value", assignment);
    }
    return tdm__text_list_add(&spec->environment, assignment);
}

tdm_status tdm__actor_spec_set_arguments(struct tdm__actor_spec *spec, struct tdm_bytes arguments)
{
    void *copy = malloc(arguments.size_bytes == 0 ? 1 : arguments.size_bytes);

    if (copy == NULL) {
        return tdm__fail(TDM_E_NOMEM, "constructor arguments of %zu bytes", arguments.size_bytes);
    }
    if (arguments.size_bytes > 0) {
        memcpy(copy, arguments.data, arguments.size_bytes);
    }
    free(spec->arguments);
    spec->arguments = copy;
    spec->arguments_bytes = arguments.size_bytes;
    spec->awaits_creator_arguments = false;
    return TDM_OK;
}

/* Copies the metadata into the specification, which has none. */
static tdm_status spec_set_metadata(struct tdm__actor_spec *spec, struct tdm_bytes metadata)
{
    if (metadata.size_bytes > TDM_ACTOR_METADATA_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "metadata of %zu bytes, at most %d", metadata.size_bytes,
                         (int)TDM_ACTOR_METADATA_BYTES_MAX);
    }
    if (metadata.size_bytes == 0) {
        return TDM_OK;
    }
    if (metadata.data == NULL) {
        return tdm__fail(TDM_E_INVAL, "metadata of %zu bytes that are NULL", metadata.size_bytes);
    }
    spec->metadata = malloc(metadata.size_bytes);
    if (spec->metadata == NULL) {
        return tdm__fail(TDM_E_NOMEM, "metadata of %zu bytes", metadata.size_bytes);
    }
    memcpy(spec->metadata, metadata.data, metadata.size_bytes);
    spec->metadata_bytes = metadata.size_bytes;
    return TDM_OK;
}

/* Writes the path of this process's program to `target`. */
static tdm_status spec_set_own_program(char *target, size_t target_bytes)
{
    ssize_t length = readlink("/proc/self/exe", target, target_bytes - 1);

    if (length < 0 || (size_t)length >= target_bytes - 1) {
        return tdm__fail_errno(length < 0 ? errno : ENAMETOOLONG, "readlink /proc/self/exe");
    }
    target[length] = '\0';
    return TDM_OK;
}

/* Sets the library. A path is made absolute, since the worker may run in another directory; the
 * worker's dlopen() searches for a name without a slash. */
static tdm_status spec_set_library(struct tdm__actor_spec *spec, const char *library)
{
    char *real;
    tdm_status status;

    if (strchr(library, '/') == NULL) {
        return spec_copy_text("library", library, spec->library, sizeof(spec->library));
    }
    real = realpath(library, NULL);
    if (real == NULL) {
        return tdm__fail_errno(errno, "library %s", library);
    }
    status = spec_copy_text("library", real, spec->library, sizeof(spec->library));
    free(real);
    return status;
}

/* Sets library and program, which is this process's if neither is given, the arguments of the
 * program, and the working directory, which is this process's by default. */
static tdm_status spec_set_paths(struct tdm__actor_spec *spec,
                                 const struct tdm_actor_options *options)
{
    if (options->library != NULL) {
        TDM_TRY(spec_set_library(spec, options->library));
    }
    if (options->program != NULL) {
        TDM_TRY(spec_copy_text("program", options->program, spec->program, sizeof(spec->program)));
    } else if (options->library == NULL) {
        TDM_TRY(spec_set_own_program(spec->program, sizeof(spec->program)));
    }
    for (uint32_t i = 0;
         options->program_arguments != NULL && options->program_arguments[i] != NULL; i++) {
        TDM_TRY(tdm__text_list_add(&spec->program_arguments, options->program_arguments[i]));
    }
    if (options->working_directory != NULL) {
        return spec_copy_text("working directory", options->working_directory, spec->directory,
                              sizeof(spec->directory));
    }
    if (getcwd(spec->directory, sizeof(spec->directory)) == NULL) {
        return tdm__fail_errno(errno, "getcwd");
    }
    spec->directory_is_default = true;
    return TDM_OK;
}

/* Sets the actor's resources and placement group from the user's options. */
static tdm_status spec_set_resources(struct tdm__actor_spec *spec,
                                     const struct tdm_actor_options *options)
{
    struct tdm__resources *wanted = &spec->placement.wanted;

    TDM_TRY(tdm__resources_add(wanted, "CPU", options->num_cpus));
    TDM_TRY(tdm__resources_add(wanted, "GPU", options->num_gpus));
    TDM_TRY(tdm__resources_add(wanted, "memory", (double)options->memory_bytes));
    for (uint32_t i = 0; i < TDM_ACTOR_RESOURCES_MAX && options->resources[i].name != NULL; i++) {
        TDM_TRY(
            tdm__resources_add(wanted, options->resources[i].name, options->resources[i].amount));
    }
    if (options->capture_children != 0 && options->group == NULL) {
        return tdm__fail(TDM_E_INVAL, "capture_children goes with a placement group");
    }
    if (options->group != NULL) {
        spec->group = options->group->id;
        spec->bundle = options->bundle;
        spec->captures_child_actors = options->capture_children != 0;
        if (options->bundle >= options->group->bundles_count && options->bundle != TDM_BUNDLE_ANY) {
            return tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", options->bundle,
                             options->group->bundles_count);
        }
    }
    return TDM_OK;
}

tdm_status tdm__check_name(const char *what, const char *name)
{
    size_t length = strlen(name);

    if (length > TDM_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "%s of %zu bytes, at most %d: \"%.40s…\"", what, length,
                         TDM_NAME_BYTES_MAX, name);
    }
    if (!tdm__utf8_is_printable(name, length)) {
        return tdm__fail(TDM_E_INVAL, "%s of %zu bytes: wanted UTF-8 without control characters",
                         what, length);
    }
    return TDM_OK;
}

/* Sets the actor's name and name space from the user's options. */
static tdm_status spec_set_names(struct tdm__actor_spec *spec,
                                 const struct tdm_actor_options *options)
{
    TDM_TRY(spec_copy_text("actor name", options->name, spec->name, sizeof(spec->name)));
    TDM_TRY(spec_copy_text("name space", options->name_space, spec->name_space,
                           sizeof(spec->name_space)));
    TDM_TRY(tdm__check_name("actor name", spec->name));
    TDM_TRY(tdm__check_name("name space", spec->name_space));
    if (options->get_if_exists != 0 && spec->name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "get_if_exists needs a name");
    }
    spec->get_if_exists = options->get_if_exists != 0;
    return TDM_OK;
}

/* Returns TDM_E_INVAL unless `count`, an option named `what`, is at least -1. */
static tdm_status spec_check_count(const char *what, int32_t count)
{
    return count >= -1
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL, "%s %d: 0 or more, or -1 for no limit", what, (int)count);
}

/* Sets the actor's limits on restarts, retries and calls from the user's options. */
static tdm_status spec_set_limits(struct tdm__actor_spec *spec,
                                  const struct tdm_actor_options *options)
{
    TDM_TRY(spec_check_count("max_restarts", options->max_restarts));
    TDM_TRY(spec_check_count("max_task_retries", options->max_task_retries));
    if (options->max_concurrency > CONCURRENCY_MAX) {
        return tdm__fail(TDM_E_LIMIT, "max_concurrency %u, at most %d", options->max_concurrency,
                         (int)CONCURRENCY_MAX);
    }
    spec->max_restarts = options->max_restarts;
    spec->max_task_retries = options->max_task_retries;
    spec->max_concurrency = options->max_concurrency;
    spec->allow_out_of_order = options->allow_out_of_order != 0;
    spec->max_pending_calls = options->max_pending_calls;
    return TDM_OK;
}

/* Returns true if the number is one of enum tdm_scheduling. */
static bool is_scheduling_strategy(int64_t number)
{
    return number >= TDM_SCHEDULE_DEFAULT && number <= TDM_SCHEDULE_NODE_SOFT;
}

/* Sets the actor's scheduling strategy with its node, and the label constraints. */
static tdm_status spec_set_scheduling(struct tdm__actor_spec *spec,
                                      const struct tdm_actor_options *options)
{
    bool names_node =
        options->scheduling == TDM_SCHEDULE_NODE || options->scheduling == TDM_SCHEDULE_NODE_SOFT;

    if (!is_scheduling_strategy(options->scheduling)) {
        return tdm__fail(TDM_E_INVAL, "scheduling %d: there are 0 to %d", (int)options->scheduling,
                         (int)TDM_SCHEDULE_NODE_SOFT);
    }
    if (names_node != (options->node_id != NULL)) {
        return tdm__fail(TDM_E_INVAL, "a node_id goes with TDM_SCHEDULE_NODE and …_SOFT, and "
                                      "with nothing else");
    }
    if (options->group != NULL &&
        (options->scheduling != TDM_SCHEDULE_DEFAULT || options->labels[0] != NULL)) {
        return tdm__fail(TDM_E_INVAL, "an actor in a placement group lies where its bundle "
                                      "does: no scheduling, no labels");
    }
    spec->placement.scheduling = options->scheduling;
    if (names_node) {
        TDM_TRY(tdm__wrap(tdm__id_parse(options->node_id, &spec->placement.node), "node_id"));
    }
    for (uint32_t i = 0; i < TDM_LABELS_MAX && options->labels[i] != NULL; i++) {
        TDM_TRY(tdm__labels_add_constraint(&spec->placement.labels, options->labels[i]));
    }
    return TDM_OK;
}

/* Sets the environment variables. */
static tdm_status spec_set_environment(struct tdm__actor_spec *spec,
                                       const struct tdm_actor_options *options)
{
    const char *const *more = options->more_environment;

    for (uint32_t i = 0; i < TDM_ACTOR_ENVIRONMENT_MAX && options->environment[i] != NULL; i++) {
        TDM_TRY(spec_add_environment(spec, options->environment[i]));
    }
    for (uint32_t i = 0; more != NULL && more[i] != NULL; i++) {
        TDM_TRY(spec_add_environment(spec, more[i]));
    }
    return TDM_OK;
}

/* Fills the whole specification of an actor from the user's options. */
static tdm_status spec_fill(struct tdm__actor_spec *spec, const char *class_name,
                            const struct tdm_actor_options *options, struct tdm_bytes arguments)
{
    if (class_name == NULL || class_name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "an actor needs the name of a class");
    }
    TDM_TRY(tdm__id_generate(&spec->id));
    TDM_TRY(spec_copy_text("class name", class_name, spec->class_name, sizeof(spec->class_name)));
    TDM_TRY(spec_set_names(spec, options));
    TDM_TRY(spec_set_limits(spec, options));
    TDM_TRY(spec_set_scheduling(spec, options));
    TDM_TRY(spec_set_paths(spec, options));
    TDM_TRY(spec_set_resources(spec, options));
    TDM_TRY(spec_set_environment(spec, options));
    TDM_TRY(spec_set_metadata(spec, options->metadata));
    spec->keep_visible_devices = options->keep_visible_devices != 0;
    spec->detached = options->detached != 0;
    return tdm__actor_spec_set_arguments(spec, arguments);
}

tdm_status tdm__actor_spec_create(const char *class_name, const struct tdm_actor_options *options,
                                  struct tdm_bytes arguments, struct tdm__actor_spec **spec_out)
{
    static const struct tdm_actor_options defaults;
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    tdm_status status;

    if (spec == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an actor's description");
    }
    status = spec_fill(spec, class_name, options == NULL ? &defaults : options, arguments);
    if (status != TDM_OK) {
        tdm__actor_spec_destroy(spec);
        return status;
    }
    *spec_out = spec;
    return TDM_OK;
}

void tdm__actor_spec_destroy(struct tdm__actor_spec *spec)
{
    if (spec == NULL) {
        return;
    }
    text_list_free(&spec->program_arguments);
    text_list_free(&spec->environment);
    free(spec->arguments);
    free(spec->metadata);
    free(spec);
}

/* ---- as a message ------------------------------------------------------------------------ */

struct tdm__actor_spec_message tdm__actor_spec_to_message(const struct tdm__actor_spec *spec)
{
    struct tdm__actor_spec_message message = {
        .id = spec->id,
        .creator = spec->creator,
        .name = spec->name,
        .name_space = spec->name_space,
        .class_name = spec->class_name,
        .wanted = tdm__resources_to_message(&spec->placement.wanted),
        .group = spec->group,
        .bundle = spec->bundle,
        .program = spec->program,
        .library = spec->library,
        .directory = spec->directory,
        .program_arguments = {.count = spec->program_arguments.count,
                              .items = spec->program_arguments.items},
        .environment = {.count = spec->environment.count, .items = spec->environment.items},
        .arguments = {spec->arguments, spec->arguments_bytes},
        .metadata = {spec->metadata, spec->metadata_bytes},
        .job = spec->job,
        .scheduling = (int32_t)spec->placement.scheduling,
        .node = spec->placement.node,
        .labels = tdm__labels_list(&spec->placement.labels),
        .awaits_creator_arguments = spec->awaits_creator_arguments};

/* Copies one option from the specification to the message. */
#define FIELD(kind, field) message.field = spec->field;
#include "runtime/messages/actor_options.def"
#undef FIELD
    return message;
}

void tdm__actor_spec_write(tdm_writer *writer, const struct tdm__actor_spec *spec)
{
    const struct tdm__actor_spec_message message = tdm__actor_spec_to_message(spec);

    (void)tdm__actor_spec_encode(&message, writer);
}

/* Copies the texts of the message into the specification. */
static tdm_status spec_read_texts(const struct tdm__actor_spec_message *message,
                                  struct tdm__actor_spec *spec)
{
    TDM_TRY(spec_copy_text("actor name", message->name, spec->name, sizeof(spec->name)));
    TDM_TRY(spec_copy_text("name space", message->name_space, spec->name_space,
                           sizeof(spec->name_space)));
    TDM_TRY(spec_copy_text("class name", message->class_name, spec->class_name,
                           sizeof(spec->class_name)));
    TDM_TRY(spec_copy_text("program", message->program, spec->program, sizeof(spec->program)));
    TDM_TRY(spec_copy_text("library", message->library, spec->library, sizeof(spec->library)));
    TDM_TRY(spec_copy_text("working directory", message->directory, spec->directory,
                           sizeof(spec->directory)));
    for (uint32_t i = 0; i < message->program_arguments.count; i++) {
        const char *text;

        tdm__message_list_read(&message->program_arguments, i, &text, sizeof(text));
        TDM_TRY(tdm__text_list_add(&spec->program_arguments, text));
    }
    for (uint32_t i = 0; i < message->environment.count; i++) {
        const char *assignment;

        tdm__message_list_read(&message->environment, i, &assignment, sizeof(assignment));
        TDM_TRY(spec_add_environment(spec, assignment));
    }
    return TDM_OK;
}

/* Copies the resources, labels and scheduling of the message into `wish`. */
static tdm_status spec_read_placement(const struct tdm__actor_spec_message *message,
                                      struct tdm__placement_request *placement)
{
    if (!is_scheduling_strategy(message->scheduling)) {
        return tdm__fail(TDM_E_PROTOCOL, "actor description: no scheduling has the number %d",
                         message->scheduling);
    }
    placement->scheduling = (enum tdm_scheduling)message->scheduling;
    placement->node = message->node;
    TDM_TRY(tdm__labels_of_list(&message->labels, &placement->labels));
    return tdm__resources_of_message(&message->wanted, &placement->wanted);
}

/* Copies the whole message into the specification. */
static tdm_status spec_read_message(const struct tdm__actor_spec_message *message,
                                    struct tdm__actor_spec *spec)
{
    spec->id = message->id;
    spec->creator = message->creator;
    spec->group = message->group;
    spec->bundle = message->bundle;
    spec->job = message->job;
/* Copies one option from the message to the specification. */
#define FIELD(kind, field) spec->field = message->field;
#include "runtime/messages/actor_options.def"
#undef FIELD
    TDM_TRY(spec_read_texts(message, spec));
    TDM_TRY(spec_read_placement(message, &spec->placement));
    TDM_TRY(tdm__actor_spec_set_arguments(spec, message->arguments));
    TDM_TRY(spec_set_metadata(spec, message->metadata));
    spec->awaits_creator_arguments = message->awaits_creator_arguments;
    return TDM_OK;
}

tdm_status tdm__actor_spec_of_message(const struct tdm__actor_spec_message *message,
                                      struct tdm__actor_spec **spec_out)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    tdm_status status;

    if (spec == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an actor's description");
    }
    status = spec_read_message(message, spec);
    if (status != TDM_OK) {
        tdm__actor_spec_destroy(spec);
        return status;
    }
    *spec_out = spec;
    return TDM_OK;
}

tdm_status tdm__actor_spec_read(const tdm_value *value, struct tdm__actor_spec **spec_out)
{
    struct tdm__actor_spec_message message;

    TDM_TRY(tdm__actor_spec_decode(value, &message));
    return tdm__actor_spec_of_message(&message, spec_out);
}

const char *tdm__actor_label(const char *name, const char *class_name, const struct tdm__id *id,
                             char *text, size_t text_bytes)
{
    char id_text[TDM__ID_TEXT_BYTES];

    if (name[0] != '\0') {
        (void)snprintf(text, text_bytes, "%s", name);
    } else {
        (void)snprintf(text, text_bytes, "%s %.8s", class_name, tdm__id_text(id, id_text));
    }
    return tdm__utf8_trim(text);
}
