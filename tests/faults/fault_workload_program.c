/* fault_workload_program.c - what a node does while the fault table breaks something. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <tandem/tandem.h>

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The program is a driver on one of NODES_COUNT nodes, and it is also all of their actors:
 *
 *     fault_workload_program NODE FOLDER [late]
 *
 * NODE is the number of the node from 1 on; node 2 is called "n2".  Each process appends what it
 * does to a file of its own in FOLDER, one JSON object a line (struct history).  history.py reads
 * all of them.
 *
 * The driver of node N keeps three actors on the next node: named-N, restart-N (restarted without
 * limit) and gpu-N.  A "keeper" loop calls each of them without a pause, so that a call is in
 * flight at any time, and creates the actor again, on the node after, if it has died.  The driver
 * of the next node also wants named-N, so that two processes compete for the name when it becomes
 * free.  The actor caller-N on node N calls the same three actors.  slot-N holds the node's only
 * unit of the resource "slot", so that pending-N waits for a place until the drivers release their
 * slots, which they do when they get SIGTERM.  A driver with "late" came after a fault: it has
 * neither slot-N nor pending-N.
 *
 * A loop makes another call every OLD_MS even if an earlier call has no result, so that the history
 * shows both that a call hangs and when its actor answers again. */

enum {
    NODES_COUNT = 3,
    WORK_MS = 50,         /* Time in milliseconds that the method "work" takes. */
    HOLD_EVERY_MS = 100,  /* Time in milliseconds between two lines that say what an actor holds. */
    OLD_MS = 3000,        /* Age in milliseconds at which a call gets a successor. */
    PAUSE_MS = 200,       /* Pause in milliseconds after a call that failed. */
    DRAIN_MS = 25000,     /* Time in milliseconds that calls have to end after SIGTERM. */
    COMPETITOR_MS = 4000, /* Delay in milliseconds until a driver wants another driver's name. */
    OUTSTANDING_MAX = 16, /* Largest number of calls of a loop without a result. */
    LOOPS_MAX = 4,        /* Largest number of loops of a process. */
    ROLE_BYTES = 32,      /* Size of the text of a role, such as "restart-2". */
    LINE_BYTES = 1024     /* Size of a line of the history. */
};

/* The history of this process: a file and the name of this process in it. */
struct history {
    int fd;                  /* Descriptor of the file, opened with O_APPEND; -1 before that. */
    char by[ROLE_BYTES * 2]; /* Name of this process: its role, ":", and its PID. */
};

/* A call that has no result yet. */
struct outstanding {
    tdm_ref *ref;     /* Reference to the result, owned; NULL: the entry is unused. */
    int64_t begun_us; /* When the call was made. */
    uint64_t number;  /* Number of the call among those of this process. */
};

/* A thread of this process that calls one actor without a pause. */
struct loop {
    char role[ROLE_BYTES]; /* Role of the actor that it calls. */
    bool creates;          /* It creates the actor if there is none; else it looks for its name. */
    int delay_ms;          /* Milliseconds before it first does so. */
    uint64_t node;         /* Number of the node on which it wants the next actor. */
    pthread_t thread;      /* The thread. */
    pthread_mutex_t lock;  /* Protects `actor`. */
    tdm_actor *actor;      /* Handle of the actor, owned; NULL while there is none. */
    int failures_count;    /* Number of failed calls since the last that succeeded. */
    bool has_failed;       /* The last call has failed, so that a pause comes before the next. */
    struct outstanding calls[OUTSTANDING_MAX]; /* Calls of the loop without a result. */
};

static struct history history = {.fd = -1}; /* The history of this process. */
static char history_folder[512];            /* The folder of all histories. */
static tdm_runtime *runtime;                /* The runtime of this process. */
static struct loop loops[LOOPS_MAX];        /* The loops of this process. */
static int loops_count;                     /* Number of the loops in use. */
static atomic_bool stopping;                /* The loops make no more calls. */
static atomic_uint_least64_t calls_count;   /* Number of calls that were made. */
static tdm_actor *caller;                   /* In a driver: its actor caller-N, owned. */

