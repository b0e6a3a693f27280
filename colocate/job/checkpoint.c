/* checkpoint.c - saves the state of a job on disk and loads it; a checkpoint appears atomically. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A save writes <out>/checkpoint.new completely, exchanges its name with <out>/checkpoint by
 * renameat2(RENAME_EXCHANGE), and removes the old directory. Thus a complete checkpoint exists
 * at any moment. File systems without that call move the old directory to checkpoint.old first.
 * The manifest is written last, so a directory with a manifest is complete. A resumed job takes the
 * newest complete directory of the three, and the next save removes the others.
 * Trainer ranks write the weights; this process writes state.json and the version number. All
 * functions run on the controller's thread and block. */
#include "colocate/job/checkpoint.h"

#include "colocate/job/checkpoint_manifest.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/failpoint.h"
#include "runtime/file.h"
#include "runtime/messages/messages.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- save ------------------------------------------------------------------------------- */

/* Writes state.json to the directory, atomically. */
static tdm_status write_state(const char *directory, const struct tdm__checkpoint_state *state)
{
    struct tdm__atomic_file file;
    char path[TDM__PATH_BYTES];
    char text[256];
    int length;
    tdm_status status;

    TDM_TRY(tdm__path_join(directory, "state.json", path));
    length =
        snprintf(text, sizeof(text), "{\"step\": %u, \"version\": %llu, \"before\": ", state->step,
                 (unsigned long long)state->version);
    length +=
        isnan(state->score_before)
            ? snprintf(text + length, sizeof(text) - (size_t)length, "null")
            : snprintf(text + length, sizeof(text) - (size_t)length, "%.17g", state->score_before);
    length +=
        snprintf(text + length, sizeof(text) - (size_t)length, ", \"run\": \"%s\"", state->run);
    if (state->engines != 0) {
        length += snprintf(text + length, sizeof(text) - (size_t)length,
                           ", \"engines\": %u, \"engines_of_file\": %u", state->engines,
                           state->engines_of_file);
    }
    length += snprintf(text + length, sizeof(text) - (size_t)length, "}\n");
    TDM_TRY(tdm__atomic_file_open(&file, path));
    status = tdm__atomic_file_write(&file, text, (size_t)length);
    if (status != TDM_OK) {
        tdm__atomic_file_abandon(&file);
        return status;
    }
    return tdm__atomic_file_commit(&file);
}

