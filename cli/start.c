/* start.c - `tandem start`: starts the daemon of this machine in the background. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A user has at most one started node on a machine, in the directory of
 * tdm__started_node_directory(). The lock of that directory decides: `tandem start` fails while a
 * daemon or its supervisor holds it, and otherwise removes what an earlier node left there.
 *
 * The daemon gets its options on its command line, which every user can read. So the URL of a Redis
 * server with a password travels as the name of a file or in the environment, and the token as the
 * name of a file. The command waits for the daemon's message that it is ready; with --block it then
 * waits for the daemon's end. There is one thread. */
#include "actors/process/daemon_process.h"
#include "actors/process/started_node.h"
#include "cli/command.h"
#include "cli/redis_url.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/process/spawn.h"
#include "runtime/rpc/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The port at which Ray's head node accepts jobs, as a number and as text. */
#define USUAL_JOB_PORT      8265
#define USUAL_JOB_PORT_TEXT "8265"

enum {
    READY_MS = 40000,     /* Longest wait until the daemon is ready, in milliseconds. */
    END_MS = 10000,       /* Longest wait for the end of a daemon that did not become ready. */
    HEAD_S = 20,          /* Default of --wait, in seconds. */
    HEAD_S_MAX = 86400,   /* Largest value of --wait, in seconds. */
    CONNECT_S = 2,        /* Longest attempt to reach the head node, in seconds. */
    HEAD_POLL_MS = 100,   /* Time between two attempts to reach the head node, in milliseconds. */
    RESOURCES_MAX = 32,   /* Most resources in the value of --resources. */
    RESOURCE_BYTES = 128, /* Capacity of one of them as "NAME=AMOUNT". */
    WORDS_MAX = 128       /* Most words of the daemon's command line. */
};

static struct tdm__option options[] = {{"--head", false, NULL},
                                       {"--address", true, NULL},
                                       {"--port", true, NULL},
                                       {"--node-ip-address", true, NULL},
                                       {"--node-name", true, NULL},
                                       {"--num-cpus", true, NULL},
                                       {"--num-gpus", true, NULL},
                                       {"--resources", true, NULL},
                                       {"--memory", true, NULL},
                                       {"--object-store-memory", true, NULL},
                                       {"--labels", true, NULL},
                                       {"--redis", true, NULL},
                                       {"--redis-file", true, NULL},
                                       {"--redis-wait-replicas", true, NULL},
                                       {"--ports", true, NULL},
                                       {"--advertise", true, NULL},
                                       {"--tls", true, NULL},
                                       {"--insecure-redis", false, NULL},
                                       {"--wait", true, NULL},
                                       {"--block", false, NULL},
                                       {"--dashboard-host", true, NULL},
                                       {"--dashboard-port", true, NULL},
                                       {NULL, false, NULL}};

/* The command line of the daemon and the memory of its words. */
struct daemon_words {
    char *words[WORDS_MAX];     /* The words, borrowed from this structure, argv and literals. */
    uint32_t count;             /* Number of entries in `words`. */
    char host[INET_ADDRSTRLEN]; /* Default of --node-ip-address. */
    char job_address[512];      /* Value of --job-address. */
    char resources[RESOURCES_MAX][RESOURCE_BYTES]; /* Values of --resource. */
};

/* ---- the command line of the daemon ------------------------------------------------------ */

/* Appends a word to the daemon's command line. */
static void words_add(struct daemon_words *words, const char *word)
{
    if (words->count + 1 < WORDS_MAX) {
        words->words[words->count++] = (char *)(uintptr_t)word;
    }
}

/* Appends an option of the daemon with its value, unless the value is NULL. */
static void words_add_option(struct daemon_words *words, const char *name, const char *value)
{
    if (value != NULL) {
        words_add(words, name);
        words_add(words, value);
    }
}

