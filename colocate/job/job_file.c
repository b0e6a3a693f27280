/* job_file.c - reads a job file into a struct and checks every setting. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The table `settings` is the specification of every setting that Tandem reads: path, type,
 * field, range and default.
 * Reading has three steps. First, all keys of the file must be known; sections of the job library
 * may have keys of their own. Second, every value is read and checked against its range. Third,
 * settings that depend on each other are compared. An unknown key that resembles a known one is
 * reported with a suggestion.
 * Errors name the file, the line and the setting. docs/job-file.md documents the settings for
 * users. All functions are pure except for reading the file. */
#include "colocate/job/job_file.h"

#include "colocate/device/kinds.h"
#include "colocate/job/gather_groups.h"
#include "colocate/job/suggestion.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table of settings -------------------------------------------------------------- */

/* Type of a setting, which determines the type of its field in struct tdm__job_spec. */
enum setting_kind {
    /* Setting of type uint32_t. */
    COUNT,
    SEED, /* uint64_t */
    /* Setting of type uint64_t, written as a number or with a unit, as in "64 KiB". */
    BYTES,
    /* A number, as double. */
    NUMBER,
    /* A bool: true or false. */
    FLAG,
    /* Setting of type char[TDM__JOB_TEXT_BYTES]. */
    TEXT,
    /* A char array of TDM__PATH_BYTES; relative paths, except job.out, start at the folder of the
     * job file. */
    PATH
};

/* One setting of the job file. */
struct setting {
    /* Section and key, for example "job.seed". */
    const char *path;
    /* Type of the value. */
    enum setting_kind kind;
    /* Offset of the field in struct tdm__job_spec. */
    size_t offset;
    /* Smallest value of a number. */
    double low;
    /* Greatest value of a number. */
    double high;
    /* Value of a number, or of a flag as 0 or 1, that the file does not set. */
    double default_number;
    /* Value of a text or path that the file does not set; NULL if the file must set it. */
    const char *default_text;
};

/* Offset of a field of the job spec, and sizes in bytes. */
#define FIELD(name) offsetof(struct tdm__job_spec, name)
#define MIB         (1024.0 * 1024.0)
#define GIB         (1024.0 * MIB)

/* One day in milliseconds; the longest timeout. */
enum { DAY_MS = 24 * 60 * 60 * 1000 };

