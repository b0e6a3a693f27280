/* python_library.c - job libraries that are Python modules: what they declare, and their actors. */
/* SPDX-License-Identifier: Apache-2.0 */
/* libtandem does not know Python. A setting `library: python:NAME` means three things here. The
 * actors of the job run the program `python3 -m tandem._worker`, whose process has registered a
 * table of functions that call the classes of the module NAME (tdm_job_library_register()). What
 * the module declares before any actor exists is asked of another process, `python3 -m
 * tandem._job_plan`: it reads a request from descriptor 3, a JSON object with the job file and a
 * list of ranks, and writes a reply to descriptor 4, a JSON object with the regions of each rank
 * or the text of an exception. Both are files in memory, so that neither process waits for the
 * other to read. Rewards are computed in an actor (rewards.h).
 * The package of Tandem and the module are found by PYTHONPATH, to which this file adds the folder
 * of the job file and the folders of the package. One thread uses these functions. */
#include "colocate/job/python_library.h"

#include "colocate/job/named_layout.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/process/spawn.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Most bytes of a reply, which is the limit of tdm_config_parse(). */
enum { REPLY_BYTES_MAX = 1 << 20 };

/* Program that looks interpreters up in PATH and sets variables. */
#define ENV_PROGRAM "/usr/bin/env"

bool tdm__python_library_is(const char *library)
{
    return strncmp(library, TDM__PYTHON_PREFIX, strlen(TDM__PYTHON_PREFIX)) == 0;
}

/* Writes the setting PYTHONPATH with which an interpreter finds the module and the package. */
static tdm_status write_python_path(const struct tdm__job_spec *spec,
                                    char text[TDM__PYTHON_PATH_BYTES])
{
    char folder[PATH_MAX];
    const char *path = getenv("PYTHONPATH");
    bool has_path = path != NULL && path[0] != '\0';
    int length;

    if (realpath(spec->folder[0] == '\0' ? "." : spec->folder, folder) == NULL) {
        return tdm__fail_errno(errno, "the folder of the job file, %s", spec->folder);
    }
    length = snprintf(text, TDM__PYTHON_PATH_BYTES, "PYTHONPATH=%s%s%s%s%s", folder,
                      spec->python_folders[0] != '\0' ? ":" : "", spec->python_folders,
                      has_path ? ":" : "", has_path ? path : "");
    return length < 0 || length >= TDM__PYTHON_PATH_BYTES
               ? tdm__fail(TDM_E_LIMIT, "PYTHONPATH has %d bytes, the limit is %d", length,
                           (int)TDM__PYTHON_PATH_BYTES - 1)
               : TDM_OK;
}

/* ---- the request ------------------------------------------------------------------------- */

/* Writes one rank of the request. A layout that the job file names decides how many bytes of
 * tensors the rank has. */
static tdm_status write_rank(const struct tdm__job_spec *spec, FILE *file, bool is_engine,
                             uint32_t number)
{
    uint32_t ranks_count = is_engine ? spec->rollout_num_gpus_per_engine : spec->trainer_num_ranks;
    const struct tdm__named_layout_options options = {.config = spec->config,
                                                      .section = is_engine ? "engine" : "trainer",
                                                      .model_config = spec->model_config,
                                                      .rank = number % ranks_count,
                                                      .ranks_count = ranks_count};
    struct tdm__named_layout *named_layout = NULL;

    TDM_TRY(tdm__named_layout_create(&options, &named_layout));
    (void)fprintf(file,
                  "%s{\"kind\":\"%s\",\"rank\":%u,\"ranks_count\":%u,\"engine\":%u,"
                  "\"tensors_bytes\":%llu}",
                  is_engine || number > 0 ? "," : "", options.section, options.rank, ranks_count,
                  is_engine ? number / ranks_count : 0,
                  (unsigned long long)(named_layout == NULL ? 0 : named_layout->size_bytes));
    tdm__named_layout_destroy(named_layout);
    return TDM_OK;
}

/* Writes the request to an open stream. */
static tdm_status write_request(const struct tdm__job_spec *spec, FILE *file)
{
    char *config;

    TDM_TRY(tdm_config_json(spec->config, &config));
    (void)fprintf(file, "{\"seed\":%llu,\"config\":%s,\"ranks\":[", (unsigned long long)spec->seed,
                  config);
    free(config);
    for (uint32_t i = 0; i < spec->trainer_num_ranks; i++) {
        TDM_TRY(write_rank(spec, file, false, i));
    }
    for (uint32_t i = 0; i < spec->num_engines * spec->rollout_num_gpus_per_engine; i++) {
        TDM_TRY(write_rank(spec, file, true, i));
    }
    (void)fputs("]}", file);
    return fflush(file) == 0 ? TDM_OK : tdm__fail_errno(errno, "a request to the interpreter");
}