/* Returns the microseconds of CLOCK_BOOTTIME, which all processes of the machine share. */
static int64_t now_us(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Sleeps for that many milliseconds, also when a signal interrupts it. */
static void sleep_ms(int64_t duration_ms)
{
    struct timespec left = {.tv_sec = duration_ms / 1000, .tv_nsec = duration_ms % 1000 * 1000000};

    while (nanosleep(&left, &left) != 0) {
        continue;
    }
}

/* Writes one line: the time, the process, and members of a JSON object, formatted as by printf.
 * The line is one write(), so that a process that is killed leaves whole lines. */
__attribute__((format(printf, 1, 2))) static void history_write(const char *format, ...)
{
    char line[LINE_BYTES];
    va_list arguments;
    int used =
        snprintf(line, sizeof(line), "{\"t\":%" PRId64 ",\"by\":\"%s\",", now_us(), history.by);

    va_start(arguments, format);
    used += vsnprintf(line + used, sizeof(line) - (size_t)used - 3, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof(line) - 4) {
        (void)fprintf(stderr, "a line of the history is too long: %s\n", line);
        abort();
    }
    line[used++] = '}';
    line[used++] = '\n';
    if (write(history.fd, line, (size_t)used) != used) {
        perror("write to the history");
        abort();
    }
}

/* Opens the history of this process, which has that role. */
static void history_open(const char *role)
{
    char path[sizeof(history_folder) + ROLE_BYTES * 2 + 8];

    (void)snprintf(history.by, sizeof(history.by), "%s:%d", role, (int)getpid());
    (void)snprintf(path, sizeof(path), "%s/%s.jsonl", history_folder, history.by);
    history.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (history.fd < 0) {
        perror(path);
        exit(1);
    }
}

/* Writes `text` to `out` without the characters that JSON would need escaped, cut at its size. */
static void make_plain(const char *text, char *out, size_t size)
{
    size_t used = 0;

    for (; *text != 0 && used + 1 < size; text++) {
        unsigned char byte = (unsigned char)*text;

        out[used++] = (char)(byte == '"'                                ? '\''
                             : byte < ' ' || byte == '\\' || byte > '~' ? ' '
                                                                        : byte);
    }
    out[used] = 0;
}

/* ---- the actor that is called ------------------------------------------------------------- */

static pthread_t holder;          /* The thread that writes what this actor holds. */
static atomic_bool holder_stops;  /* That thread ends. */
static char held[LINE_BYTES / 2]; /* Members of the lines that say what this actor holds. */

/* Writes every HOLD_EVERY_MS what the actor holds. */
static void *hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&holder_stops)) {
        history_write("%s", held);
        sleep_ms(HOLD_EVERY_MS);
    }
    return NULL;
}

/* subject(role, folder of the history): begins to write what the actor holds. */
static tdm_status subject_construct(tdm_call *call, void *self)
{
    struct tdm_runtime_info info;
    const char *role;
    const char *folder;
    char gpus[128] = "";
    size_t used = 0;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ss", &role, &folder));
    (void)snprintf(history_folder, sizeof(history_folder), "%s", folder);
    history_open(role);
    tdm_runtime_describe(tdm_runtime_current(), &info);
    for (uint32_t i = 0; i < info.gpus_count && used < sizeof(gpus) - 8; i++) {
        used += (size_t)snprintf(gpus + used, sizeof(gpus) - used, "%s%u", i > 0 ? "," : "",
                                 info.gpu_indices[i]);
    }
    (void)snprintf(held, sizeof(held),
                   "\"k\":\"hold\",\"role\":\"%s\",\"actor\":\"%s\",\"name\":\"%s\",\"gpus\":[%s],"
                   "\"node\":\"%s\",\"node_id\":\"%s\",\"restarts\":%u",
                   role, info.actor_id, info.actor_name, gpus, info.node_name, info.node_id,
                   info.restarts_count);
    history_write("%s", held);
    if (pthread_create(&holder, NULL, hold, NULL) != 0) {
        return tdm_fail(TDM_E_IO, "no thread for the actor %s", role);
    }
    return TDM_OK;
}

/* Ends the lines that say what the actor holds, before another actor can get it. */
static void subject_destruct(void *self)
{
    (void)self;
    atomic_store(&holder_stops, true);
    (void)pthread_join(holder, NULL);
    history_write("\"k\":\"let go\"");
}

