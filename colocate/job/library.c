/* library.c - opens a job library and checks its tables of functions. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A job library is a shared object that exports `tdm_job_library` (include/tandem/job.h).
 * Opening it checks that every table has the size of this version and that no required function
 * is NULL. The library is never unloaded, because it may have started threads or registered exit
 * handlers.
 * The second half opens each rank without a collective group to ask which regions it declares, for
 * the memory budget. This runs in the driver process before any actor exists, on one thread. */
#include "colocate/job/library.h"

#include "colocate/job/gather_groups.h"
#include "colocate/job/named_layout.h"
#include "runtime/error.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- opening ---------------------------------------------------------------------------- */

/* Looks for the library in the folder of the running program, where builds and installations put
 * it. */
static tdm_status find_beside_program(const char *path, char found[TDM__PATH_BYTES])
{
    char program[TDM__PATH_BYTES];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    const char *name = strrchr(path, '/');
    char *slash;

    if (length < 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s: no such library", path);
    }
    program[length] = '\0';
    slash = strrchr(program, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    name = name == NULL ? path : name + 1;
    if ((size_t)snprintf(found, TDM__PATH_BYTES, "%s/%s", program, name) >= TDM__PATH_BYTES ||
        access(found, R_OK) != 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s: no such library, nor beside the program in %.512s",
                         path, program);
    }
    return TDM_OK;
}

/* Fails because an entry of the library's table is missing. */
static tdm_status refuse_entry(const char *path, const char *what)
{
    return tdm__fail(TDM_E_PROTOCOL, "%s: tdm_job_library has no %s", path, what);
}

/* A function that a job library must supply. */
struct table_entry {
    /* Name of the function, for messages. */
    const char *name;
    /* True if the library supplies it. */
    bool is_set;
};

/* Checks that all functions of a table are supplied. */
static tdm_status check_entries(const char *path, const char *table,
                                const struct table_entry *entries, size_t entries_count)
{
    for (size_t i = 0; i < entries_count; i++) {
        if (!entries[i].is_set) {
            return tdm__fail(TDM_E_PROTOCOL, "%s: function \"%s\" of the %s table is NULL", path,
                             entries[i].name, table);
        }
    }
    return TDM_OK;
}

/* Checks the library's table of trainer functions. */
static tdm_status check_trainer(const char *path, const struct tdm_trainer_ops *ops)
{
    if (ops == NULL || ops->size_bytes != sizeof(*ops)) {
        return refuse_entry(path, "trainer table of this version's size");
    }
    {
        const struct table_entry entries[] = {
            {"open", ops->open != NULL},   {"regions", ops->regions != NULL},
            {"start", ops->start != NULL}, {"layout", ops->layout != NULL},
            {"step", ops->step != NULL},   {"save", ops->save != NULL},
            {"load", ops->load != NULL},   {"close", ops->close != NULL},
        };

        return check_entries(path, "trainer", entries, sizeof(entries) / sizeof(entries[0]));
    }
}

/* Checks the library's table of engine functions. */
static tdm_status check_engine(const char *path, const struct tdm_engine_ops *ops)
{
    if (ops == NULL || ops->size_bytes != sizeof(*ops)) {
        return refuse_entry(path, "engine table of this version's size");
    }
    {
        const struct table_entry entries[] = {
            {"open", ops->open != NULL},
            {"regions", ops->regions != NULL},
            {"start", ops->start != NULL},
            {"load", ops->load != NULL},
            {"complete", ops->complete != NULL},
            {"begin", ops->begin != NULL},
            {"flush_cache", ops->flush_cache != NULL},
            {"generate", ops->generate != NULL},
            {"close", ops->close != NULL},
        };

        return check_entries(path, "engine", entries, sizeof(entries) / sizeof(entries[0]));
    }
}

/* Checks that the library has a reward function or a whole table of reward functions. */
static tdm_status check_rewards(const char *path, const struct tdm_job_library *jobs)
{
    const struct tdm_reward_ops *ops = jobs->rewards;

    if (ops == NULL) {
        return jobs->reward == NULL ? refuse_entry(path, "reward") : TDM_OK;
    }
    if (ops->size_bytes != sizeof(*ops)) {
        return refuse_entry(path, "reward table of this version's size");
    }
    {
        const struct table_entry entries[] = {{"open", ops->open != NULL},
                                              {"score", ops->score != NULL},
                                              {"close", ops->close != NULL}};

        return check_entries(path, "reward", entries, sizeof(entries) / sizeof(entries[0]));
    }
}