/* Calls "save" or "load" with the directory on all trainer ranks and waits. */
static tdm_status call_trainer_ranks(struct tdm__worker_group *workers, const char *method,
                                     const char *directory)
{
    const struct tdm__checkpoint_directory_message message = {directory};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__checkpoint_directory_encode(&message, writer);
    if (status == TDM_OK) {
        status = tdm__worker_group_call(workers, workers->trainers, workers->trainers_count, method,
                                        tdm_writer_bytes(writer),
                                        (int64_t)workers->spec->step_timeout_ms);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* Exchanges two directories in one step, so that a complete checkpoint exists at any moment. If
 * there is no old checkpoint, or the file system cannot exchange, the old one is moved to
 * `old_path` first. */
static tdm_status swap_directories(const char *new_path, const char *current_path,
                                   const char *old_path)
{
    if (!tdm__failpoint_skips("checkpoint.exchange") &&
        renameat2(AT_FDCWD, new_path, AT_FDCWD, current_path, RENAME_EXCHANGE) == 0) {
        return TDM_OK;
    }
    if (rename(current_path, old_path) < 0 && errno != ENOENT) {
        return tdm__fail_errno(errno, "rename %s to %s", current_path, old_path);
    }
    if (rename(new_path, current_path) < 0) {
        return tdm__fail_errno(errno, "rename %s to %s", new_path, current_path);
    }
    return TDM_OK;
}

/* Makes checkpoint.new the checkpoint and removes the old one. Creates the symbolic link hf if
 * it does not exist. */
static tdm_status checkpoint_publish(const char *out, const char *new_path)
{
    char current_path[TDM__PATH_BYTES];
    char old_path[TDM__PATH_BYTES];
    char link[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(out, "checkpoint", current_path));
    TDM_TRY(tdm__path_join(out, "checkpoint.old", old_path));
    TDM_TRY(tdm__path_join(out, "hf", link));
    tdm__directory_remove(old_path);
    TDM_TRY(swap_directories(new_path, current_path, old_path));
    TDM_TRY(tdm__directory_sync(out));
    tdm__directory_remove(old_path);
    tdm__directory_remove(new_path);
    if (symlink("checkpoint/hf", link) < 0 && errno != EEXIST) {
        return tdm__fail_errno(errno, "symlink %s", link);
    }
    return TDM_OK;
}

tdm_status tdm__checkpoint_save(struct tdm__worker_group *workers, const char *out,
                                const struct tdm__checkpoint_state *state)
{
    struct tdm__checkpoint_origin origin = {.step = state->step};
    char new_path[TDM__PATH_BYTES];
    char *absolute;
    tdm_status status;

    memcpy(origin.run, state->run, sizeof(origin.run));
    TDM_TRY(tdm__path_join(out, "checkpoint.new", new_path));
    tdm__directory_remove(new_path);
    if (mkdir(new_path, 0777) < 0) {
        return tdm__fail_errno(errno, "mkdir %s", new_path);
    }
    absolute = realpath(new_path, NULL); /* Ranks may have another current directory. */
    if (absolute == NULL) {
        return tdm__fail_errno(errno, "realpath %s", new_path);
    }
    status = call_trainer_ranks(workers, "save", absolute);
    free(absolute);
    TDM_TRY(status);
    TDM_TRY(write_state(new_path, state));
    TDM_TRY(tdm__checkpoint_manifest_write(new_path, &origin));
    return checkpoint_publish(out, new_path);
}

/* ---- load ------------------------------------------------------------------------------- */

/* Reads the contents of state.json. */
static tdm_status read_state(const tdm_config *config, struct tdm__checkpoint_state *state)
{
    const char *run;
    int64_t step;
    int64_t version;
    int64_t engines;
    int64_t engines_of_file;

    TDM_TRY(tdm_config_int(config, "step", -1, &step));
    TDM_TRY(tdm_config_int(config, "engines", 0, &engines));
    TDM_TRY(tdm_config_int(config, "engines_of_file", 0, &engines_of_file));
    TDM_TRY(tdm_config_int(config, "version", -1, &version));
    TDM_TRY(tdm_config_string(config, "run", "", &run));
    (void)snprintf(state->run, sizeof(state->run), "%s", run);
    state->score_before = NAN;
    if (tdm_config_has(config, "before")) {
        /* A null leaves NAN. */
        (void)tdm_config_double(config, "before", NAN, &state->score_before);
    }
    if (step < 0 || step > UINT32_MAX || version < 0) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: step %lld, version %lld",
                         tdm_config_where(config, ""), (long long)step, (long long)version);
    }
    if (engines < 0 || engines > TDM__JOB_ENGINES_MAX || engines_of_file < 0 ||
        engines_of_file > TDM__JOB_ENGINES_MAX) {
        return tdm__fail(TDM_E_PROTOCOL, "%s: engines %lld, engines_of_file %lld",
                         tdm_config_where(config, ""), (long long)engines,
                         (long long)engines_of_file);
    }
    state->engines = (uint32_t)engines;
    state->engines_of_file = (uint32_t)engines_of_file;
    state->step = (uint32_t)step;
    state->version = (uint64_t)version;
    return TDM_OK;
}

tdm_status tdm__checkpoint_read_state(const char *directory,
                                      struct tdm__checkpoint_state *state_out)
{
    char path[TDM__PATH_BYTES];
    struct tdm__checkpoint_state state;
    tdm_config *config;
    tdm_status status;

    TDM_TRY(tdm__path_join(directory, "state.json", path));
    TDM_TRY(tdm_config_read(path, &config));
    status = read_state(config, &state);
    tdm_config_destroy(config);
    if (status == TDM_OK) {
        *state_out = state;
    }
    return status;
}

/* ---- which checkpoint to resume --------------------------------------------------------- */

/* Checks one directory: its files are whole and all of the save that its state names. Returns
 * TDM_E_NOT_FOUND if it does not exist. */
static tdm_status check_directory(const char *directory, struct tdm__checkpoint_state *state)
{
    struct tdm__checkpoint_origin origin;

    if (access(directory, F_OK) != 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "%s does not exist", directory);
    }
    TDM_TRY(tdm__checkpoint_manifest_verify(directory, &origin));
    TDM_TRY(tdm__checkpoint_read_state(directory, state));
    if (origin.step != state->step || strcmp(origin.run, state->run) != 0) {
        return tdm__fail(TDM_E_PROTOCOL,
                         "%s/manifest is of step %u of run %s, but state.json of step %u of run %s",
                         directory, origin.step, origin.run, state->step, state->run);
    }
    return TDM_OK;
}