/* Appends a --resource for each member of the JSON object `text`. Returns the exit code. */
static int words_add_resources(struct daemon_words *words, const char *text)
{
    json_t *root = text == NULL ? json_object() : json_loads(text, 0, NULL);
    uint32_t count = 0;
    const char *name;
    json_t *amount;
    bool is_right = json_is_object(root) && json_object_size(root) <= RESOURCES_MAX;

    json_object_foreach(root, name, amount)
    {
        if (!is_right || !json_is_number(amount) || strlen(name) > RESOURCE_BYTES / 2) {
            is_right = false;
            break;
        }
        (void)snprintf(words->resources[count], RESOURCE_BYTES, "%s=%.4f", name,
                       json_number_value(amount));
        words_add_option(words, "--resource", words->resources[count++]);
    }
    json_decref(root);
    return is_right ? TDM__EXIT_SUCCESS
                    : tdm__refuse_arguments("start",
                                            "--resources: expected a JSON object of at most %d "
                                            "numbers, such as '{\"disk\": 2}', got \"%s\"",
                                            (int)RESOURCES_MAX, text);
}

/* Returns whether the options have a value that is no number. */
static bool has_wrong_number(const struct tdm__parsed_arguments *args)
{
    static const char *const names[] = {
        "--port",           "--num-cpus", "--num-gpus", "--memory", "--object-store-memory",
        "--dashboard-port", "--wait"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = tdm__option_value(args, names[i]);

        if (value != NULL && value[strspn(value, "0123456789")] != '\0') {
            (void)tdm__refuse_arguments("start", "%s: expected a whole number, got \"%s\"",
                                        names[i], value);
            return true;
        }
    }
    return false;
}

/* Writes the IP address of this machine in its network, or the loopback address. */
static void find_own_address(char host[INET_ADDRSTRLEN])
{
    /* An address for documentation; connecting a datagram socket sends nothing. */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(9)};
    socklen_t address_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    (void)inet_pton(AF_INET, "192.0.2.1", &address.sin_addr);
    (void)snprintf(host, INET_ADDRSTRLEN, "127.0.0.1");
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 &&
        getsockname(fd, (struct sockaddr *)&address, &address_bytes) == 0) {
        (void)inet_ntop(AF_INET, &address.sin_addr, host, INET_ADDRSTRLEN);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
}

/* Appends the number and kind of GPUs: real ones where there is a GPU, else as many virtual ones as
 * --num-gpus says, and none without the option. */
static void words_add_gpus(struct daemon_words *words, const char *gpus)
{
    const char *device = getenv("TANDEM_DEVICE");
    bool has_gpu = access("/dev/nvidiactl", F_OK) == 0;

    if (device == NULL && has_gpu) {
        words_add_option(words, "--device", "cuda");
    }
    if (gpus == NULL && device == NULL && !has_gpu && getenv("TANDEM_GPUS") == NULL) {
        gpus = "0";
    }
    words_add_option(words, "--gpus", gpus);
}

