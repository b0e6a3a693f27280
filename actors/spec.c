/* spec.c - everything a node needs to know to make an actor. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/spec.h"

#include "actors/placement_group.h"
#include "runtime/error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONCURRENCY_MAX = 100000, FIELDS = 27 };

/* Copies a text of 0 … room-1 bytes; NULL is "". */
static tdm_status copy_text(const char *what, const char *text, char *target, size_t room)
{
    size_t length = text == NULL ? 0 : strlen(text);

    if (length >= room) {
        return tdm__fail(TDM_E_INVAL, "%s of %zu bytes, at most %zu: \"%.40s…\"", what, length,
                         room - 1, text);
    }
    memcpy(target, text == NULL ? "" : text, length + 1);
    return TDM_OK;
}

static tdm_status add_environment(struct tdm__actor_spec *spec, const char *assignment)
{
    const char *equals = strchr(assignment, '=');

    if (equals == NULL || equals == assignment) {
        return tdm__fail(TDM_E_INVAL, "environment \"%.60s\" is not NAME=value", assignment);
    }
    if (spec->environment_count == TDM_ACTOR_ENVIRONMENT_MAX) {
        return tdm__fail(TDM_E_LIMIT, "more than %d environment settings for one actor",
                         (int)TDM_ACTOR_ENVIRONMENT_MAX);
    }
    spec->environment[spec->environment_count] = strdup(assignment);
    if (spec->environment[spec->environment_count] == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an environment setting");
    }
    spec->environment_count++;
    return TDM_OK;
}

tdm_status tdm__actor_spec_set_arguments(struct tdm__actor_spec *spec,
                                         struct tdm_bytes arguments)
{
    void *copy = malloc(arguments.size_bytes == 0 ? 1 : arguments.size_bytes);

    if (copy == NULL) {
        return tdm__fail(TDM_E_NOMEM, "constructor arguments of %zu bytes",
                         arguments.size_bytes);
    }
    if (arguments.size_bytes > 0) {
        memcpy(copy, arguments.data, arguments.size_bytes);
    }
    free(spec->arguments);
    spec->arguments = copy;
    spec->arguments_bytes = arguments.size_bytes;
    spec->awaits_arguments = false;
    return TDM_OK;
}

static tdm_status own_program(char *target, size_t room)
{
    ssize_t length = readlink("/proc/self/exe", target, room - 1);

    if (length < 0 || (size_t)length >= room - 1) {
        return tdm__fail_errno(length < 0 ? errno : ENAMETOOLONG, "readlink /proc/self/exe");
    }
    target[length] = '\0';
    return TDM_OK;
}

/* A path is made whole, since the worker may run in another directory; a bare name is looked
 * for by the worker's dlopen(). */
static tdm_status set_library(struct tdm__actor_spec *spec, const char *library)
{
    char *real;
    tdm_status status;

    if (strchr(library, '/') == NULL) {
        return copy_text("library", library, spec->library, sizeof(spec->library));
    }
    real = realpath(library, NULL);
    if (real == NULL) {
        return tdm__fail_errno(errno, "library %s", library);
    }
    status = copy_text("library", real, spec->library, sizeof(spec->library));
    free(real);
    return status;
}

static tdm_status set_paths(struct tdm__actor_spec *spec,
                            const struct tdm_actor_options *options)
{
    TDM_TRY(options->library != NULL ? set_library(spec, options->library)
                                     : own_program(spec->program, sizeof(spec->program)));
    if (options->working_directory != NULL) {
        return copy_text("working directory", options->working_directory, spec->directory,
                         sizeof(spec->directory));
    }
    if (getcwd(spec->directory, sizeof(spec->directory)) == NULL) {
        return tdm__fail_errno(errno, "getcwd");
    }
    return TDM_OK;
}