tdm_status tdm__checkpoint_find(const char *out, struct tdm__checkpoint_choice *choice_out)
{
    static const char *const names[] = {"checkpoint", "checkpoint.new", "checkpoint.old"};
    struct tdm__checkpoint_choice choice = {.directory = "", .refused = ""};
    char directory[TDM__PATH_BYTES];
    struct tdm__checkpoint_state state;
    tdm_status refusal = TDM_OK;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        tdm_status status;

        TDM_TRY(tdm__path_join(out, names[i], directory));
        status = check_directory(directory, &state);
        if (status == TDM_OK && choice.directory[0] != '\0' &&
            strcmp(state.run, choice.state.run) != 0) {
            status = tdm__fail(TDM_E_PROTOCOL, "%s was saved by run %s, and %s by run %s",
                               directory, state.run, choice.directory, choice.state.run);
        }
        if (status == TDM_OK && (choice.directory[0] == '\0' || state.step > choice.state.step)) {
            (void)snprintf(choice.directory, sizeof(choice.directory), "%s", directory);
            choice.state = state;
        } else if (status != TDM_OK && refusal == TDM_OK && access(directory, F_OK) == 0) {
            refusal = status;
            (void)snprintf(choice.refused, sizeof(choice.refused), "%s", tdm_error_detail());
        }
    }
    if (choice.directory[0] == '\0') {
        return refusal == TDM_OK
                   ? tdm__fail(TDM_E_NOT_FOUND,
                               "there is no checkpoint in %s: start the job without --resume", out)
                   : tdm__fail(refusal, "there is no complete checkpoint in %s: %s", out,
                               choice.refused);
    }
    *choice_out = choice;
    return TDM_OK;
}

tdm_status tdm__checkpoint_restore(const char *out, struct tdm__checkpoint_choice *choice)
{
    char current_path[TDM__PATH_BYTES];

    TDM_TRY(tdm__path_join(out, "checkpoint", current_path));
    if (strcmp(choice->directory, current_path) == 0) {
        return TDM_OK;
    }
    /* What stands there is damaged or older. */
    tdm__directory_remove(current_path);
    if (rename(choice->directory, current_path) < 0) {
        return tdm__fail_errno(errno, "rename %s to %s", choice->directory, current_path);
    }
    (void)snprintf(choice->directory, sizeof(choice->directory), "%s", current_path);
    return tdm__directory_sync(out);
}

/* ---- version number --------------------------------------------------------------------- */

/* Size of the file in bytes. It is constant, so that one write() replaces the former number. */
enum { NUMBER_BYTES = 24 };

tdm_status tdm__checkpoint_write_version(const char *out, uint64_t version)
{
    char path[TDM__PATH_BYTES];
    char text[NUMBER_BYTES + 1];
    ssize_t written;
    int error_number;
    int fd;

    TDM_TRY(tdm__path_join(out, "version", path));
    (void)snprintf(text, sizeof(text), "%0*llu\n", NUMBER_BYTES - 1, (unsigned long long)version);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return tdm__fail_errno(errno, "open %s", path);
    }
    written = write(fd, text, NUMBER_BYTES);
    error_number = errno;
    (void)close(fd);
    return written == NUMBER_BYTES ? TDM_OK : tdm__fail_errno(error_number, "write %s", path);
}

tdm_status tdm__checkpoint_read_version(const char *out, uint64_t *version_out)
{
    char path[TDM__PATH_BYTES];
    char text[NUMBER_BYTES + 8];
    char *end;

    *version_out = 0;
    TDM_TRY(tdm__path_join(out, "version", path));
    if (access(path, F_OK) != 0) {
        return TDM_OK;
    }
    errno = 0;
    if (!tdm__file_read_text(path, text, sizeof(text)) || text[0] < '0' || text[0] > '9') {
        return tdm__fail(TDM_E_PROTOCOL, "%s holds no number", path);
    }
    *version_out = strtoull(text, &end, 10);
    return errno == 0 && strcmp(end, "\n") == 0
               ? TDM_OK
               : tdm__fail(TDM_E_PROTOCOL, "%s holds no number", path);
}

/* ---- load, by the ranks ----------------------------------------------------------------- */

tdm_status tdm__checkpoint_load(struct tdm__worker_group *workers, const char *directory)
{
    char *absolute = realpath(directory, NULL); /* Ranks may have another current directory. */
    tdm_status status;

    if (absolute == NULL) {
        return tdm__fail_errno(errno, "checkpoint %s", directory);
    }
    status = call_trainer_ranks(workers, "load", absolute);
    free(absolute);
    return status;
}