/* Checks the library's main table and the tables below it. */
static tdm_status check_tables(const char *path, const struct tdm_job_library *jobs)
{
    if (jobs == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: no TDM_JOB_LIBRARY in it", path);
    }
    if (jobs->size_bytes != sizeof(*jobs)) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "%s: made for another version: its table has %zu bytes, not %zu", path,
                         jobs->size_bytes, sizeof(*jobs));
    }
    TDM_TRY(check_trainer(path, jobs->trainer));
    TDM_TRY(check_engine(path, jobs->engine));
    return check_rewards(path, jobs);
}

/* The tables that this process has registered for libraries in Python; NULL before. */
static const struct tdm_job_library *registered_library;

tdm_status tdm_job_library_register(const struct tdm_job_library *library)
{
    TDM__REQUIRE(library);

    if (registered_library != NULL && registered_library != library) {
        return tdm__fail(TDM_E_EXISTS, "this process has registered a job library already");
    }
    registered_library = library;
    return TDM_OK;
}

/* Opens the tables that this process has registered. */
static tdm_status open_registered(const char *path, struct tdm__job_library *library_out)
{
    if (registered_library == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: this program runs no job libraries in Python", path);
    }
    TDM_TRY(check_tables(path, registered_library));
    *library_out = (struct tdm__job_library){.jobs = registered_library};
    return TDM_OK;
}

tdm_status tdm__job_library_find(const char *path, char found[TDM__PATH_BYTES])
{
    if (access(path, R_OK) != 0) {
        return find_beside_program(path, found);
    }
    (void)snprintf(found, TDM__PATH_BYTES, "%s", path);
    return TDM_OK;
}

tdm_status tdm__job_library_open(const char *path, struct tdm__job_library *library_out)
{
    char found[TDM__PATH_BYTES];
    struct tdm__job_library library = {.handle = NULL};
    tdm_status status;

    if (tdm__python_library_is(path)) {
        return open_registered(path, library_out);
    }
    TDM_TRY(tdm__job_library_find(path, found));
    path = found;
    /* The library is never unloaded: its dependencies may have threads and exit handlers. */
    library.handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library.handle == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "%s", dlerror());
    }
    library.jobs = dlsym(library.handle, "tdm_job_library");
    status = check_tables(path, library.jobs);
    if (status != TDM_OK) {
        tdm__job_library_close(&library);
        return status;
    }
    *library_out = library;
    return TDM_OK;
}

tdm_status tdm__job_library_open_for_job(const struct tdm__job_spec *spec,
                                         struct tdm__job_library *library_out)
{
    if (!tdm__python_library_is(spec->library)) {
        return tdm__job_library_open(spec->library, library_out);
    }
    *library_out = (struct tdm__job_library){.handle = NULL};
    TDM_TRY(tdm__python_library_ask(spec, &library_out->python));
    library_out->jobs = &library_out->python->table;
    return TDM_OK;
}

bool tdm__job_library_has_reward_actor(const struct tdm__job_library *library)
{
    return library->python != NULL || library->jobs->rewards != NULL;
}

tdm_status tdm__job_library_check_device(const struct tdm__job_library *library, const char *device)
{
    const char *devices = library->jobs->devices != NULL ? library->jobs->devices : "host";
    const char *word = devices + strspn(devices, " ");

    while (*word != '\0') {
        size_t length = strcspn(word, " ");

        if (length == strlen(device) && strncmp(word, device, length) == 0) {
            return TDM_OK;
        }
        word += length + strspn(word + length, " ");
    }
    return tdm__fail(TDM_E_UNSUPPORTED, "library %s has no models on %s, but on: %s",
                     library->jobs->name, device, devices);
}

void tdm__job_library_close(struct tdm__job_library *library)
{
    if (library->handle != NULL) {
        (void)dlclose(library->handle);
    }
    tdm__python_library_destroy(library->python);
    library->python = NULL;
    library->handle = NULL;
    library->jobs = NULL;
}

/* ---- asking for regions ----------------------------------------------------------------- */

/* Copies the declared regions. Tags are copied too, because they may point into the rank's
 * state, which is freed afterwards. */