/* Returns whether another process listens at Ray's usual port for jobs. */
static bool usual_job_port_is_taken(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons(USUAL_JOB_PORT),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int yes = 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_taken;

    if (fd < 0) {
        return false;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    is_taken =
        bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 && errno == EADDRINUSE;
    (void)close(fd);
    return is_taken;
}

/* Appends the address at which the head node accepts `tandem job`: loopback unless the user asks
 * for another host. A port that the user has chosen must be free; without the usual one the node
 * accepts jobs from this machine only. */
static void words_add_job_address(struct daemon_words *words,
                                  const struct tdm__parsed_arguments *args)
{
    const char *host = tdm__option_value(args, "--dashboard-host");
    const char *port = tdm__option_value(args, "--dashboard-port");

    if (port == NULL && usual_job_port_is_taken()) {
        (void)fprintf(
            stderr,
            "tandem: warning: another process listens at port %d, so that jobs reach this "
            "node only without --address; --dashboard-port N chooses another port\n",
            (int)USUAL_JOB_PORT);
        return;
    }
    (void)snprintf(words->job_address, sizeof(words->job_address), "%s:%.5s",
                   host == NULL ? "127.0.0.1" : host, port == NULL ? USUAL_JOB_PORT_TEXT : port);
    words_add_option(words, "--job-address", words->job_address);
    if (port == NULL) {
        words_add(words, "--job-optional"); /* The port may be taken at this moment. */
    }
}

/* Makes the daemon's command line from that of `tandem start`. Returns the exit code. */
static int words_fill(const struct tdm__parsed_arguments *args, const char *directory,
                      struct daemon_words *words)
{
    static const char *const same[][2] = {{"--num-cpus", "--cpus"},
                                          {"--memory", "--memory-bytes"},
                                          {"--object-store-memory", "--object-store-bytes"},
                                          {"--node-name", "--name"},
                                          {"--labels", "--labels"},
                                          {"--address", "--join"},
                                          {"--redis", "--redis"},
                                          {"--redis-file", "--redis-file"},
                                          {"--redis-wait-replicas", "--redis-wait-replicas"},
                                          {"--ports", "--ports"},
                                          {"--advertise", "--advertise"},
                                          {"--tls", "--tls"}};
    const char *host = tdm__option_value(args, "--node-ip-address");
    const char *port = tdm__option_value(args, "--port");

    words_add(words, "tandemd");
    words_add(words, "--started");
    words_add_option(words, "--directory", directory);
    if (host == NULL) {
        find_own_address(words->host);
        host = words->host;
    }
    words_add_option(words, "--listen", host);
    if (tdm__option_value(args, "--head") != NULL) {
        words_add_option(words, "--port", port == NULL ? "6379" : port);
        words_add_job_address(words, args);
    }
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        words_add_option(words, same[i][1], tdm__option_value(args, same[i][0]));
    }
    if (tdm__option_value(args, "--insecure-redis") != NULL) {
        words_add(words, "--insecure-redis");
    }
    words_add_gpus(words, tdm__option_value(args, "--num-gpus"));
    return words_add_resources(words, tdm__option_value(args, "--resources"));
}

/* Checks which options are given together. Returns the exit code. */
static int check_options(const struct tdm__parsed_arguments *args)
{
    const char *redis = tdm__option_value(args, "--redis");
    const char *environment = getenv("TANDEM_REDIS");
    bool is_head = tdm__option_value(args, "--head") != NULL;
    bool has_address = tdm__option_value(args, "--address") != NULL;
    bool has_redis = redis != NULL || tdm__option_value(args, "--redis-file") != NULL;

    if (is_head && has_address) {
        return tdm__refuse_arguments("start", "--head starts a new cluster, --address joins one");
    }
    if (has_address && has_redis) {
        return tdm__refuse_arguments("start", "--address and --redis name two different stores");
    }
    if (!is_head && !has_address && !has_redis && (environment == NULL || environment[0] == '\0')) {
        return tdm__refuse_arguments(
            "start", "give --head for the first node, --address HOST:PORT for a further one");
    }
    if (redis != NULL && !cli_redis_url_check("--redis", redis)) {
        return TDM__EXIT_USAGE;
    }
    return has_wrong_number(args) ? TDM__EXIT_USAGE : TDM__EXIT_SUCCESS;
}

/* ---- the directory ---------------------------------------------------------------------- */

/* Creates the empty directory of the node. Fails if a started node runs on this machine. */
static tdm_status directory_prepare(const char *directory)
{
    int lock;
    tdm_status status;

    if (tdm__directory_is_locked(directory)) {
        return tdm__fail(TDM_E_EXISTS,
                         "starting a node failed: a node of yours runs on this machine already, in "
                         "%s. `tandem stop` ends it",
                         directory);
    }
    TDM_TRY(tdm__directory_create_at(directory));
    status = tdm__directory_lock(directory, &lock);
    if (status != TDM_OK) {
        return tdm__wrap(status, "starting a node failed");
    }
    tdm__directory_clear_leftovers(directory);
    tdm__directory_remove(directory);
    (void)close(lock);
    return tdm__directory_create_at(directory);
}

/* Writes the process ID of the daemon's supervisor to a file, for `tandem stop`. */
static tdm_status directory_write_supervisor(const char *directory, pid_t supervisor)
{
    char path[PATH_MAX];
    FILE *file;
    bool is_written;

    (void)snprintf(path, sizeof(path), "%s/supervisor", directory);
    file = fopen(path, "we");
    is_written = file != NULL && fprintf(file, "%d\n", (int)supervisor) > 0;
    if (file != NULL && fclose(file) != 0) {
        is_written = false;
    }
    return is_written ? TDM_OK : tdm__fail_errno(errno, "starting a node failed: writing %s", path);
}