/* All settings, in the order of the documentation. */
static const struct setting settings[] = {
    {"job.name", TEXT, FIELD(name), 0, 0, 0, "job"},
    {"job.seed", SEED, FIELD(seed), 0, 9e18, 0, NULL},
    {"job.library", PATH, FIELD(library), 0, 0, 0, NULL},
    {"job.python", PATH, FIELD(python), 0, 0, 0, "python3"},
    {"job.files", PATH, FIELD(files), 0, 0, 0, ""},
    {"job.out", PATH, FIELD(out), 0, 0, 0, ""},
    {"job.save_interval", COUNT, FIELD(save_interval), 0, 1e9, 50, NULL},
    {"job.max_restarts", COUNT, FIELD(max_restarts), 0, 1e9, 3, NULL},
    {"job.start_timeout_ms", COUNT, FIELD(start_timeout_ms), 1, DAY_MS, 60000, NULL},

    {"cluster.num_gpus", COUNT, FIELD(num_gpus), 1, TDM__JOB_GPUS_MAX, 4, NULL},
    {"cluster.gpu_bytes", BYTES, FIELD(gpu_bytes), 2 * MIB, 4096 * GIB, 256 * MIB, NULL},
    {"cluster.device", TEXT, FIELD(device), 0, 0, 0, "host"},
    {"cluster.cpus", NUMBER, FIELD(cpus), 0, 65536, 0, NULL},

    {"trainer.num_ranks", COUNT, FIELD(trainer_num_ranks), 1, TDM__JOB_GPUS_MAX, 4, NULL},
    {"trainer.num_gpus_per_actor", NUMBER, FIELD(trainer_num_gpus_per_actor), 0.01, 1, 0.4, NULL},
    {"trainer.step_timeout_ms", COUNT, FIELD(step_timeout_ms), 1, DAY_MS, 60000, NULL},
    {"trainer.stall_timeout_ms", COUNT, FIELD(trainer_stall_timeout_ms), 100, DAY_MS, 15000, NULL},

    {"engine.num_engines", COUNT, FIELD(num_engines), 1, TDM__JOB_ENGINES_MAX, 2, NULL},
    {"engine.rollout_num_gpus_per_engine", COUNT, FIELD(rollout_num_gpus_per_engine), 1,
     TDM__JOB_ENGINE_RANKS_MAX, 2, NULL},
    {"engine.num_gpus_per_actor", NUMBER, FIELD(engine_num_gpus_per_actor), 0.01, 1, 0.2, NULL},
    {"engine.generate_timeout_ms", COUNT, FIELD(generate_timeout_ms), 1, DAY_MS, 60000, NULL},
    {"engine.colocate", FLAG, FIELD(engine_colocate), 0, 0, 1, NULL},

    {"model.config", PATH, FIELD(model_config), 0, 0, 0, ""},

    {"rollout.rollout_batch_size", COUNT, FIELD(rollout_batch_size), 1, 65536, 64, NULL},
    {"rollout.n_samples_per_prompt", COUNT, FIELD(n_samples_per_prompt), 1, 4096, 16, NULL},
    {"rollout.global_batch_size", COUNT, FIELD(global_batch_size), 0, 1e6, 0, NULL},
    {"rollout.temperature", NUMBER, FIELD(temperature), 0, 1e3, 1, NULL},
    {"rollout.rollout_max_prompt_len", COUNT, FIELD(rollout_max_prompt_len), 1, 65536, 8, NULL},
    {"rollout.rollout_max_response_len", COUNT, FIELD(rollout_max_response_len), 1, 65536, 5, NULL},
    {"rollout.num_rollout", COUNT, FIELD(num_rollout), 0, 1e9, 260, NULL},
    {"rollout.warmup_steps", COUNT, FIELD(warmup_steps), 0, 1e9, 15, NULL},
    {"rollout.warmup_batch_size", COUNT, FIELD(warmup_batch_size), 1, 65536, 64, NULL},
    {"rollout.num_engines_min", COUNT, FIELD(num_engines_min), 0, TDM__JOB_ENGINES_MAX, 0, NULL},
    {"rollout.reward_timeout_ms", COUNT, FIELD(reward_timeout_ms), 1, DAY_MS, 10000, NULL},
    {"rollout.rewards_timeout_ms", COUNT, FIELD(rewards_timeout_ms), 1, DAY_MS, 60000, NULL},
    {"rollout.reward_failures_max", COUNT, FIELD(reward_failures_max), 0, 1e6, 0, NULL},
    {"rollout.eval_interval", COUNT, FIELD(eval_interval), 0, 1e9, 0, NULL},

    {"update.update_weight_buffer_size", BYTES, FIELD(update_weight_buffer_size), 4096, GIB,
     64 * 1024, NULL},
    {"update.model", TEXT, FIELD(update_model), 0, 0, 0, TDM__JOB_MODEL},
    {"update.source", TEXT, FIELD(update_source), 0, 0, 0, "tensors"},
    {"update.enabled", FLAG, FIELD(update_enabled), 0, 0, 1, NULL},
    {"update.mode", TEXT, FIELD(update_mode), 0, 0, 0, "donate"},
    {"update.verify", TEXT, FIELD(verify), 0, 0, 0, "full"},
    {"update.logprob_tolerance", NUMBER, FIELD(logprob_tolerance), 0, 1e3, 0, NULL},
    {"update.logprob_tolerance_converted", NUMBER, FIELD(logprob_tolerance_converted), 0, 1e3, 0,
     NULL},
    {"update.timeout_ms", COUNT, FIELD(update_timeout_ms), 1, DAY_MS, 30000, NULL},
    {"update.stall_timeout_ms", COUNT, FIELD(update_stall_timeout_ms), 100, DAY_MS, 4000, NULL},

    {"data.train", PATH, FIELD(train), 0, 0, 0, NULL},
    {"data.unseen", PATH, FIELD(unseen), 0, 0, 0, NULL},
    {"data.prompt_key", TEXT, FIELD(prompt_key), 0, 0, 0, "prompt"},
    {"data.answer_key", TEXT, FIELD(answer_key), 0, 0, 0, "answer"},
    {"data.shuffle_rewards", FLAG, FIELD(shuffle_rewards), 0, 0, 0, NULL},
};