static tdm_status copy_regions(const struct tdm_region_spec *specs, uint32_t count,
                               struct tdm__memory_budget_rank *rank)
{
    if (count > TDM_RANK_REGIONS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s declares %u regions, the limit is %d", rank->name,
                         count, TDM_RANK_REGIONS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        rank->regions[i] = specs[i];
        (void)snprintf(rank->tags[i], sizeof(rank->tags[i]), "%s",
                       specs[i].tag == NULL ? "" : specs[i].tag);
        rank->regions[i].tag = rank->tags[i];
    }
    rank->regions_count = count;
    return TDM_OK;
}

/* The functions that the trainer and the engine table have in common, or what a Python module has
 * declared. */
struct rank_opener {
    /* Borrowed declarations of a Python module; NULL if the functions below are to be called. */
    const struct tdm__python_library *python;
    /* Opens the rank and returns its state. */
    tdm_status (*open)(const struct tdm_rank_context *context, void **state_out);
    /* Writes the regions that the rank needs. */
    tdm_status (*regions)(void *state, struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX],
                          uint32_t *count_out);
    /* Frees the state. */
    void (*close)(void *state);
    bool has_resume; /* True if the table has a function that allocates outside memory. */
    bool has_pause;  /* True if the table has a function that frees it. */
};

/* Returns how to learn what a rank of a library in Python declares. */
static struct rank_opener python_opener(const struct tdm__python_library *python)
{
    /* The package has checked that the class has what it needs. */
    return (struct rank_opener){.python = python, .has_resume = true, .has_pause = true};
}

/* Returns how to learn what a trainer rank of the library declares. */
static struct rank_opener trainer_opener(const struct tdm__job_library *library)
{
    const struct tdm_trainer_ops *ops = library->jobs->trainer;

    if (library->python != NULL) {
        return python_opener(library->python);
    }
    return (struct rank_opener){.open = ops->open,
                                .regions = ops->regions,
                                .close = ops->close,
                                .has_resume = ops->resume != NULL,
                                .has_pause = ops->pause != NULL};
}

/* Returns how to learn what an engine rank of the library declares. */
static struct rank_opener engine_opener(const struct tdm__job_library *library)
{
    const struct tdm_engine_ops *ops = library->jobs->engine;

    if (library->python != NULL) {
        return python_opener(library->python);
    }
    return (struct rank_opener){.open = ops->open,
                                .regions = ops->regions,
                                .close = ops->close,
                                .has_resume = ops->resume != NULL,
                                .has_pause = ops->pause != NULL};
}

/* Opens a rank, copies the regions that it declares, and closes it. `index` counts the ranks of the
 * job, those of the trainer first. */
static tdm_status query_rank_regions(const struct rank_opener *opener,
                                     const struct tdm_rank_context *context, uint32_t index,
                                     struct tdm__memory_budget_rank *rank)
{
    struct tdm_region_spec specs[TDM_RANK_REGIONS_MAX];
    uint32_t count = 0;
    void *state = NULL;
    tdm_status status;

    if (opener->python != NULL) {
        return tdm__python_library_regions(opener->python, index, rank);
    }
    TDM_TRY(tdm__wrap(opener->open(context, &state), "%s: open", rank->name));
    status = tdm__wrap(opener->regions(state, specs, &count), "%s: regions", rank->name);
    if (status == TDM_OK) {
        status = copy_regions(specs, count, rank);
    }
    opener->close(state);
    return status;
}

/* Builds the rank's named layout, if its section names one, and tells the library about it. The
 * result is NULL if it does not exist. */
static tdm_status create_named_layout(const struct tdm__job_spec *spec, const char *section,
                                      struct tdm_rank_context *context,
                                      struct tdm__named_layout **named_out)
{
    const struct tdm__named_layout_options options = {.config = spec->config,
                                                      .section = section,
                                                      .model_config = spec->model_config,
                                                      .rank = context->rank,
                                                      .ranks_count = context->ranks_count};

    TDM_TRY(tdm__named_layout_create(&options, named_out));
    tdm__named_layout_fill_context(*named_out, context);
    return TDM_OK;
}

/* Checks the declared regions against the named layout unless `status` is an error, and frees
 * the layout. */
static tdm_status check_and_free_named_layout(struct tdm__named_layout *named_layout,
                                              const struct tdm__memory_budget_rank *rank,
                                              tdm_status status)
{
    if (status == TDM_OK && named_layout != NULL) {
        status = tdm__named_layout_check_regions(named_layout, rank->regions, rank->regions_count);
    }
    tdm__named_layout_destroy(named_layout);
    return status;
}