/* Opens the file for what the daemon prints. The caller closes the descriptor. */
static tdm_status log_open(const char *directory, int *fd_out)
{
    char path[PATH_MAX];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/tandemd.log", directory);
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) {
        return tdm__fail_errno(errno, "starting a node failed: open %s", path);
    }
    *fd_out = fd;
    return TDM_OK;
}

/* ---- the head node ---------------------------------------------------------------------- */

/* Connects to a TCP address. Returns 0 if a process listens there, else the error number of
 * connect(2); ETIMEDOUT if no answer came within CONNECT_S. */
static int try_head(const struct tdm__address *address)
{
    const struct timeval limit = {.tv_sec = CONNECT_S};
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = 0;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
        connect(fd, &address->socket.any, address->socket_bytes) != 0) {
        error = errno == EINPROGRESS || errno == EAGAIN ? ETIMEDOUT : errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return error;
}

/* Prints why the head node cannot be reached yet, and what the user can check. */
static void print_why_no_head(const char *head, int error, long wait_s)
{
    static const char refused[] = "the machine answers, but no process listens at this port: is "
                                  "the head node started, and is the port that of its --port?";
    static const char silent[] = "no answer: is the address that of the head node's machine, is "
                                 "the machine on, and does a firewall let the port through?";
    char text[128];

    (void)fprintf(stderr, "tandem: waiting for the head node at %s, up to %ld s: %s (%s)\n", head,
                  wait_s, strerror_r(error, text, sizeof(text)),
                  error == ECONNREFUSED ? refused : silent);
}

/* Waits until a process listens at the address of the head node, at most for the seconds of --wait,
 * because launch scripts start all nodes at once. Does nothing without --address. Fails only if the
 * address is wrong; the daemon reports a head node that is missing. */
static tdm_status wait_for_head(const struct tdm__parsed_arguments *args)
{
    const char *head = tdm__option_value(args, "--address");
    const char *wait = tdm__option_value(args, "--wait");
    long wait_s = wait == NULL ? HEAD_S : strtol(wait, NULL, 10);
    int64_t deadline_ms = tdm__deadline_after((wait_s > HEAD_S_MAX ? HEAD_S_MAX : wait_s) * 1000);
    struct tdm__address address;
    char text[TDM__ADDRESS_BYTES];
    int announced = 0; /* Error that was printed. */
    int error;

    if (head == NULL) {
        return TDM_OK;
    }
    (void)snprintf(text, sizeof(text), "tcp:%s", head);
    TDM_TRY(tdm__address_parse(text, &address));
    while ((error = try_head(&address)) != 0 && tdm__clock_ms() < deadline_ms) {
        if (error != announced) {
            print_why_no_head(head, error, wait_s);
        }
        announced = error;
        (void)poll(NULL, 0, HEAD_POLL_MS);
    }
    return TDM_OK;
}

/* ---- the daemon ------------------------------------------------------------------------- */

/* Kills a daemon that did not become ready, and everything below it. */
static void daemon_kill(struct tdm__daemon_process *process)
{
    struct pollfd ended = {.fd = process->supervisor.pidfd, .events = POLLIN};

    tdm__process_signal(&process->supervisor, SIGQUIT);
    if (poll(&ended, 1, END_MS) <= 0) {
        tdm__process_signal(&process->supervisor, SIGKILL);
        (void)poll(&ended, 1, END_MS);
    }
}

/* Prints what a daemon that did not become ready has written to its log. */
static void log_print(const char *directory)
{
    char path[PATH_MAX];
    char text[4096];

    (void)snprintf(path, sizeof(path), "%s/tandemd.log", directory);
    if (tdm__file_read_text(path, text, sizeof(text))) {
        (void)fputs(text, stderr);
    }
}

/* Starts the daemon with the command line `words` and waits until it is ready. */
static tdm_status daemon_start(struct daemon_words *words, const char *directory,
                               struct tdm__daemon_process *process)
{
    tdm_status status;
    int log = -1;

