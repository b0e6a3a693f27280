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

static tdm_status set_arguments(struct tdm__actor_spec *spec, struct tdm_bytes arguments)
{
    spec->arguments = malloc(arguments.size_bytes == 0 ? 1 : arguments.size_bytes);
    if (spec->arguments == NULL) {
        return tdm__fail(TDM_E_NOMEM, "constructor arguments of %zu bytes",
                         arguments.size_bytes);
    }
    if (arguments.size_bytes > 0) {
        memcpy(spec->arguments, arguments.data, arguments.size_bytes);
    }
    spec->arguments_bytes = arguments.size_bytes;
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
    TDM_TRY(tdm__resources_add(&spec->wanted, "CPU", options->num_cpus));
    TDM_TRY(tdm__resources_add(&spec->wanted, "GPU", options->num_gpus));
    for (uint32_t i = 0; i < TDM_ACTOR_RESOURCES_MAX && options->resources[i].name != NULL;
         i++) {
        TDM_TRY(tdm__resources_add(&spec->wanted, options->resources[i].name,
                                   options->resources[i].amount));
    }
    if (options->group != NULL) {
        spec->group = options->group->id;
        spec->bundle = options->bundle;
        if (options->bundle >= options->group->bundles_count) {
            return tdm__fail(TDM_E_INVAL, "bundle %u of a group of %u", options->bundle,
                             options->group->bundles_count);
        }
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
    TDM_TRY(copy_text("actor name", options->name, spec->name, sizeof(spec->name)));
    TDM_TRY(set_paths(spec, options));
    TDM_TRY(set_resources(spec, options));
    for (uint32_t i = 0; i < TDM_ACTOR_ENVIRONMENT_MAX && options->environment[i] != NULL;
         i++) {
        TDM_TRY(add_environment(spec, options->environment[i]));
    }
    spec->keep_visible_devices = options->keep_visible_devices != 0;
    spec->detached = options->detached != 0;
    return set_arguments(spec, arguments);
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
    tdm_write_array(writer, 15);
    write_id(writer, &spec->id);
    write_id(writer, &spec->creator);
    tdm_write_string(writer, spec->name);
    tdm_write_string(writer, spec->name_space);
    tdm_write_string(writer, spec->class_name);
    tdm__resources_write(writer, &spec->wanted);
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

static tdm_status read_spec(const tdm_value *value, struct tdm__actor_spec *spec)
{
    const tdm_value *environment = tdm_value_at(value, 11);

    if (tdm_value_count(value) != 15) {
        return tdm__fail(TDM_E_PROTOCOL, "actor description of %u values, not 15",
                         tdm_value_count(value));
    }
    TDM_TRY(read_id(tdm_value_at(value, 0), "id", &spec->id));
    TDM_TRY(read_id(tdm_value_at(value, 1), "creator", &spec->creator));
    TDM_TRY(read_id(tdm_value_at(value, 6), "group", &spec->group));
    TDM_TRY(read_texts(value, spec));
    TDM_TRY(tdm__resources_read(tdm_value_at(value, 5), &spec->wanted));
    spec->bundle = (uint32_t)tdm_value_uint(tdm_value_at(value, 7), 0);
    for (uint32_t i = 0; i < tdm_value_count(environment); i++) {
        TDM_TRY(add_environment(spec, tdm_value_string(tdm_value_at(environment, i), "")));
    }
    spec->keep_visible_devices = tdm_value_bool(tdm_value_at(value, 12), 0) != 0;
    spec->detached = tdm_value_bool(tdm_value_at(value, 13), 0) != 0;
    return set_arguments(spec, tdm_value_bytes(tdm_value_at(value, 14)));
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
