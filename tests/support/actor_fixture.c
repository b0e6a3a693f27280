/* actor_fixture.c - a private node for tests of actors, and an actor that does what it is told.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/actor_fixture.h"

#include "tests/support/redis_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- the actor -------------------------------------------------------------------------- */

struct tester {
    int64_t total;
    int64_t last;
    int64_t out_of_order;
    char greeted[64];
    tdm_actor *child;
};

/* Waits until the file exists. */
static void wait_for_gate(const char *path)
{
    while (access(path, F_OK) != 0) {
        (void)poll(NULL, 0, 5);
    }
}

static tdm_status tester_construct(tdm_call *call, void *self)
{
    const tdm_value *first = tdm_value_at(tdm_call_arguments(call), 0);

    (void)self;
    if (strcmp(tdm_value_string(first, ""), "broken") == 0) {
        return tdm_fail(TDM_E_METHOD, "the engine has no fuel");
    }
    if (strcmp(tdm_value_string(first, ""), "exit") == 0) {
        _exit(7);
    }
    if (strcmp(tdm_value_string(first, ""), "gate") == 0) {
        wait_for_gate(tdm_value_string(tdm_value_at(tdm_call_arguments(call), 1), "/"));
    }
    return TDM_OK;
}

static void tester_destruct(void *self)
{
    tdm_actor_destroy(((struct tester *)self)->child);
}

static tdm_status tester_add(tdm_call *call, void *self)
{
    struct tester *tester = self;
    int64_t by;

    TDM_TRY(tdm_call_unpack(call, "i", &by));
    tester->total += by;
    return tdm_call_reply(call, "i", tester->total);
}

static tdm_status tester_append(tdm_call *call, void *self)
{
    struct tester *tester = self;
    int64_t number;

    TDM_TRY(tdm_call_unpack(call, "i", &number));
    tester->out_of_order += number == tester->last + 1 ? 0 : 1;
    tester->last = number;
    return tdm_call_reply(call, "i", tester->out_of_order);
}

static tdm_status tester_blob(tdm_call *call, void *self)
{
    uint64_t size_bytes;
    tdm_status status;
    void *bytes;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "u", &size_bytes));
    bytes = malloc(size_bytes);
    if (bytes == NULL) {
        return tdm_fail(TDM_E_NOMEM, "a blob");
    }
    memset(bytes, 0x5a, size_bytes);
    status = tdm_call_reply(call, "b", (const void *)bytes, (size_t)size_bytes);
    free(bytes);
    return status;
}

static tdm_status tester_echo(tdm_call *call, void *self)
{
    const tdm_value *value;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "v", &value));
    return tdm_call_reply(call, "v", value);
}

static tdm_status tester_fail(tdm_call *call, void *self)
{
    const char *detail;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &detail));
    return tdm_fail(TDM_E_METHOD, "%s", detail);
}

static tdm_status tester_status(tdm_call *call, void *self)
{
    int64_t status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &status));
    return tdm_fail((tdm_status)status, "as asked");
}

_Noreturn static void hang(void)
{
    for (;;) {
        (void)poll(NULL, 0, -1);
    }
}

static tdm_status tester_hang(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    hang();
}

static tdm_status tester_linger(tdm_call *call, void *self)
{
    int64_t milliseconds;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &milliseconds));
    (void)poll(NULL, 0, (int)milliseconds);
    return TDM_OK;
}

static tdm_status tester_exit(tdm_call *call, void *self)
{
    int64_t code;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "i", &code));
    _exit((int)code);
}

static tdm_status tester_pid(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)getpid());
}

static tdm_status tester_lend(tdm_call *call, void *self)
{
    (void)self;
    TDM_TRY(tdm_runtime_lend_cpus(tdm_runtime_current()));
    return tdm_call_reply(call, "");
}

static tdm_status tester_myself(tdm_call *call, void *self)
{
    struct tdm_actor_info info;
    tdm_actor *actor;

    (void)self;
    TDM_TRY(tdm_actor_current(tdm_runtime_current(), &actor));
    tdm_actor_describe(actor, &info);
    tdm_actor_destroy(actor);
    return tdm_call_reply(call, "s", info.id);
}