    TDM_TRY(log_open(directory, &log));
    status = tdm__daemon_process_start(words->words, log, process);
    (void)close(log);
    TDM_TRY(status);
    status = directory_write_supervisor(directory, process->supervisor.pid);
    if (status == TDM_OK) {
        status = tdm__daemon_process_wait_ready(process, READY_MS);
    }
    if (status != TDM_OK) {
        daemon_kill(process);
        log_print(directory);
        return tdm__fail(status, "starting a node failed: %s. The log is %s/tandemd.log",
                         tdm_error_detail(), directory);
    }
    return TDM_OK;
}

/* Prints where the node is, and how to add a node. */
static void print_node(const struct tdm__started_node *node, long long daemon_pid, bool has_redis)
{
    const char *named = getenv("TANDEM_TOKEN_FILE");
    char token[PATH_MAX + 8];

    if (named == NULL || named[0] == '\0' || realpath(named, token) == NULL) {
        (void)snprintf(token, sizeof(token), "%s/token", node->directory);
    }
    (void)printf("Node started: %s %s, daemon pid %lld, logs in %s\n\n",
                 node->is_head ? "head of the cluster at" : "member of the cluster at",
                 node->cluster_address, daemon_pid, node->directory);
    if (node->is_head && !has_redis) {
        (void)printf("To add a node, copy %s to it and run there\n"
                     "  TANDEM_TOKEN_FILE=%s tandem start --address=%s\n",
                     token, token, node->cluster_address);
    } else if (node->is_head) {
        (void)printf("To add a node, copy %s to it and run there\n"
                     "  TANDEM_TOKEN_FILE=%s tandem start --redis-file=FILE\n"
                     "where FILE contains the URL of the Redis server.\n",
                     token, token);
    }
    (void)printf("To see the cluster: tandem status\n"
                 "To end this node:   tandem stop\n");
    (void)fflush(stdout);
}

/* Prints what is at risk if sentinels name the master of Redis and no replica confirms changes. */
static void print_risk(const struct tdm__parsed_arguments *args)
{
    const char *url = tdm__option_value(args, "--redis");
    const char *path = tdm__option_value(args, "--redis-file");
    const char *replicas = tdm__option_value(args, "--redis-wait-replicas");
    const char *read_url = NULL; /* URL in the file. */
    const char *risk;

    if (path != NULL && cli_redis_url_read(path, &read_url)) {
        url = read_url;
    }
    if (url == NULL) {
        url = getenv("TANDEM_REDIS");
    }
    if (replicas == NULL) {
        replicas = getenv("TANDEM_REDIS_WAIT_REPLICAS");
    }
    risk =
        url == NULL
            ? NULL
            : cli_redis_url_risk(url, replicas == NULL ? 0 : (uint32_t)strtoul(replicas, NULL, 10));
    if (risk != NULL) {
        (void)fprintf(stderr, "tandem: warning: %s\n", risk);
    }
    free((char *)(uintptr_t)read_url);
}

/* Waits until the node has ended, for --block. SIGINT and SIGTERM end the node. Returns the exit
 * code. */
static int wait_for_end(struct tdm__daemon_process *process)
{
    struct pollfd events[2] = {{.fd = process->supervisor.pidfd, .events = POLLIN},
                               {.events = POLLIN}};
    struct signalfd_siginfo info;
    sigset_t watched;
    char text[64];
    int wait_status;

    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGINT);
    (void)sigaddset(&watched, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &watched, NULL);
    events[1].fd = signalfd(-1, &watched, SFD_CLOEXEC);
    if (events[1].fd < 0) {
        return tdm__command_failed(tdm__fail_errno(errno, "signalfd"));
    }
    while (!tdm__process_reap(&process->supervisor, &wait_status)) {
        if (poll(events, 2, -1) > 0 && (events[1].revents & POLLIN) != 0 &&
            read(events[1].fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
            tdm__process_signal(&process->supervisor, SIGTERM);
        }
    }
    (void)close(events[1].fd);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        return TDM__EXIT_SUCCESS;
    }
    return tdm__command_failed(tdm__fail(
        TDM_E_NODE_LOST, "running the node failed: its daemon ended: %s. See its tandemd.log",
        tdm__wait_status_text(wait_status, text, sizeof(text))));
}