enum { SETTINGS_COUNT = sizeof(settings) / sizeof(settings[0]) };

/* One section of a job file. */
static const struct section {
    /* Key at the top level of the file. */
    const char *name;
    /* True if the job library may have settings of its own here. Unknown keys are then accepted,
     * unless they resemble a setting that the file does not set. */
    bool is_open;
} sections[] = {{"job", false},  {"cluster", false}, {"trainer", true}, {"engine", true},
                {"model", true}, {"rollout", false}, {"update", false}, {"data", false}};

enum { SECTIONS_COUNT = sizeof(sections) / sizeof(sections[0]) };

/* ---- unknown keys ----------------------------------------------------------------------- */

/* Returns the section with this name; NULL if it does not exist. */
static const struct section *find_section(const char *name)
{
    for (size_t i = 0; i < SECTIONS_COUNT; i++) {
        if (strcmp(sections[i].name, name) == 0) {
            return &sections[i];
        }
    }
    return NULL;
}

/* Reports an unknown section, with a suggestion if there is one. */
static tdm_status refuse_section(const tdm_config *config, const char *name)
{
    const char *known[SECTIONS_COUNT];
    const char *suggestion;

    for (size_t i = 0; i < SECTIONS_COUNT; i++) {
        known[i] = sections[i].name;
    }
    suggestion = tdm__suggestion_find(name, known, SECTIONS_COUNT);
    return tdm__fail(TDM_E_INVAL, "%s: unknown section \"%s\"%s%s%s",
                     tdm_config_where(config, name), name,
                     suggestion == NULL ? "" : "; did you mean ",
                     suggestion == NULL ? "" : suggestion, suggestion == NULL ? "" : "?");
}

/* Returns whether the setting `suggestion` exists and belongs to the section. */
static bool is_of_section(const struct section *section, const char *suggestion)
{
    size_t length = strlen(section->name);

    return suggestion != NULL && strncmp(suggestion, section->name, length) == 0 &&
           suggestion[length] == '.';
}

/* Returns whether a key of an open section is probably Tandem's setting `suggestion`, mistyped:
 * that setting belongs to the section and is not set. */
static bool is_mistyped(const tdm_config *config, const struct section *section,
                        const char *suggestion)
{
    return is_of_section(section, suggestion) && !tdm_config_has(config, suggestion);
}

/* Checks that a key of a section is a setting, or may be one of the job library. */
static tdm_status check_key(const tdm_config *config, const struct section *section,
                            const char *path)
{
    const char *known[SETTINGS_COUNT];
    const char *suggestion;

    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        known[i] = settings[i].path;
        if (strcmp(path, known[i]) == 0) {
            return TDM_OK;
        }
    }
    suggestion = tdm__suggestion_find(path, known, SETTINGS_COUNT);
    if (section->is_open && !is_mistyped(config, section, suggestion)) {
        if (is_of_section(section, suggestion)) {
            tdm__log(TDM__WARN, "job",
                     "%s: %s is no setting of Tandem; did you mean %s? It is left to the job "
                     "library",
                     tdm_config_where(config, path), path, suggestion);
        }
        return TDM_OK;
    }
    return tdm__fail(TDM_E_INVAL, "%s: unknown setting %s%s%s%s", tdm_config_where(config, path),
                     path, suggestion == NULL ? "" : "; did you mean ",
                     suggestion == NULL ? "" : suggestion, suggestion == NULL ? "" : "?");
}

/* Returns whether the value at `path` is a map, an empty one included. */
static bool is_map(const tdm_config *config, const char *path)
{
    const char *text;
    double number;
    int flag;

    return tdm_config_key(config, path, 0) != NULL ||
           (tdm_config_count(config, path) == 0 &&
            tdm_config_string(config, path, "", &text) != TDM_OK &&
            tdm_config_double(config, path, 0, &number) != TDM_OK &&
            tdm_config_bool(config, path, 0, &flag) != TDM_OK);
}