/* Creates a file in memory; `stream_out` owns it. */
static tdm_status create_file(const char *name, FILE **stream_out)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "w+");

    if (stream == NULL) {
        tdm_status status = tdm__fail_errno(errno, "memfd_create: %s", name);

        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    *stream_out = stream;
    return TDM_OK;
}

/* ---- the interpreter --------------------------------------------------------------------- */

/* Waits until the interpreter has ended and returns its wait status. One that has not ended after
 * job.start_timeout_ms, the time that it has to import the module and to reply, is killed. */
static tdm_status await_interpreter(const struct tdm__job_spec *spec, struct tdm__process *process,
                                    int *wait_status_out)
{
    int64_t deadline_ms = tdm__deadline_after((int64_t)spec->start_timeout_ms);
    bool is_late = false;
    struct pollfd ended = {.fd = process->pidfd, .events = POLLIN};

    while (!tdm__process_reap(process, wait_status_out)) {
        is_late = is_late || tdm__deadline_remaining_ms(deadline_ms) == 0;
        if (is_late) {
            tdm__process_signal(process, SIGKILL);
        }
        (void)poll(&ended, 1, is_late ? 100 : (int)tdm__deadline_remaining_ms(deadline_ms));
    }
    tdm__process_forget(process);
    return is_late ? tdm__fail(TDM_E_TIMEOUT,
                               "`%s -m tandem._job_plan` has not imported the module and replied "
                               "within %u ms: raise job.start_timeout_ms",
                               spec->python, spec->start_timeout_ms)
                   : TDM_OK;
}

/* Runs the interpreter with the request and an empty file for its reply. */
static tdm_status run_interpreter(const struct tdm__job_spec *spec, FILE *request, FILE *reply)
{
    char path[TDM__PYTHON_PATH_BYTES];
    char *argv[] = {(char *)(uintptr_t) "env",
                    path,
                    (char *)(uintptr_t)spec->python,
                    (char *)(uintptr_t) "-m",
                    (char *)(uintptr_t) "tandem._job_plan",
                    NULL};
    const struct tdm__spawn_options options = {.program = ENV_PROGRAM,
                                               .argv = argv,
                                               .fds = {fileno(request), fileno(reply)},
                                               .fds_count = 2,
                                               .output_fd = -1,
                                               .dies_with_parent = true};
    struct tdm__process process;
    int wait_status = 0;
    char text[64];

    TDM_TRY(write_python_path(spec, path));
    TDM_TRY(tdm__spawn(&options, &process));
    TDM_TRY(await_interpreter(spec, &process, &wait_status));
    return wait_status == 0
               ? TDM_OK
               : tdm__fail(TDM_E_NOT_FOUND,
                           "`%s -m tandem._job_plan` has ended with %s; set job.python to an "
                           "interpreter that has the packages of the job, and run `tandem` with "
                           "the Python package beside it",
                           spec->python, tdm__wait_status_text(wait_status, text, sizeof(text)));
}

/* Reads and parses the reply. */
static tdm_status read_reply(const struct tdm__job_spec *spec, FILE *file, tdm_config **reply_out)
{
    char *text = malloc(REPLY_BYTES_MAX);
    const char *error = NULL;
    tdm_status status;
    size_t length;

    if (text == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a reply of %d bytes", (int)REPLY_BYTES_MAX);
    }
    length = fseek(file, 0, SEEK_SET) == 0 ? fread(text, 1, REPLY_BYTES_MAX, file) : 0;
    status = tdm_config_parse(text, length, "the interpreter's reply", reply_out);
    free(text);
    TDM_TRY(status);
    if (tdm_config_string(*reply_out, "error", NULL, &error) != TDM_OK || error != NULL) {
        status = tdm__fail(TDM_E_METHOD, "%s: %s", spec->library, error == NULL ? "?" : error);
        tdm_config_destroy(*reply_out);
    }
    return status;
}

/* Sends the request and reads the reply. */
static tdm_status ask_with_files(const struct tdm__job_spec *spec, FILE *request, FILE *reply,
                                 tdm_config **reply_out)
{
    TDM_TRY(write_request(spec, request));
    if (fseek(request, 0, SEEK_SET) != 0) {
        return tdm__fail_errno(errno, "a request to the interpreter");
    }
    TDM_TRY(run_interpreter(spec, request, reply));
    return read_reply(spec, reply, reply_out);
}