/* Fails if the rank declares outside memory, and its table lacks a function for it. */
static tdm_status check_outside_memory(const struct tdm__memory_budget_rank *rank,
                                       const struct rank_opener *opener)
{
    for (uint32_t i = 0; i < rank->regions_count; i++) {
        if (rank->regions[i].policy >= TDM_REGION_OUTSIDE_KEEP &&
            !(opener->has_resume && opener->has_pause)) {
            return tdm__fail(TDM_E_PROTOCOL,
                             "%s declares the outside memory \"%s\", and its table has no %s()",
                             rank->name, rank->tags[i], opener->has_resume ? "pause" : "resume");
        }
    }
    return TDM_OK;
}

/* Learns which regions a rank of the job declares, with the named layout of its section of the job
 * file, and checks them. `index` is as in query_rank_regions(). */
static tdm_status query_rank(const struct tdm__job_spec *spec, const char *section,
                             const struct rank_opener *opener, struct tdm_rank_context *context,
                             uint32_t index, struct tdm__memory_budget_rank *rank)
{
    struct tdm__named_layout *named_layout = NULL;

    TDM_TRY(create_named_layout(spec, section, context, &named_layout));
    TDM_TRY(check_and_free_named_layout(named_layout, rank,
                                        query_rank_regions(opener, context, index, rank)));
    return check_outside_memory(rank, opener);
}

/* Adds all trainer ranks of the job to the input. */
static tdm_status add_trainer_ranks(const struct tdm__job_spec *spec,
                                    const struct rank_opener *opener,
                                    struct tdm__memory_budget_input *input)
{
    const struct tdm__gather_groups groups =
        tdm__gather_groups_form(spec->trainer_num_ranks, spec->rollout_num_gpus_per_engine,
                                spec->num_engines, spec->engine_colocate);

    for (uint32_t r = 0; r < spec->trainer_num_ranks; r++) {
        struct tdm_rank_context context = {.config = spec->config,
                                           .rank = r,
                                           .ranks_count = spec->trainer_num_ranks,
                                           .seed = spec->seed};
        struct tdm__memory_budget_rank *rank = &input->ranks[input->ranks_count++];

        (void)snprintf(rank->name, sizeof(rank->name), "trainer/%u", r);
        rank->gpu = spec->engine_colocate ? tdm__gather_groups_first_image(&groups, r) : r;
        TDM_TRY(query_rank(spec, "trainer", opener, &context, input->ranks_count - 1, rank));
    }
    return TDM_OK;
}

/* Adds all engine ranks of the job to the input. */
static tdm_status add_engine_ranks(const struct tdm__job_spec *spec,
                                   const struct rank_opener *opener,
                                   struct tdm__memory_budget_input *input)
{
    uint32_t ranks_per_engine = spec->rollout_num_gpus_per_engine;

    for (uint32_t r = 0; r < spec->num_engines * ranks_per_engine; r++) {
        struct tdm_rank_context context = {.config = spec->config,
                                           .rank = r % ranks_per_engine,
                                           .ranks_count = ranks_per_engine,
                                           .engine = r / ranks_per_engine,
                                           .seed = spec->seed};
        struct tdm__memory_budget_rank *rank = &input->ranks[input->ranks_count++];

        (void)snprintf(rank->name, sizeof(rank->name), "engine/%u/%u", context.engine,
                       context.rank);
        rank->gpu = spec->engine_colocate ? r : spec->trainer_num_ranks + r;
        rank->is_engine = true;
        TDM_TRY(query_rank(spec, "engine", opener, &context, input->ranks_count - 1, rank));
    }
    return TDM_OK;
}

tdm_status tdm__job_memory_budget_input(const struct tdm__job_spec *spec,
                                        const struct tdm__job_library *library,
                                        struct tdm__memory_budget_input *input_out)
{
    const struct rank_opener trainers = trainer_opener(library);
    const struct rank_opener engines = engine_opener(library);

    memset(input_out, 0, sizeof(*input_out));
    input_out->gpus_count = spec->num_gpus;
    input_out->gpu_bytes = spec->gpu_bytes;
    input_out->bucket_bytes = spec->update_weight_buffer_size;
    input_out->update_enabled = spec->update_enabled;
    input_out->updates_overwrite = tdm__job_updates_overwrite(spec);
    input_out->engines_are_remote = !spec->engine_colocate;
    TDM_TRY(add_trainer_ranks(spec, &trainers, input_out));
    return add_engine_ranks(spec, &engines, input_out);
}