/* Checks all keys of a section. */
static tdm_status check_section(const tdm_config *config, const struct section *section)
{
    char path[256];
    const char *key;

    if (!tdm_config_has(config, section->name)) {
        return TDM_OK;
    }
    if (!is_map(config, section->name)) {
        return tdm__fail(TDM_E_TYPE, "%s: %s must be a map of settings",
                         tdm_config_where(config, section->name), section->name);
    }
    for (uint32_t i = 0; (key = tdm_config_key(config, section->name, i)) != NULL; i++) {
        (void)snprintf(path, sizeof(path), "%s.%s", section->name, key);
        TDM_TRY(check_key(config, section, path));
    }
    return TDM_OK;
}

/* Checks all keys of the file. */
static tdm_status check_keys(const tdm_config *config)
{
    const struct section *section;
    const char *name;

    for (uint32_t i = 0; (name = tdm_config_key(config, "", i)) != NULL; i++) {
        section = find_section(name);
        if (section == NULL) {
            return refuse_section(config, name);
        }
        TDM_TRY(check_section(config, section));
    }
    return TDM_OK;
}

/* ---- values ----------------------------------------------------------------------------- */

/* Units of sizes; each divides the next one. */
static const struct {
    /* Text behind the number. */
    const char *name;
    /* Bytes of one unit. */
    uint64_t size_bytes;
} units[] = {
    {"B", 1}, {"KiB", 1ULL << 10}, {"MiB", 1ULL << 20}, {"GiB", 1ULL << 30}, {"TiB", 1ULL << 40}};

/* Number of units, and size in bytes of the buffer for a formatted number. */
enum { UNITS_COUNT = sizeof(units) / sizeof(units[0]), BOUND_BYTES = 32 };

/* Formats a number for an error message. Sizes appear in the largest unit that divides them,
 * counts as integers. Returns `text`. */
static const char *write_bound(enum setting_kind kind, double value, char text[BOUND_BYTES])
{
    size_t unit = 0;

    if (kind == NUMBER) {
        (void)snprintf(text, BOUND_BYTES, "%.10g", value);
        return text;
    }
    if (kind != BYTES) {
        (void)snprintf(text, BOUND_BYTES, "%.0f", value);
        return text;
    }
    while (unit + 1 < UNITS_COUNT && value > 0 &&
           (uint64_t)value % units[unit + 1].size_bytes == 0) {
        unit++;
    }
    (void)snprintf(text, BOUND_BYTES, "%.0f %s", value / (double)units[unit].size_bytes,
                   units[unit].name);
    return text;
}

/* Reports a number that is out of its range. */
static tdm_status refuse_range(const tdm_config *config, const struct setting *setting,
                               double value)
{
    char given[BOUND_BYTES];
    char low[BOUND_BYTES];
    char high[BOUND_BYTES];

    return tdm__fail(TDM_E_INVAL, "%s: %s is %s, expected %s to %s",
                     tdm_config_where(config, setting->path), setting->path,
                     write_bound(setting->kind, value, given),
                     write_bound(setting->kind, setting->low, low),
                     write_bound(setting->kind, setting->high, high));
}

/* Reads a whole number and checks its range. */
static tdm_status read_integer(const tdm_config *config, const struct setting *setting,
                               uint64_t *value_out)
{
    int64_t value = 0;

    TDM_TRY(tdm_config_int(config, setting->path, (int64_t)setting->default_number, &value));
    if ((double)value < setting->low || (double)value > setting->high) {
        return refuse_range(config, setting, (double)value);
    }
    *value_out = (uint64_t)value;
    return TDM_OK;
}

/* Parses a size such as "64 KiB": digits, an optional space and a unit. Returns 0 for anything
 * else. */
static uint64_t parse_bytes(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    uint64_t value;

    if (digits == 0 || digits > 15) {
        return 0;
    }
    value = strtoull(text, NULL, 10);
    text += digits;
    text += *text == ' ';
    for (size_t i = 0; i < UNITS_COUNT; i++) {
        if (strcmp(text, units[i].name) == 0 &&
            !__builtin_mul_overflow(value, units[i].size_bytes, &value)) {
            return value;
        }
    }
    return 0;
}