/* Runs `tandem start` and returns the exit code. */
static int start_main(const struct tdm__parsed_arguments *args)
{
    struct daemon_words words = {.count = 0};
    struct tdm__daemon_process process;
    struct tdm__started_node node;
    char directory[TDM__ADDRESS_BYTES];
    const char *environment = getenv("TANDEM_REDIS");
    bool has_redis = tdm__option_value(args, "--redis") != NULL ||
                     tdm__option_value(args, "--redis-file") != NULL ||
                     (environment != NULL && environment[0] != '\0');
    tdm_status status = tdm__started_node_directory(directory, sizeof(directory));
    int code = check_options(args);

    if (code != TDM__EXIT_SUCCESS) {
        return code;
    }
    if (status == TDM_OK) {
        status = directory_prepare(directory); /* Refuses a second node of this user. */
    }
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    code = words_fill(args, directory, &words);
    if (code != TDM__EXIT_SUCCESS) {
        return code;
    }
    status = wait_for_head(args);
    if (status == TDM_OK) {
        status = daemon_start(&words, directory, &process);
    }
    if (status == TDM_OK) {
        status = tdm__started_node_find(&node);
    }
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    if (has_redis && tdm__option_value(args, "--address") == NULL) {
        print_risk(args);
    }
    print_node(&node, process.daemon_pid, has_redis);
    return tdm__option_value(args, "--block") == NULL ? TDM__EXIT_SUCCESS : wait_for_end(&process);
}

const struct tdm__command tdm__command_start = {
    .name = "start",
    .summary = "start a node in the background",
    .help = "usage: tandem start --head [options]\n"
            "       tandem start --address HOST:PORT [options]\n\n"
            "Starts the daemon of this machine and waits until it is ready. A user has at\n"
            "most one such node on a machine. `tandem stop` ends it.\n\n"
            "  --head             start a new cluster; the node keeps its records\n"
            "  --address HOST:PORT  join the cluster of the head node at this address;\n"
            "                     TANDEM_TOKEN_FILE names a copy of its token file\n"
            "  --port N           of the head node (6379)\n"
            "  --dashboard-host HOST  at which the head node accepts `tandem job`\n"
            "                     (127.0.0.1); whoever connects must have the token\n"
            "  --dashboard-port N  at this port (8265)\n"
            "  --node-ip-address IP  at which other nodes reach this one\n"
            "  --node-name NAME   of the node (the host's name)\n"
            "  --num-cpus N       that the node offers (all)\n"
            "  --num-gpus N       that it offers (all; virtual ones where there is none)\n"
            "  --resources JSON   that it offers too, such as '{\"disk\": 2}'\n"
            "  --memory N         bytes that actors may count on\n"
            "  --object-store-memory N  bytes of large values in memory\n"
            "  --labels A=B,...   of the node, for actors to choose it by\n"
            "  --ports A-B        processes of the node listen at these ports (any)\n"
            "  --advertise HOST   other nodes reach this one by that name or address, not by\n"
            "                     --node-ip-address, at which it listens\n"
            "  --tls auto|on|off  encrypt the connections with other machines; all TCP\n"
            "                     connections; none (auto)\n"
            "  --redis URL        keep the records in this Redis server instead (default:\n"
            "                     TANDEM_REDIS), by TLS if it begins with rediss://, or in the\n"
            "                     master that its sentinels name:\n"
            "                     redis+sentinel://HOST[:26379],HOST,.../MASTER\n"
            "  --redis-file FILE  a file with that URL, which may contain a password\n"
            "  --insecure-redis   that server may be on another machine without TLS\n"
            "  --redis-wait-replicas N  of Redis confirm each renewal, takeover and name (0)\n"
            "  --wait N           seconds until the head node listens (20)\n"
            "  --block            wait until the node ends; Ctrl-C ends it\n",
    .options = options,
    .run = start_main};