static tdm_status set_resources(struct tdm__actor_spec *spec,
                                const struct tdm_actor_options *options)
{
    struct tdm__resources *wanted = &spec->wish.wanted;

    TDM_TRY(tdm__resources_add(wanted, "CPU", options->num_cpus));
    TDM_TRY(tdm__resources_add(wanted, "GPU", options->num_gpus));
    TDM_TRY(tdm__resources_add(wanted, "memory", (double)options->memory_bytes));
    for (uint32_t i = 0; i < TDM_ACTOR_RESOURCES_MAX && options->resources[i].name != NULL;
         i++) {
        TDM_TRY(tdm__resources_add(wanted, options->resources[i].name,
                                   options->resources[i].amount));
    }
    if (options->capture_children != 0 && options->group == NULL) {
        return tdm__fail(TDM_E_INVAL, "capture_children goes with a placement group");
    }
    if (options->group != NULL) {
        spec->group = options->group->id;
        spec->bundle = options->bundle;
        spec->captures_children = options->capture_children != 0;
        if (options->bundle >= options->group->bundles_count &&
            options->bundle != TDM_BUNDLE_ANY) {
            return tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", options->bundle,
                             options->group->bundles_count);
        }
    }
    return TDM_OK;
}

tdm_status tdm__name_check(const char *what, const char *name, const char *forbidden)
{
    for (const char *byte = name; *byte != '\0'; byte++) {
        if (*byte < ' ' || *byte > '~' || strchr(forbidden, *byte) != NULL) {
            return tdm__fail(TDM_E_INVAL, "%s \"%.63s\": printable ASCII without \"%s\"", what,
                             name, forbidden);
        }
    }
    return TDM_OK;
}

static tdm_status set_names(struct tdm__actor_spec *spec,
                            const struct tdm_actor_options *options)
{
    TDM_TRY(copy_text("actor name", options->name, spec->name, sizeof(spec->name)));
    TDM_TRY(copy_text("name space", options->name_space, spec->name_space,
                      sizeof(spec->name_space)));
    TDM_TRY(tdm__name_check("actor name", spec->name, "*"));
    TDM_TRY(tdm__name_check("name space", spec->name_space, "*/"));
    if (options->get_if_exists != 0 && spec->name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "get_if_exists needs a name");
    }
    spec->get_if_exists = options->get_if_exists != 0;
    return TDM_OK;
}

static tdm_status check_count(const char *what, int32_t count)
{
    return count >= -1 ? TDM_OK
                       : tdm__fail(TDM_E_INVAL, "%s %d: 0 or more, or -1 for no limit", what,
                                   (int)count);
}

static tdm_status set_limits(struct tdm__actor_spec *spec,
                             const struct tdm_actor_options *options)
{
    TDM_TRY(check_count("max_restarts", options->max_restarts));
    TDM_TRY(check_count("max_task_retries", options->max_task_retries));
    if (options->max_concurrency > CONCURRENCY_MAX) {
        return tdm__fail(TDM_E_LIMIT, "max_concurrency %u, at most %d",
                         options->max_concurrency, (int)CONCURRENCY_MAX);
    }
    spec->max_restarts = options->max_restarts;
    spec->max_task_retries = options->max_task_retries;
    spec->max_concurrency = options->max_concurrency;
    spec->allow_out_of_order = options->allow_out_of_order != 0;
    spec->max_pending_calls = options->max_pending_calls;
    return TDM_OK;
}

static bool is_scheduling(int64_t number)
{
    return number >= TDM_SCHEDULE_DEFAULT && number <= TDM_SCHEDULE_NODE_SOFT;
}