/* Reads a size, with or without a unit, and checks its range. */
static tdm_status read_bytes(const tdm_config *config, const struct setting *setting,
                             uint64_t *value_out)
{
    const char *text = NULL;
    uint64_t value;

    if (tdm_config_string(config, setting->path, NULL, &text) != TDM_OK || text == NULL) {
        return read_integer(config, setting, value_out);
    }
    value = parse_bytes(text);
    if (value == 0) {
        return tdm__fail(TDM_E_TYPE, "%s: %s must be a size, as in \"64 KiB\", got \"%.40s\"",
                         tdm_config_where(config, setting->path), setting->path, text);
    }
    if ((double)value < setting->low || (double)value > setting->high) {
        return refuse_range(config, setting, (double)value);
    }
    *value_out = value;
    return TDM_OK;
}

/* Returns whether the text of a setting is left as it is: it is no path, or relative to the current
 * folder, or no path to a file at all, as in `library: python:my_job` and `python: python3`, or a
 * list of names. */
static bool is_left_as_it_is(const struct setting *setting, const char *text)
{
    return setting->kind != PATH || strcmp(setting->path, "job.out") == 0 ||
           strcmp(setting->path, "job.files") == 0 ||
           (strcmp(setting->path, "job.library") == 0 &&
            strncmp(text, TDM__PYTHON_PREFIX, strlen(TDM__PYTHON_PREFIX)) == 0) ||
           (strcmp(setting->path, "job.python") == 0 && strchr(text, '/') == NULL);
}

/* Reads a text or a path. Relative paths, with few exceptions, are joined with the folder of the
 * job file. */
static tdm_status read_text(const tdm_config *config, const struct setting *setting,
                            const char *directory, char *field)
{
    size_t size_bytes = setting->kind == PATH ? TDM__PATH_BYTES : TDM__JOB_TEXT_BYTES;
    const char *text = NULL;
    bool is_here;
    int length;

    TDM_TRY(tdm_config_string(config, setting->path, setting->default_text, &text));
    if (text == NULL || (text[0] == '\0' && setting->default_text == NULL)) {
        return tdm__fail(TDM_E_INVAL, "%s: %s is missing", tdm_config_where(config, setting->path),
                         setting->path);
    }
    is_here = is_left_as_it_is(setting, text) || text[0] == '/' || text[0] == '\0' ||
              directory[0] == '\0';
    length =
        snprintf(field, size_bytes, "%s%s%s", is_here ? "" : directory, is_here ? "" : "/", text);
    if (length < 0 || (size_t)length >= size_bytes) {
        return tdm__fail(TDM_E_LIMIT, "%s: %s has %d bytes, the limit is %zu",
                         tdm_config_where(config, setting->path), setting->path, length,
                         size_bytes - 1);
    }
    return TDM_OK;
}

/* Reads a setting of kind COUNT. */
static tdm_status read_count(const tdm_config *config, const struct setting *setting,
                             uint32_t *value_out)
{
    uint64_t value = 0;

    TDM_TRY(read_integer(config, setting, &value));
    *value_out = (uint32_t)value;
    return TDM_OK;
}

/* Reads a setting of kind NUMBER. */
static tdm_status read_number(const tdm_config *config, const struct setting *setting,
                              double *value_out)
{
    double value = 0;

    TDM_TRY(tdm_config_double(config, setting->path, setting->default_number, &value));
    if (value < setting->low || value > setting->high) {
        return refuse_range(config, setting, value);
    }
    *value_out = value;
    return TDM_OK;
}

/* Reads a setting of kind FLAG. */
static tdm_status read_flag(const tdm_config *config, const struct setting *setting,
                            bool *value_out)
{
    int value = 0;

    TDM_TRY(tdm_config_bool(config, setting->path, setting->default_number > 0, &value));
    *value_out = value != 0;
    return TDM_OK;
}