/* work(ID of the call): takes WORK_MS and replies with the name of this process. */
static tdm_status subject_work(tdm_call *call, void *self)
{
    const char *id;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "s", &id));
    history_write("\"k\":\"run\",\"id\":\"%s\"", id);
    sleep_ms(WORK_MS);
    return tdm_call_reply(call, "s", history.by);
}

TDM_ACTOR_CLASS(subject, .construct = subject_construct, .destruct = subject_destruct,
                .methods = {{"work", subject_work, NULL}});

/* ---- loops --------------------------------------------------------------------------------- */

/* Writes the end of a call: the answer, or the reason why there is none. */
static void write_end(uint64_t number, tdm_status status, const char *answer)
{
    char plain[600];

    make_plain(status == TDM_OK ? answer : tdm_error_detail(), plain, sizeof(plain));
    history_write("\"k\":\"end\",\"id\":\"%s/%" PRIu64 "\",\"status\":%d,\"what\":\"%s\","
                  "\"%s\":\"%s\"",
                  history.by, number, (int)status, tdm_strerror(status),
                  status == TDM_OK ? "answer" : "why", plain);
}

/* Destroys the handle of the actor, so that the actor is looked for or created again. */
static void loop_forget(struct loop *loop)
{
    tdm_actor *actor;

    (void)pthread_mutex_lock(&loop->lock);
    actor = loop->actor;
    loop->actor = NULL;
    (void)pthread_mutex_unlock(&loop->lock);
    loop->failures_count = 0;
    tdm_actor_destroy(actor);
}

/* Takes notice of how a call has ended.  The handle of an actor that has died, or of one that is
 * not restartable on a lost node, is destroyed.  A restartable actor keeps its handle as long as
 * possible: the handle must find it again. */
static void loop_learn(struct loop *loop, tdm_status status)
{
    bool restartable = strncmp(loop->role, "restart", 7) == 0;
    bool replaceable = loop->creates || strncmp(loop->role, "named", 5) == 0;

    loop->has_failed = status != TDM_OK;
    loop->failures_count = loop->has_failed ? loop->failures_count + 1 : 0;
    if (replaceable && (status == TDM_E_ACTOR_DIED ||
                        (!restartable && loop->failures_count > 2 &&
                         (status == TDM_E_NODE_LOST || status == TDM_E_NO_RESOURCES)))) {
        loop_forget(loop);
    }
}

/* Makes a call of the method "work".  A call that is refused at once is in the history, too. */
static void loop_call(struct loop *loop, struct outstanding *entry)
{
    char id[ROLE_BYTES * 4];
    tdm_status status = TDM_OK;

    (void)pthread_mutex_lock(&loop->lock);
    if (loop->actor != NULL) {
        entry->number = atomic_fetch_add(&calls_count, 1) + 1;
        entry->begun_us = now_us();
        (void)snprintf(id, sizeof(id), "%s/%" PRIu64, history.by, entry->number);
        history_write("\"k\":\"call\",\"id\":\"%s\",\"to\":\"%s\"", id, loop->role);
        status = tdm_actor_call(loop->actor, "work", &entry->ref, "s", id);
    }
    (void)pthread_mutex_unlock(&loop->lock);
    if (status != TDM_OK) {
        write_end(entry->number, status, "");
        loop_learn(loop, status);
    }
}

/* Writes the end of a call that has a result. */
static void loop_finish(struct loop *loop, struct outstanding *entry)
{
    const char *answer = "";
    tdm_status status = tdm_get(entry->ref, 0, "s", &answer);

    write_end(entry->number, status, answer);
    tdm_ref_release(entry->ref);
    entry->ref = NULL;
    loop_learn(loop, status);
}

/* Waits at most `timeout_ms` for a result, and writes the ends of the calls that have one.  Returns
 * the number of calls without a result. */