static tdm_status set_scheduling(struct tdm__actor_spec *spec,
                                 const struct tdm_actor_options *options)
{
    bool names_node = options->scheduling == TDM_SCHEDULE_NODE ||
                      options->scheduling == TDM_SCHEDULE_NODE_SOFT;

    if (!is_scheduling(options->scheduling)) {
        return tdm__fail(TDM_E_INVAL, "scheduling %d: there are 0 to %d",
                         (int)options->scheduling, (int)TDM_SCHEDULE_NODE_SOFT);
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
    spec->wish.scheduling = options->scheduling;
    if (names_node) {
        TDM_TRY(tdm__wrap(tdm__id_parse(options->node_id, &spec->wish.node), "node_id"));
    }
    for (uint32_t i = 0; i < TDM_LABELS_MAX && options->labels[i] != NULL; i++) {
        TDM_TRY(tdm__labels_add_wish(&spec->wish.labels, options->labels[i]));
    }
    return TDM_OK;
}

static tdm_status fill_spec(struct tdm__actor_spec *spec, const char *class_name,
                            const struct tdm_actor_options *options, struct tdm_bytes arguments)
{
    if (class_name == NULL || class_name[0] == '\0') {
        return tdm__fail(TDM_E_INVAL, "an actor needs the name of a class");
    }
    TDM_TRY(tdm__id_make(&spec->id));
    TDM_TRY(copy_text("class name", class_name, spec->class_name, sizeof(spec->class_name)));
    TDM_TRY(set_names(spec, options));
    TDM_TRY(set_limits(spec, options));
    TDM_TRY(set_scheduling(spec, options));
    TDM_TRY(set_paths(spec, options));
    TDM_TRY(set_resources(spec, options));
    for (uint32_t i = 0; i < TDM_ACTOR_ENVIRONMENT_MAX && options->environment[i] != NULL;
         i++) {
        TDM_TRY(add_environment(spec, options->environment[i]));
    }
    spec->keep_visible_devices = options->keep_visible_devices != 0;
    spec->detached = options->detached != 0;
    return tdm__actor_spec_set_arguments(spec, arguments);
}

tdm_status tdm__actor_spec_make(const char *class_name, const struct tdm_actor_options *options,
                                struct tdm_bytes arguments, struct tdm__actor_spec **spec_out)
{
    static const struct tdm_actor_options defaults;
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    tdm_status status;

    if (spec == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an actor's description");
    }
    status = fill_spec(spec, class_name, options == NULL ? &defaults : options, arguments);
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
    for (uint32_t i = 0; i < spec->environment_count; i++) {
        free(spec->environment[i]);
    }
    free(spec->arguments);
    free(spec);
}

/* ---- as a value ------------------------------------------------------------------------- */

static void write_id(tdm_writer *writer, const struct tdm__id *id)
{
    tdm_write_bytes(writer, id->bytes, sizeof(id->bytes));
}

void tdm__actor_spec_write(tdm_writer *writer, const struct tdm__actor_spec *spec)
{
    tdm_write_array(writer, FIELDS);
    write_id(writer, &spec->id);
    write_id(writer, &spec->creator);
    tdm_write_string(writer, spec->name);
    tdm_write_string(writer, spec->name_space);
    tdm_write_string(writer, spec->class_name);
    tdm__resources_write(writer, &spec->wish.wanted);
    write_id(writer, &spec->group);
    tdm_write_uint(writer, spec->bundle);
    tdm_write_string(writer, spec->program);
    tdm_write_string(writer, spec->library);
    tdm_write_string(writer, spec->directory);
    tdm_write_array(writer, spec->environment_count);
    for (uint32_t i = 0; i < spec->environment_count; i++) {
        tdm_write_string(writer, spec->environment[i]);
    }
    tdm_write_bool(writer, spec->keep_visible_devices);
    tdm_write_bool(writer, spec->detached);
    tdm_write_bytes(writer, spec->arguments, spec->arguments_bytes);
    write_id(writer, &spec->job);
    tdm_write_int(writer, spec->wish.scheduling);
    write_id(writer, &spec->wish.node);
    tdm__labels_write(writer, &spec->wish.labels);
    tdm_write_bool(writer, spec->get_if_exists);
    tdm_write_int(writer, spec->max_restarts);
    tdm_write_int(writer, spec->max_task_retries);
    tdm_write_uint(writer, spec->max_concurrency);
    tdm_write_uint(writer, spec->max_pending_calls);
    tdm_write_bool(writer, spec->captures_children);
    tdm_write_bool(writer, spec->allow_out_of_order);
    tdm_write_bool(writer, spec->awaits_arguments);
}

static tdm_status read_id(const tdm_value *value, const char *what, struct tdm__id *id)
{
    struct tdm_bytes bytes = tdm_value_bytes(value);

    if (bytes.size_bytes != sizeof(id->bytes)) {
        return tdm__fail(TDM_E_PROTOCOL, "actor description: %s of %zu bytes, an id has %zu",
                         what, bytes.size_bytes, sizeof(id->bytes));
    }
    memcpy(id->bytes, bytes.data, sizeof(id->bytes));
    return TDM_OK;
}

static tdm_status read_texts(const tdm_value *value, struct tdm__actor_spec *spec)
{
    TDM_TRY(copy_text("actor name", tdm_value_string(tdm_value_at(value, 2), NULL), spec->name,
                      sizeof(spec->name)));
    TDM_TRY(copy_text("name space", tdm_value_string(tdm_value_at(value, 3), NULL),
                      spec->name_space, sizeof(spec->name_space)));
    TDM_TRY(copy_text("class name", tdm_value_string(tdm_value_at(value, 4), NULL),
                      spec->class_name, sizeof(spec->class_name)));
    TDM_TRY(copy_text("program", tdm_value_string(tdm_value_at(value, 8), NULL), spec->program,
                      sizeof(spec->program)));
    TDM_TRY(copy_text("library", tdm_value_string(tdm_value_at(value, 9), NULL), spec->library,
                      sizeof(spec->library)));
    return copy_text("working directory", tdm_value_string(tdm_value_at(value, 10), NULL),
                     spec->directory, sizeof(spec->directory));
}

static tdm_status read_wish(const tdm_value *value, struct tdm__actor_spec *spec)
{
    int64_t scheduling = tdm_value_int(tdm_value_at(value, 16), -1);

    if (!is_scheduling(scheduling)) {
        return tdm__fail(TDM_E_PROTOCOL, "actor description: no scheduling has the number %lld",
                         (long long)scheduling);
    }
    spec->wish.scheduling = (enum tdm_scheduling)scheduling;
    TDM_TRY(read_id(tdm_value_at(value, 17), "node", &spec->wish.node));
    TDM_TRY(tdm__labels_read(tdm_value_at(value, 18), &spec->wish.labels));
    return tdm__resources_read(tdm_value_at(value, 5), &spec->wish.wanted);
}

static void read_limits(const tdm_value *value, struct tdm__actor_spec *spec)
{
    spec->max_restarts = (int32_t)tdm_value_int(tdm_value_at(value, 20), 0);
    spec->max_task_retries = (int32_t)tdm_value_int(tdm_value_at(value, 21), 0);
    spec->max_concurrency = (uint32_t)tdm_value_uint(tdm_value_at(value, 22), 0);
    spec->max_pending_calls = (uint32_t)tdm_value_uint(tdm_value_at(value, 23), 0);
}

static tdm_status read_spec(const tdm_value *value, struct tdm__actor_spec *spec)
{
    const tdm_value *environment = tdm_value_at(value, 11);

    if (tdm_value_count(value) != FIELDS) {
        return tdm__fail(TDM_E_PROTOCOL, "actor description of %u values, not %d",
                         tdm_value_count(value), (int)FIELDS);
    }
    TDM_TRY(read_id(tdm_value_at(value, 0), "id", &spec->id));
    TDM_TRY(read_id(tdm_value_at(value, 1), "creator", &spec->creator));
    TDM_TRY(read_id(tdm_value_at(value, 6), "group", &spec->group));
    TDM_TRY(read_texts(value, spec));
    TDM_TRY(read_id(tdm_value_at(value, 15), "job", &spec->job));
    TDM_TRY(read_wish(value, spec));
    read_limits(value, spec);
    spec->bundle = (uint32_t)tdm_value_uint(tdm_value_at(value, 7), 0);
    spec->captures_children = tdm_value_bool(tdm_value_at(value, 24), 0) != 0;
    spec->allow_out_of_order = tdm_value_bool(tdm_value_at(value, 25), 0) != 0;
    for (uint32_t i = 0; i < tdm_value_count(environment); i++) {
        TDM_TRY(add_environment(spec, tdm_value_string(tdm_value_at(environment, i), "")));
    }
    spec->keep_visible_devices = tdm_value_bool(tdm_value_at(value, 12), 0) != 0;
    spec->detached = tdm_value_bool(tdm_value_at(value, 13), 0) != 0;
    spec->get_if_exists = tdm_value_bool(tdm_value_at(value, 19), 0) != 0;
    TDM_TRY(tdm__actor_spec_set_arguments(spec, tdm_value_bytes(tdm_value_at(value, 14))));
    spec->awaits_arguments = tdm_value_bool(tdm_value_at(value, 26), 0) != 0;
    return TDM_OK;
}

tdm_status tdm__actor_spec_read(const tdm_value *value, struct tdm__actor_spec **spec_out)
{
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));
    tdm_status status;

    if (spec == NULL) {
        return tdm__fail(TDM_E_NOMEM, "an actor's description");
    }
    status = read_spec(value, spec);
    if (status != TDM_OK) {
        tdm__actor_spec_destroy(spec);
        return status;
    }
    *spec_out = spec;
    return TDM_OK;
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
    return text;
}