/* Reads one setting into its field of the spec. */
static tdm_status read_setting(const tdm_config *config, const struct setting *setting,
                               const char *directory, struct tdm__job_spec *spec)
{
    void *field = (char *)spec + setting->offset;

    switch (setting->kind) {
    case COUNT:
        return read_count(config, setting, field);
    case SEED:
        return read_integer(config, setting, field);
    case BYTES:
        return read_bytes(config, setting, field);
    case NUMBER:
        return read_number(config, setting, field);
    case FLAG:
        return read_flag(config, setting, field);
    case TEXT:
    case PATH:
        return read_text(config, setting, directory, field);
    }
    return TDM_OK;
}

/* ---- settings that depend on each other ------------------------------------------------ */

bool tdm__job_updates_overwrite(const struct tdm__job_spec *spec)
{
    return strcmp(spec->update_mode, "bucket") == 0;
}

/* Checks the words of the section "update". */
static tdm_status check_update(const tdm_config *config, const struct tdm__job_spec *spec)
{
    if (strcmp(spec->update_source, "tensors") != 0 && strcmp(spec->update_source, "disk") != 0) {
        return tdm__fail(TDM_E_INVAL, "%s: update.source is \"%s\", expected tensors or disk",
                         tdm_config_where(config, "update.source"), spec->update_source);
    }
    if (strcmp(spec->update_mode, "donate") != 0 && strcmp(spec->update_mode, "copy") != 0 &&
        strcmp(spec->update_mode, "names") != 0 && !tdm__job_updates_overwrite(spec)) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: update.mode is \"%s\", expected donate, copy, bucket or names",
                         tdm_config_where(config, "update.mode"), spec->update_mode);
    }
    if (strcmp(spec->verify, "full") != 0 && strcmp(spec->verify, "sample") != 0 &&
        strcmp(spec->verify, "none") != 0) {
        return tdm__fail(TDM_E_INVAL, "%s: update.verify is \"%s\", expected full, sample or none",
                         tdm_config_where(config, "update.verify"), spec->verify);
    }
    return TDM_OK;
}

/* Checks that a name is not empty and has only letters, digits, '-' and '_'. */
static tdm_status check_name(const tdm_config *config, const char *path, const char *name)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

    if (name[0] == '\0' || strspn(name, allowed) != strlen(name)) {
        return tdm__fail(TDM_E_INVAL, "%s: %s \"%s\" must have only letters, digits, '-' and '_'",
                         tdm_config_where(config, path), path, name);
    }
    return TDM_OK;
}

/* Checks the name of the model, which is the prefix of the names of the job's actors. */
static tdm_status check_model(const tdm_config *config, const char *model)
{
    TDM_TRY(check_name(config, "update.model", model));
    if (strlen(model) > TDM__JOB_MODEL_BYTES_MAX) {
        return tdm__fail(TDM_E_LIMIT, "%s: update.model has %zu bytes, the limit is %d",
                         tdm_config_where(config, "update.model"), strlen(model),
                         (int)TDM__JOB_MODEL_BYTES_MAX);
    }
    return TDM_OK;
}

/* Checks all settings that must be one of several words. */
static tdm_status check_enumerations(const tdm_config *config, const struct tdm__job_spec *spec)
{
    char names[TDM__DEVICE_KIND_NAMES_BYTES];
    const struct tdm__device_kind *kind;

    TDM_TRY(check_name(config, "job.name", spec->name));
    TDM_TRY(check_model(config, spec->update_model));
    if (tdm__device_kind_by_name(spec->device, &kind) != TDM_OK) {
        return tdm__fail(TDM_E_INVAL, "%s: cluster.device is \"%s\", expected %s",
                         tdm_config_where(config, "cluster.device"), spec->device,
                         tdm__device_kind_names(names));
    }
    return check_update(config, spec);
}

/* Checks a job whose engines have GPUs of their own: there must be exactly one GPU for each rank,
 * and update.mode must not be "names", because whole tensors go to no other GPU. */
static tdm_status check_remote_engines(const tdm_config *config, const struct tdm__job_spec *spec)
{
    uint32_t engine_ranks = spec->num_engines * spec->rollout_num_gpus_per_engine;

    if (spec->trainer_num_ranks + engine_ranks != spec->num_gpus) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: engine.colocate is false: %u trainer ranks and %u engine ranks "
                         "need a GPU each, but cluster.num_gpus is %u",
                         tdm_config_where(config, "engine.colocate"), spec->trainer_num_ranks,
                         engine_ranks, spec->num_gpus);
    }
    if (strcmp(spec->update_mode, "names") == 0) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: update.mode is names, but engine.colocate is false: whole tensors "
                         "go to no other GPU; use copy",
                         tdm_config_where(config, "update.mode"));
    }
    return TDM_OK;
}