static tdm_status tester_take_back(tdm_call *call, void *self)
{
    (void)self;
    TDM_TRY(tdm_runtime_take_cpus_back(tdm_runtime_current()));
    return tdm_call_reply(call, "");
}

static tdm_status tester_parent(tdm_call *call, void *self)
{
    (void)self;
    return tdm_call_reply(call, "i", (int64_t)getppid());
}

static tdm_status tester_variable(tdm_call *call, void *self)
{
    const char *name;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &name));
    return tdm_call_reply(call, "s", getenv(name));
}

static tdm_status tester_place(tdm_call *call, void *self)
{
    char place[PATH_MAX];

    (void)self;
    return tdm_call_reply(call, "s", getcwd(place, sizeof(place)));
}

static tdm_status tester_gpus(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    char text[128] = "";
    size_t used = 0;

    (void)self;
    tdm_runtime_describe(tdm_runtime_current(), &info);
    for (uint32_t i = 0; i < info.gpus_count; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", i == 0 ? "" : ",",
                                 info.gpu_indices[i]);
    }
    return tdm_call_reply(call, "s", text);
}

static tdm_status tester_greet(tdm_call *call, void *self)
{
    struct tester *tester = self;
    const char *whom;

    TDM_TRY(tdm_call_unpack(call, "s", &whom));
    TDM_TRY(tdm_call_reply(call, "s", "hello"));
    (void)snprintf(tester->greeted, sizeof(tester->greeted), "%s/%s", whom,
                   tdm_value_string(tdm_value_at(tdm_call_arguments(call), 0), "gone"));
    return TDM_OK;
}

static tdm_status tester_greeted(tdm_call *call, void *self)
{
    return tdm_call_reply(call, "s", ((struct tester *)self)->greeted);
}

static tdm_status tester_nothing(tdm_call *call, void *self)
{
    (void)call;
    (void)self;
    return TDM_OK;
}

static tdm_status tester_twice(tdm_call *call, void *self)
{
    struct tester *tester = self;

    TDM_TRY(tdm_call_reply(call, "s", "once"));
    tester->total = tdm_call_reply(call, "s", "and again");
    return TDM_OK;
}

static tdm_status tester_breed(tdm_call *call, void *self)
{
    struct tester *tester = self;
    const char *name;
    struct tdm_actor_info info;

    TDM_TRY(tdm_call_unpack(call, "s", &name));
    TDM_TRY(tdm_actor_create(tdm_runtime_current(), "tester",
                             &(struct tdm_actor_options){.name = name}, &tester->child, ""));
    TDM_TRY(tdm_actor_wait_ready(tester->child, TEST_TIMEOUT_MS));
    tdm_actor_describe(tester->child, &info);
    return tdm_call_reply(call, "i", info.pid);
}

static tdm_status tester_seek(tdm_call *call, void *self)
{
    struct tester *tester = self;
    struct tdm_actor_options options = {.get_if_exists = 1};
    int with_creation;

    TDM_TRY(tdm_call_unpack(call, "s?", &options.name, &with_creation));
    tdm_actor_destroy(tester->child);
    tester->child = NULL;
    if (with_creation != 0) {
        TDM_TRY(tdm_actor_create(tdm_runtime_current(), "tester", &options, &tester->child, ""));
    } else {
        TDM_TRY(tdm_actor_find(tdm_runtime_current(), options.name, 5000, &tester->child));
    }
    return tdm_call_reply(call, "i", (int64_t)tdm_actor_wait_ready(tester->child, 0));
}

static tdm_status tester_sought(tdm_call *call, void *self)
{
    const struct tester *tester = self;
    tdm_ref *ref;
    int64_t pid;
    tdm_status status;

    TDM_TRY(tdm_actor_call(tester->child, "pid", &ref, ""));
    status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &pid);
    tdm_ref_release(ref);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", pid);
}