/* Creates the files of a request and its reply, and asks. */
static tdm_status ask_interpreter(const struct tdm__job_spec *spec, tdm_config **reply_out)
{
    FILE *request = NULL;
    FILE *reply = NULL;
    tdm_status status;

    TDM_TRY(create_file("tandem-request", &request));
    status = create_file("tandem-reply", &reply);
    if (status == TDM_OK) {
        status = ask_with_files(spec, request, reply, reply_out);
        (void)fclose(reply);
    }
    (void)fclose(request);
    return tdm__wrap(status, "%s", tdm_config_where(spec->config, "job.library"));
}

tdm_status tdm__python_library_ask(const struct tdm__job_spec *spec,
                                   struct tdm__python_library **library_out)
{
    struct tdm__python_library *library = calloc(1, sizeof(*library));
    tdm_status status = library == NULL ? tdm__fail(TDM_E_NOMEM, "a job library")
                                        : ask_interpreter(spec, &library->reply);

    if (status != TDM_OK) {
        free(library);
        return status;
    }
    library->table.size_bytes = sizeof(library->table);
    status = tdm_config_string(library->reply, "name", spec->library, &library->table.name);
    if (status == TDM_OK) {
        status = tdm_config_string(library->reply, "devices", NULL, &library->table.devices);
    }
    if (status != TDM_OK) {
        tdm__python_library_destroy(library);
        return status;
    }
    *library_out = library;
    return TDM_OK;
}

void tdm__python_library_destroy(struct tdm__python_library *library)
{
    if (library != NULL) {
        tdm_config_destroy(library->reply);
        free(library);
    }
}

/* Returns the policy of a region that a module declares. */
static enum tdm_region_policy region_policy(bool keep, bool outside)
{
    if (outside) {
        return keep ? TDM_REGION_OUTSIDE_KEEP : TDM_REGION_OUTSIDE_DROP;
    }
    return keep ? TDM_REGION_KEEP : TDM_REGION_DROP;
}

tdm_status tdm__python_library_regions(const struct tdm__python_library *library, uint32_t index,
                                       struct tdm__memory_budget_rank *rank)
{
    char path[64];
    uint32_t count;

    (void)snprintf(path, sizeof(path), "ranks.%u", index);
    count = tdm_config_count(library->reply, path);
    if (count > TDM_RANK_REGIONS_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s declares %u regions, the limit is %d", rank->name,
                         count, TDM_RANK_REGIONS_MAX);
    }
    for (uint32_t i = 0; i < count; i++) {
        const char *tag = NULL;
        int64_t size_bytes = 0;
        int keep = 0;
        int outside = 0;

        (void)snprintf(path, sizeof(path), "ranks.%u.%u.tag", index, i);
        TDM_TRY(tdm_config_string(library->reply, path, "", &tag));
        (void)snprintf(path, sizeof(path), "ranks.%u.%u.size_bytes", index, i);
        TDM_TRY(tdm_config_int(library->reply, path, 0, &size_bytes));
        (void)snprintf(path, sizeof(path), "ranks.%u.%u.keep", index, i);
        TDM_TRY(tdm_config_bool(library->reply, path, 0, &keep));
        (void)snprintf(path, sizeof(path), "ranks.%u.%u.outside", index, i);
        TDM_TRY(tdm_config_bool(library->reply, path, 0, &outside));
        (void)snprintf(rank->tags[i], sizeof(rank->tags[i]), "%s", tag);
        rank->regions[i] = (struct tdm_region_spec){rank->tags[i], (size_t)size_bytes,
                                                    region_policy(keep != 0, outside != 0)};
    }
    rank->regions_count = count;
    return TDM_OK;
}

/* ---- actors ------------------------------------------------------------------------------ */

tdm_status tdm__python_actor_init(struct tdm__python_actor *actor, const struct tdm__job_spec *spec,
                                  struct tdm_actor_options *options)
{
    uint32_t count = 0;

    if (!tdm__python_library_is(spec->library)) {
        return TDM_OK;
    }
    TDM_TRY(write_python_path(spec, actor->path));
    actor->arguments[0] = spec->python;
    actor->arguments[1] = "-m";
    actor->arguments[2] = "tandem._worker";
    actor->arguments[3] = NULL;
    options->program = ENV_PROGRAM;
    options->program_arguments = actor->arguments;
    while (options->environment[count] != NULL) {
        count++;
    }
    options->environment[count] = actor->path;
    return TDM_OK;
}