/* Checks that colocated engines and trainer ranks can be divided among each other. */
static tdm_status check_division(const tdm_config *config, const struct tdm__job_spec *spec)
{
    uint32_t ranks_per_engine = spec->rollout_num_gpus_per_engine;

    if (tdm__gather_groups_divide(spec->trainer_num_ranks, ranks_per_engine, spec->num_engines)) {
        return TDM_OK;
    }
    if (spec->trainer_num_ranks >= spec->num_engines * ranks_per_engine) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: engine.rollout_num_gpus_per_engine is %u, but %u trainer GPUs do "
                         "not divide into engines of %u",
                         tdm_config_where(config, "engine.rollout_num_gpus_per_engine"),
                         ranks_per_engine, spec->trainer_num_ranks, ranks_per_engine);
    }
    return tdm__fail(
        TDM_E_INVAL,
        "%s: engine.num_engines is %u: with %u GPUs each that is %u, but the trainer "
        "has %u ranks, and neither of %u and %u is a multiple of the other. Change one "
        "of them, or set engine.colocate: false",
        tdm_config_where(config, "engine.num_engines"), spec->num_engines, ranks_per_engine,
        spec->num_engines * ranks_per_engine, spec->trainer_num_ranks, spec->num_engines,
        spec->trainer_num_ranks);
}

/* Checks that there is a GPU for each trainer rank and each rank of an engine that shares it. */
static tdm_status check_colocated_engines(const tdm_config *config,
                                          const struct tdm__job_spec *spec)
{
    uint32_t engine_ranks = spec->num_engines * spec->rollout_num_gpus_per_engine;
    uint32_t gpus = spec->trainer_num_ranks > engine_ranks ? spec->trainer_num_ranks : engine_ranks;
    double share = spec->trainer_num_gpus_per_actor + spec->engine_num_gpus_per_actor;

    TDM_TRY(check_division(config, spec));
    if (gpus != spec->num_gpus) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: cluster.num_gpus is %u, but %u trainer ranks and %u engine ranks "
                         "share %u GPUs. Set cluster.num_gpus to %u, or change the ranks",
                         tdm_config_where(config, "cluster.num_gpus"), spec->num_gpus,
                         spec->trainer_num_ranks, engine_ranks, gpus, gpus);
    }
    if (share > 1.0 + 1e-9) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: trainer.num_gpus_per_actor %g and engine.num_gpus_per_actor %g "
                         "are %g of a GPU; lower one of them",
                         tdm_config_where(config, "engine.num_gpus_per_actor"),
                         spec->trainer_num_gpus_per_actor, spec->engine_num_gpus_per_actor, share);
    }
    return TDM_OK;
}

/* Checks that the ranks of trainers and engines fit on the GPUs and match each other. */
static tdm_status check_ranks(const tdm_config *config, const struct tdm__job_spec *spec)
{
    TDM_TRY(spec->engine_colocate ? check_colocated_engines(config, spec)
                                  : check_remote_engines(config, spec));
    if (spec->num_engines_min > spec->num_engines) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: rollout.num_engines_min is %u, but engine.num_engines is %u",
                         tdm_config_where(config, "rollout.num_engines_min"), spec->num_engines_min,
                         spec->num_engines);
    }
    return TDM_OK;
}

uint32_t tdm__engines_limit(const struct tdm__job_spec *spec)
{
    uint32_t limit = TDM__JOB_ENGINE_RANKS_MAX / spec->rollout_num_gpus_per_engine;

    return limit < TDM__JOB_ENGINES_MAX ? limit : TDM__JOB_ENGINES_MAX;
}