static int loop_collect(struct loop *loop, int64_t timeout_ms)
{
    tdm_ref *refs[OUTSTANDING_MAX];
    uint8_t done[OUTSTANDING_MAX];
    uint32_t count = 0;

    for (int i = 0; i < OUTSTANDING_MAX; i++) {
        if (loop->calls[i].ref != NULL) {
            refs[count++] = loop->calls[i].ref;
        }
    }
    if (count == 0) {
        return 0;
    }
    (void)tdm_wait(refs, count, 1, timeout_ms, done);
    for (uint32_t i = count; i > 0; i--) {
        for (int j = 0; done[i - 1] && j < OUTSTANDING_MAX; j++) {
            if (loop->calls[j].ref == refs[i - 1]) {
                loop_finish(loop, &loop->calls[j]);
                count--;
                break;
            }
        }
    }
    return (int)count;
}

/* Makes a call if none is outstanding, or if the newest is older than OLD_MS. */
static void loop_call_if_due(struct loop *loop)
{
    struct outstanding *unused = NULL;
    int64_t newest_us = 0;

    for (int i = 0; i < OUTSTANDING_MAX; i++) {
        if (loop->calls[i].ref == NULL) {
            unused = &loop->calls[i];
        } else if (loop->calls[i].begun_us > newest_us) {
            newest_us = loop->calls[i].begun_us;
        }
    }
    if (unused != NULL && now_us() - newest_us > OLD_MS * (int64_t)1000) {
        loop_call(loop, unused);
    }
}

/* Writes the ID of the node of that number to `id_out`, which has room for 33 bytes; "" if the list
 * of nodes does not have it. */
static void find_node(uint64_t number, char *id_out)
{
    const struct tdm_node_state *nodes = NULL;
    uint32_t nodes_count = 0;
    char name[16];

    id_out[0] = 0;
    (void)snprintf(name, sizeof(name), "n%" PRIu64, number);
    if (tdm_list_nodes(runtime, 2000, &nodes, &nodes_count) != TDM_OK) {
        return;
    }
    for (uint32_t i = 0; i < nodes_count; i++) {
        if (strcmp(nodes[i].name, name) == 0) {
            (void)snprintf(id_out, 33, "%s", nodes[i].id);
        }
    }
    tdm_list_free(nodes);
}

/* Creates the actor of a role, on the node of that number if that node has room.  NULL on failure,
 * which is in the history. */
static tdm_actor *create(const char *role, uint64_t node)
{
    char node_id[33];
    tdm_actor *actor;
    struct tdm_actor_options options = {0};
    tdm_status status;

    find_node(node, node_id);
    if (strncmp(role, "named", 5) == 0) {
        options.name = role;
        options.get_if_exists = 1;
    } else if (strncmp(role, "restart", 7) == 0) {
        options.max_restarts = -1;
    } else if (strncmp(role, "gpu", 3) == 0) {
        options.num_gpus = 1;
    } else if (strncmp(role, "slot", 4) == 0 || strncmp(role, "pending", 7) == 0) {
        options.resources[0] = (struct tdm_resource){"slot", 1};
    }
    if (node_id[0] != 0 && strncmp(role, "pending", 7) != 0) {
        bool here = strncmp(role, "slot", 4) == 0 || strncmp(role, "caller", 6) == 0;

        options.scheduling = here ? TDM_SCHEDULE_NODE : TDM_SCHEDULE_NODE_SOFT;
        options.node_id = node_id;
    }
    if (strncmp(role, "slot", 4) == 0) {
        options.name = role;
    }
    history_write("\"k\":\"create\",\"role\":\"%s\"", role);
    status = tdm_actor_create(runtime, strncmp(role, "caller", 6) == 0 ? "caller" : "subject",
                              &options, &actor, "ss", role, history_folder);
    if (status != TDM_OK) {
        history_write("\"k\":\"not created\",\"role\":\"%s\",\"status\":%d", role, (int)status);
    }
    return actor;
}