static tdm_status tester_relay(tdm_call *call, void *self)
{
    const char *name;
    tdm_actor *other;
    tdm_ref *ref = NULL;
    int64_t total;
    tdm_status status;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &name));
    TDM_TRY(tdm_actor_find(tdm_runtime_current(), name, TEST_TIMEOUT_MS, &other));
    status = tdm_actor_call(other, "add", &ref, "i", (int64_t)1);
    if (status == TDM_OK) {
        status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &total);
    }
    tdm_ref_release(ref);
    tdm_actor_destroy(other);
    TDM_TRY(status);
    return tdm_call_reply(call, "i", total);
}

/* Its parent in between has ended: it is an orphan in a session of its own. */
_Noreturn static void become_stray(int report, int with_exec)
{
    pid_t pid = setsid() < 0 ? -1 : fork();

    if (pid != 0) {
        _exit(pid < 0 || write(report, &pid, sizeof(pid)) != (ssize_t)sizeof(pid) ? 1 : 0);
    }
    if (with_exec != 0) {
        (void)execl("/bin/sleep", "sleep", "1000", (char *)NULL);
    }
    hang();
}

static tdm_status tester_stray(tdm_call *call, void *self)
{
    int with_exec;
    int report[2];
    pid_t pid;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "?", &with_exec));
    if (pipe(report) < 0) {
        return tdm_fail(TDM_E_IO, "pipe");
    }
    pid = fork();
    if (pid == 0) {
        become_stray(report[1], with_exec);
    }
    if (pid < 0 || read(report[0], &pid, sizeof(pid)) != (ssize_t)sizeof(pid)) {
        return tdm_fail(TDM_E_IO, "fork");
    }
    (void)close(report[0]);
    (void)close(report[1]);
    return tdm_call_reply(call, "i", (int64_t)pid);
}

TDM_ACTOR_CLASS(
    tester, .state_bytes = sizeof(struct tester), .construct = tester_construct,
    .destruct = tester_destruct,
    .methods = {
        {"add", tester_add},         {"append", tester_append}, {"blob", tester_blob},
        {"echo", tester_echo},       {"fail", tester_fail},     {"status", tester_status},
        {"hang", tester_hang},       {"linger", tester_linger}, {"exit", tester_exit},
        {"pid", tester_pid},         {"parent", tester_parent}, {"variable", tester_variable},
        {"place", tester_place},     {"gpus", tester_gpus},     {"greet", tester_greet},
        {"greeted", tester_greeted}, {"twice", tester_twice},   {"breed", tester_breed},
        {"relay", tester_relay},     {"stray", tester_stray},   {"nothing", tester_nothing},
        {"myself", tester_myself},   {"lend", tester_lend},     {"take_back", tester_take_back},
        {"seek", tester_seek},       {"sought", tester_sought},
    });

void actor_fixture_link_tester(void)
{
}

/* ---- the node --------------------------------------------------------------------------- */

static char temporary[64];

void actor_fixture_prepare(void)
{
    if (getenv("TANDEM_WORKER") != NULL) {
        return;
    }
    (void)snprintf(temporary, sizeof(temporary), "/tmp/tdt-XXXXXX");
    if (mkdtemp(temporary) == NULL || setenv("TMPDIR", temporary, 1) < 0 ||
        setenv("TANDEM_DAEMON", TDM_TEST_BUILD_DIR "/tandemd", 1) < 0 ||
        unsetenv("TANDEM_ADDRESS") < 0) {
        (void)fprintf(stderr, "no directory for the test: %s\n", strerror(errno));
        exit(1);
    }
}