/* Checks that the batch sizes are consistent, and fills in the global batch size. */
static tdm_status check_batches(const tdm_config *config, struct tdm__job_spec *spec)
{
    uint64_t samples = (uint64_t)spec->rollout_batch_size * spec->n_samples_per_prompt;

    if (samples > 1000000) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: rollout_batch_size %u times n_samples_per_prompt %u is %llu, the "
                         "limit is 1000000",
                         tdm_config_where(config, "rollout.rollout_batch_size"),
                         spec->rollout_batch_size, spec->n_samples_per_prompt,
                         (unsigned long long)samples);
    }
    if (spec->global_batch_size == 0) {
        spec->global_batch_size = (uint32_t)samples;
    }
    if (spec->global_batch_size != samples) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: rollout.global_batch_size is %u, but rollout_batch_size %u times "
                         "n_samples_per_prompt %u is %llu",
                         tdm_config_where(config, "rollout.global_batch_size"),
                         spec->global_batch_size, spec->rollout_batch_size,
                         spec->n_samples_per_prompt, (unsigned long long)samples);
    }
    if (spec->rollout_batch_size % spec->trainer_num_ranks != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: rollout.rollout_batch_size is %u, but %u prompts do not divide "
                         "over %u trainer ranks",
                         tdm_config_where(config, "rollout.rollout_batch_size"),
                         spec->rollout_batch_size, spec->rollout_batch_size,
                         spec->trainer_num_ranks);
    }
    if (spec->warmup_steps > 0 && spec->warmup_batch_size % spec->trainer_num_ranks != 0) {
        return tdm__fail(TDM_E_INVAL,
                         "%s: rollout.warmup_batch_size is %u, which does not divide over %u "
                         "trainer ranks",
                         tdm_config_where(config, "rollout.warmup_batch_size"),
                         spec->warmup_batch_size, spec->trainer_num_ranks);
    }
    return TDM_OK;
}

/* Checks that further files belong to a library in Python: one in C is a single file. */
static tdm_status check_files(const tdm_config *config, const struct tdm__job_spec *spec)
{
    return spec->files[0] == '\0' ||
                   strncmp(spec->library, TDM__PYTHON_PREFIX, strlen(TDM__PYTHON_PREFIX)) == 0
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "%s: job.files is for libraries in Python, but job.library is %s: "
                           "remove job.files",
                           tdm_config_where(config, "job.files"), spec->library);
}

tdm_status tdm__job_spec_from_config(tdm_config *config, const char *directory,
                                     struct tdm__job_spec *spec_out)
{
    memset(spec_out, 0, sizeof(*spec_out));
    (void)snprintf(spec_out->folder, sizeof(spec_out->folder), "%s", directory);
    TDM_TRY(check_keys(config));
    for (size_t i = 0; i < SETTINGS_COUNT; i++) {
        TDM_TRY(read_setting(config, &settings[i], directory, spec_out));
    }
    TDM_TRY(check_enumerations(config, spec_out));
    TDM_TRY(check_ranks(config, spec_out));
    TDM_TRY(check_batches(config, spec_out));
    TDM_TRY(check_files(config, spec_out));
    spec_out->config = config;
    return TDM_OK;
}

tdm_status tdm__job_file_read(const char *path, const char *const *overrides,
                              uint32_t overrides_count, struct tdm__job_spec *spec_out)
{
    char directory[TDM__PATH_BYTES] = "."; /* The folder of a file that is named without one. */
    const char *slash = strrchr(path, '/');
    tdm_config *config = NULL;
    tdm_status status;

    if (strlen(path) >= sizeof(directory)) {
        return tdm__fail(TDM_E_LIMIT, "a path of %zu bytes, the limit is %zu", strlen(path),
                         sizeof(directory) - 1);
    }
    if (slash != NULL) {
        (void)snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    }
    if (slash == path) {
        (void)strncpy(directory, "/.", sizeof(directory) - 1);
    }
    status = tdm_config_read(path, &config);
    for (uint32_t i = 0; i < overrides_count && status == TDM_OK; i++) {
        status = tdm_config_override(config, overrides[i]);
    }
    if (status == TDM_OK) {
        status = tdm__job_spec_from_config(config, directory, spec_out);
    }
    if (status != TDM_OK) {
        tdm_config_destroy(config);
    }
    return status;
}

void tdm__job_spec_fini(struct tdm__job_spec *spec)
{
    tdm_config_destroy(spec->config);
    spec->config = NULL;
}