/* Makes sure that the loop has an actor, if it can.  A driver tells its caller-N the new actor. */
static void loop_ensure_actor(struct loop *loop)
{
    tdm_actor *actor = NULL;
    tdm_ref *ref;

    (void)pthread_mutex_lock(&loop->lock);
    actor = loop->actor;
    (void)pthread_mutex_unlock(&loop->lock);
    if (actor != NULL) {
        return;
    }
    if (loop->creates) {
        actor = create(loop->role, loop->node);
        loop->node = loop->node % NODES_COUNT + 1;
    } else if (strncmp(loop->role, "named", 5) == 0 &&
               tdm_actor_find(runtime, loop->role, 2000, &actor) != TDM_OK) {
        actor = NULL;
    }
    (void)pthread_mutex_lock(&loop->lock);
    loop->actor = loop->actor == NULL ? actor : loop->actor;
    if (actor != NULL && caller != NULL && strncmp(loop->role, "named", 5) != 0 &&
        tdm_actor_call(caller, "use", &ref, "sh", loop->role, actor) == TDM_OK) {
        tdm_ref_release(ref);
    }
    (void)pthread_mutex_unlock(&loop->lock);
    if (actor == NULL) {
        sleep_ms(PAUSE_MS);
    }
}

/* Body of the thread of a loop. */
static void *loop_run(void *arg)
{
    struct loop *loop = (struct loop *)arg;
    int64_t end_us;

    for (int waited_ms = 0; waited_ms < loop->delay_ms && !atomic_load(&stopping);
         waited_ms += PAUSE_MS) {
        sleep_ms(PAUSE_MS);
    }
    while (!atomic_load(&stopping)) {
        loop_ensure_actor(loop);
        loop_call_if_due(loop);
        (void)loop_collect(loop, PAUSE_MS);
        if (loop->has_failed) {
            sleep_ms(PAUSE_MS);
        }
    }
    end_us = now_us() + DRAIN_MS * (int64_t)1000;
    while (loop_collect(loop, PAUSE_MS) > 0 && now_us() < end_us) {
        continue;
    }
    return NULL;
}

/* Starts a loop that calls the actor of the role KIND-NUMBER, wanted on the node `node`. */
static void loop_start(const char *kind, uint64_t number, uint64_t node, bool creates, int delay_ms)
{
    struct loop *loop = &loops[loops_count++];

    (void)snprintf(loop->role, sizeof(loop->role), "%s-%" PRIu64, kind, number);
    loop->creates = creates;
    loop->delay_ms = delay_ms;
    loop->node = node;
    (void)pthread_mutex_init(&loop->lock, NULL);
    if (pthread_create(&loop->thread, NULL, loop_run, loop) != 0) {
        perror("pthread_create");
        abort();
    }
}

/* Ends all loops of this process: waits until their calls have ended, at most DRAIN_MS. */
static void loops_stop(void)
{
    atomic_store(&stopping, true);
    for (int i = 0; i < loops_count; i++) {
        (void)pthread_join(loops[i].thread, NULL);
    }
}

/* ---- the actor that calls ------------------------------------------------------------------ */

/* caller(role, folder of the history): begins to call the actors of its node's driver. */
static tdm_status caller_construct(tdm_call *call, void *self)
{
    const char *role;
    const char *folder;
    uint64_t number;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "ss", &role, &folder));
    (void)snprintf(history_folder, sizeof(history_folder), "%s", folder);
    history_open(role);
    history_write("\"k\":\"process\"");
    runtime = tdm_runtime_current();
    number = strtoull(strchr(role, '-') + 1, NULL, 10);
    loop_start("named", number, 0, false, 0);
    loop_start("restart", number, 0, false, 0);
    loop_start("gpu", number, 0, false, 0);
    return TDM_OK;
}

/* use(role, handle): from now on the loop of the role calls this actor. */
static tdm_status caller_use(tdm_call *call, void *self)
{
    const char *role;
    tdm_actor *actor;

    (void)self;
    TDM_TRY(tdm_call_unpack(call, "sh", &role, &actor));
    for (int i = 0; i < loops_count; i++) {
        if (strcmp(loops[i].role, role) == 0) {
            tdm_actor *old;

            (void)pthread_mutex_lock(&loops[i].lock);
            old = loops[i].actor;
            loops[i].actor = actor;
            actor = NULL;
            (void)pthread_mutex_unlock(&loops[i].lock);
            tdm_actor_destroy(old);
        }
    }
    tdm_actor_destroy(actor);
    return TDM_OK;
}

/* stop(): makes no more calls, and replies when the calls have ended. */
static tdm_status caller_stop(tdm_call *call, void *self)
{
    (void)self;
    loops_stop();
    history_write("\"k\":\"drained\"");
    return tdm_call_reply(call, "i", (int64_t)1);
}