int actor_fixture_clean_up(void)
{
    DIR *entries = opendir(temporary);
    const struct dirent *entry;
    int left = 0;

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (entry->d_name[0] != '.') {
            (void)fprintf(stderr, "left behind: %s/%s\n", temporary, entry->d_name);
            left++;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    remove_tree(temporary);
    return left;
}

tdm_runtime *actor_fixture_open(const struct tdm_runtime_options *options)
{
    tdm_runtime *runtime;

    actor_fixture_prepare();
    TDM_CHECK(tdm_runtime_start(options, &runtime));
    return runtime;
}

int actor_fixture_close(tdm_runtime *runtime)
{
    tdm_runtime_stop(runtime);
    return actor_fixture_clean_up();
}

/* ---- asking ----------------------------------------------------------------------------- */

static void must(tdm_status status, const char *what)
{
    if (status != TDM_OK) {
        fail_msg("%s: %s: %s", what, tdm_strerror(status), tdm_error_detail());
    }
}

tdm_actor *actor_fixture_create(tdm_runtime *runtime, const struct tdm_actor_options *options)
{
    tdm_actor *actor = NULL;

    must(tdm_actor_create(runtime, "tester", options, &actor, ""), "create");
    must(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS), "wait_ready");
    return actor;
}

int64_t actor_fixture_call_int(tdm_actor *actor, const char *method)
{
    tdm_ref *ref = NULL;
    int64_t answer = 0;

    must(tdm_actor_call(actor, method, &ref, ""), method);
    must(tdm_get(ref, TEST_TIMEOUT_MS, "i", &answer), method);
    tdm_ref_release(ref);
    return answer;
}

void actor_fixture_call_text(tdm_actor *actor, const char *method, const char *argument, char *text,
                             size_t room)
{
    tdm_ref *ref = NULL;
    const char *answer = NULL;

    must(tdm_actor_call(actor, method, &ref, "s", argument), method);
    must(tdm_get(ref, TEST_TIMEOUT_MS, "s", &answer), method);
    (void)snprintf(text, room, "%s", answer == NULL ? "(none)" : answer);
    tdm_ref_release(ref);
}

tdm_status actor_fixture_call(tdm_actor *actor, const char *method, const char *argument)
{
    tdm_ref *ref = NULL;
    const tdm_value *value;
    tdm_status status;

    TDM_TRY(argument == NULL ? tdm_actor_call(actor, method, &ref, "")
                             : tdm_actor_call(actor, method, &ref, "s", argument));
    status = tdm_get_value(ref, TEST_TIMEOUT_MS, &value);
    tdm_ref_release(ref);
    return status;
}

/* Returns true if the thread with this directory in /proc has stopped. */
static int is_thread_stopped(int64_t pid, const char *thread)
{
    char path[64];
    char text[512] = "";
    const char *state;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%lld/task/%.20s/stat", (long long)pid, thread);
    file = fopen(path, "r");
    if (file == NULL) {
        return 1; /* The thread has ended. */
    }
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    state = strrchr(text, ')'); /* The name before it may have any characters. */
    return state != NULL && state[1] == ' ' && state[2] == 'T';
}

/* Returns true if all threads of the process have stopped. */
static int is_process_stopped(int64_t pid)
{
    const struct dirent *entry;
    char path[64];
    int stopped = 1;
    DIR *threads;

    (void)snprintf(path, sizeof(path), "/proc/%lld/task", (long long)pid);
    threads = opendir(path);
    if (threads == NULL) {
        return 0;
    }
    while (stopped && (entry = readdir(threads)) != NULL) {
        stopped = entry->d_name[0] == '.' || is_thread_stopped(pid, entry->d_name);
    }
    (void)closedir(threads);
    return stopped;
}

int stop_process(int64_t pid, int64_t timeout_ms)
{
    if (kill((pid_t)pid, SIGSTOP) < 0) {
        return 0;
    }
    for (int64_t waited_ms = 0; waited_ms <= timeout_ms; waited_ms++) {
        if (is_process_stopped(pid)) {
            return 1;
        }
        (void)poll(NULL, 0, 1);
    }
    return 0;
}

int wait_process_exit(int64_t pid, int64_t timeout_ms)
{
    for (int64_t waited_ms = 0; waited_ms <= timeout_ms; waited_ms += 5) {
        if (kill((pid_t)pid, 0) < 0 && errno == ESRCH) {
            return 1;
        }
        (void)poll(NULL, 0, 5);
    }
    return 0;
}