TDM_ACTOR_CLASS(caller, .construct = caller_construct,
                .methods = {{"use", caller_use, NULL}, {"stop", caller_stop, NULL}});

/* ---- the driver ---------------------------------------------------------------------------- */

/* Waits until all slots are held, so that none is free for an actor that is to wait.  Exits with 1
 * after 20 s. */
static void wait_for_slots(void)
{
    for (int i = 1; i <= NODES_COUNT; i++) {
        tdm_actor *actor = NULL;
        char name[16];
        int64_t end_us = now_us() + 20000000;

        (void)snprintf(name, sizeof(name), "slot-%d", i);
        while (tdm_actor_find(runtime, name, 2000, &actor) != TDM_OK) {
            if (now_us() > end_us) {
                (void)fprintf(stderr, "no actor %s after 20 s: %s\n", name, tdm_error_detail());
                exit(1);
            }
            sleep_ms(PAUSE_MS);
        }
        tdm_actor_destroy(actor);
    }
}

/* Waits for SIGTERM, which is blocked in all threads, and then ends all work in order. */
static void drain(tdm_actor *slot, tdm_actor *pending, struct loop *pending_loop)
{
    tdm_ref *stopped = NULL;
    int64_t end_us;
    sigset_t signals;
    int got;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)sigwait(&signals, &got);
    history_write("\"k\":\"draining\"");
    tdm_actor_destroy(slot);
    if (tdm_actor_call(caller, "stop", &stopped, "") != TDM_OK) {
        stopped = NULL;
    }
    loops_stop();
    end_us = now_us() + DRAIN_MS * (int64_t)1000;
    while (pending != NULL && loop_collect(pending_loop, PAUSE_MS) > 0 && now_us() < end_us) {
        continue;
    }
    if (stopped != NULL) {
        (void)tdm_get(stopped, DRAIN_MS + 5000, "n");
        tdm_ref_release(stopped);
    }
    history_write("\"k\":\"drained\"");
}

/* Works as a driver until SIGTERM; in a process of an actor tdm_runtime_start() does not return. */
int main(int argc, char **argv)
{
    struct loop pending_loop = {0};
    tdm_actor *slot = NULL;
    char role[ROLE_BYTES];
    sigset_t signals;
    uint64_t node;
    bool late = argc > 3;

    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    if (getenv("TANDEM_WORKER") == NULL) {
        (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    }
    TDM_CHECK(tdm_runtime_start(NULL, &runtime));
    if (argc < 3) {
        (void)fprintf(stderr, "usage: fault_workload_program NODE FOLDER [late]\n");
        return 1;
    }
    node = strtoull(argv[1], NULL, 10);
    (void)snprintf(history_folder, sizeof(history_folder), "%s", argv[2]);
    (void)snprintf(role, sizeof(role), "driver-%" PRIu64, node);
    history_open(role);
    history_write("\"k\":\"process\"");
    (void)snprintf(role, sizeof(role), "caller-%" PRIu64, node);
    caller = create(role, node);
    if (!late) {
        (void)snprintf(role, sizeof(role), "slot-%" PRIu64, node);
        slot = create(role, node);
        wait_for_slots();
        (void)snprintf(pending_loop.role, sizeof(pending_loop.role), "pending-%" PRIu64, node);
        (void)pthread_mutex_init(&pending_loop.lock, NULL);
        pending_loop.actor = create(pending_loop.role, node);
        loop_call_if_due(&pending_loop);
    }
    loop_start("named", node, node % NODES_COUNT + 1, true, 0);
    loop_start("restart", node, node % NODES_COUNT + 1, true, 0);
    loop_start("gpu", node, node % NODES_COUNT + 1, true, 0);
    loop_start("named", node % NODES_COUNT + 1, (node + 1) % NODES_COUNT + 1, true, COMPETITOR_MS);
    drain(slot, pending_loop.actor, &pending_loop);
    tdm_actor_destroy(pending_loop.actor);
    for (int i = 0; i < loops_count; i++) {
        tdm_actor_destroy(loops[i].actor);
    }
    tdm_actor_destroy(caller);
    tdm_runtime_stop(runtime);
    history_write("\"k\":\"exit\"");
    return 0;
}
