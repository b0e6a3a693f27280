/* launch.c - `tandem launch`: starts the nodes of a cluster for one command, and ends them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher such as srun starts this command once on each machine. Process 0 starts the head node,
 * waits until all nodes have joined, runs the user's command, and ends its node when the command
 * has ended. The other processes start a node that joins, and end it as soon as no process listens
 * at the head node's port any more: that is how they learn of the end. Each process keeps its node
 * in a temporary directory of its own and removes it, so that nothing is left on the machine.
 *
 * The nodes are started and ended by `tandem start` and `tandem stop`, run as child processes. The
 * user's command gets TANDEM_ADDRESS, and TMPDIR with the temporary directory. SIGINT and SIGTERM
 * end the command first and then the node. The environment is set while there is one thread. */
#include "actors/process/started_node.h"
#include "cli/command.h"
#include "cli/rendezvous.h"
#include "runtime/clock.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/process/spawn.h"
#include "runtime/rpc/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <tandem/runtime.h>
#include <tandem/state.h>
#include <unistd.h>

enum {
    JOIN_S = 60,            /* Longest wait until all nodes have joined, in seconds. */
    JOIN_POLL_MS = 200,     /* Time between two looks at the list of nodes or at a host name. */
    LIST_MS = 5000,         /* Longest wait for a list of nodes. */
    WATCH_MS = 1000,        /* Time between two looks at the head node or at the own node. */
    HEAD_CONNECT_S = 2,     /* Longest attempt to reach the head node, in seconds. */
    HEAD_SILENT_MS = 60000, /* Time without an answer after which the head node is lost. */
    COMMAND_END_MS = 10000, /* Time that a command gets to end after SIGTERM. */
    WORDS_MAX = 128,        /* Room for the words of `tandem start` and the NULL at the end. */
    WORDS_ADDED_MAX = 16    /* Most words that this program adds to those of the user. */
};

_Static_assert(WORDS_MAX - WORDS_ADDED_MAX == 112, "launch_main() names this limit");

/* What `tandem launch` has started on this machine. */
struct launch {
    struct cli_rendezvous rendezvous; /* Place of this node in the cluster. */
    char program[PATH_MAX];           /* Path of the program tandem. */
    char directory[PATH_MAX];         /* Temporary directory with everything of the node. */
    char head[CLI_HOST_BYTES + 8];    /* Address of the head node, "host:port". */
    struct tdm__started_node node;    /* The node of this machine. */
    int signals;                      /* Descriptor that receives SIGINT and SIGTERM. */
};

/* ---- commands of tandem ------------------------------------------------------------------ */

/* Runs this program with other words and waits for its end. What it prints on stdout is dropped.
 * Returns whether it has succeeded. */
static bool run_tandem(const struct launch *launch, char *const *words)
{
    struct tdm__spawn_options options = {
        .program = launch->program, .argv = words, .error_fd = STDERR_FILENO};
    struct tdm__process process;
    tdm_status status;
    int wait_status = -1;

    options.output_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    status = tdm__spawn(&options, &process);
    (void)close(options.output_fd);
    if (status != TDM_OK) {
        (void)tdm__command_failed(status);
        return false;
    }
    while (waitpid(process.pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    tdm__process_forget(&process);
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

/* Returns a text as a word of a command line, which is not changed. */
static char *word(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* ---- the own address --------------------------------------------------------------------- */

/* Waits until the host name of the head node is known, at most until the deadline: name servers
 * learn of new machines late. */
static tdm_status resolve_head(const struct launch *launch, int64_t deadline_ms,
                               struct tdm__address *address_out)
{
    char text[sizeof(launch->head) + 8];
    tdm_status status;

    (void)snprintf(text, sizeof(text), "tcp:%s", launch->head);
    while ((status = tdm__address_parse(text, address_out)) != TDM_OK &&
           tdm__clock_ms() < deadline_ms) {
        (void)poll(NULL, 0, JOIN_POLL_MS);
    }
    return status;
}

/* Writes the address at which this node shall listen: for the head node the one at which the others
 * look for it, for others the one of the route to the head node. Returns false if `tandem start`
 * shall choose. Connecting a datagram socket sends nothing. */
static bool find_own_address(const struct launch *launch, const struct tdm__address *head,
                             char host[INET_ADDRSTRLEN])
{
    struct tdm__address own = *head;
    struct sockaddr_in four;
    socklen_t four_bytes = sizeof(four);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool is_found;

    tdm__address_set_port(&own, 0);
    is_found =
        fd >= 0 && head->socket.any.sa_family == AF_INET &&
        (launch->rendezvous.rank == 0 ? bind(fd, &own.socket.any, own.socket_bytes) == 0
                                      : connect(fd, &head->socket.any, head->socket_bytes) == 0) &&
        getsockname(fd, (struct sockaddr *)&four, &four_bytes) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    (void)snprintf(host, INET_ADDRSTRLEN, "127.0.0.1");
    /* Debian gives a machine's own name the address 127.0.1.1, which others cannot reach. */
    return is_found && inet_ntop(AF_INET, &four.sin_addr, host, INET_ADDRSTRLEN) != NULL &&
           strcmp(host, "127.0.1.1") != 0;
}

/* ---- the node ---------------------------------------------------------------------------- */

/* Words of `tandem start` and the memory of the words that are not the user's. */
struct start_words {
    char *words[WORDS_MAX];     /* The words; borrowed. */
    uint32_t count;             /* Number of entries in `words`, without the NULL at the end. */
    char port[8];               /* Value of --port. */
    char wait[16];              /* Value of --wait. */
    char cpus[16];              /* Value of --num-cpus. */
    char host[INET_ADDRSTRLEN]; /* Value of --node-ip-address. */
};

/* Appends an option with its value, unless the user has given the option. */
static void start_words_add(struct start_words *start, const char *name, const char *value)
{
    for (uint32_t i = 0; i < start->count; i++) {
        size_t bytes = strlen(name);

        if (strncmp(start->words[i], name, bytes) == 0 &&
            (start->words[i][bytes] == '\0' || start->words[i][bytes] == '=')) {
            return;
        }
    }
    start->words[start->count++] = word(name);
    start->words[start->count++] = word(value);
}

/* Makes the words of `tandem start` for this node from at most WORDS_MAX - WORDS_ADDED_MAX of the
 * user. */
static void start_words_fill(struct start_words *start, const struct launch *launch,
                             const struct tdm__address *head, int words_count, char **words)
{
    const struct cli_rendezvous *rendezvous = &launch->rendezvous;

    start->words[start->count++] = word("tandem");
    start->words[start->count++] = word("start");
    for (int i = 0; i < words_count; i++) {
        start->words[start->count++] = words[i];
    }
    (void)snprintf(start->port, sizeof(start->port), "%u", rendezvous->head_port);
    (void)snprintf(start->wait, sizeof(start->wait), "%d", (int)JOIN_S);
    (void)snprintf(start->cpus, sizeof(start->cpus), "%u", rendezvous->cpus_count);
    if (rendezvous->rank == 0) {
        start->words[start->count++] = word("--head");
        start_words_add(start, "--port", start->port);
    } else {
        start_words_add(start, "--address", launch->head);
        start_words_add(start, "--wait", start->wait);
    }
    if (find_own_address(launch, head, start->host)) {
        start_words_add(start, "--node-ip-address", start->host);
    }
    if (rendezvous->cpus_count > 0) {
        start_words_add(start, "--num-cpus", start->cpus);
    }
    if (rendezvous->name[0] != '\0') {
        start_words_add(start, "--node-name", rendezvous->name);
    }
}

/* Starts the node of this machine with the user's words for `tandem start`. */
static tdm_status node_start(struct launch *launch, int words_count, char **words)
{
    struct start_words start = {.count = 0};
    struct tdm__address head;

    TDM_TRY(resolve_head(launch, tdm__deadline_after((int64_t)JOIN_S * 1000), &head));
    start_words_fill(&start, launch, &head, words_count, words);
    if (!run_tandem(launch, start.words)) {
        return tdm__fail(TDM_E_NODE_LOST, "launching node %u of %u failed: `tandem start` failed",
                         launch->rendezvous.rank, launch->rendezvous.nodes_count);
    }
    return tdm__started_node_find(&launch->node);
}

/* Ends the node of this machine and removes everything of it. */
static void node_end(const struct launch *launch)
{
    char *const words[] = {word("tandem"), word("stop"), NULL};

    (void)run_tandem(launch, words);
    tdm__directory_remove(launch->directory);
}

/* ---- the head node ----------------------------------------------------------------------- */

/* Waits until all nodes have joined, or a signal arrives. */
static tdm_status wait_for_nodes(const struct launch *launch)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct pollfd signals = {.fd = launch->signals, .events = POLLIN};
    int64_t deadline_ms = tdm__deadline_after((int64_t)JOIN_S * 1000);
    const struct tdm_node_state *nodes = NULL;
    uint32_t count = 0;
    tdm_runtime *runtime;
    tdm_status status;

    options.address = launch->node.address;
    TDM_TRY(tdm_runtime_start(&options, &runtime));
    do {
        tdm_list_free(nodes);
        nodes = NULL;
        status = tdm_list_nodes(runtime, LIST_MS, &nodes, &count);
    } while (status == TDM_OK && count < launch->rendezvous.nodes_count &&
             tdm__clock_ms() < deadline_ms && poll(&signals, 1, JOIN_POLL_MS) <= 0);
    tdm_list_free(nodes);
    if (status == TDM_OK && count < launch->rendezvous.nodes_count) {
        status = tdm__fail(TDM_E_TIMEOUT,
                           "launching the command failed: %u of %u nodes have joined within %d s. "
                           "The output of the other nodes says why",
                           count, launch->rendezvous.nodes_count, (int)JOIN_S);
    }
    /* The error's text must survive the end of the runtime. */
    if (status != TDM_OK) {
        (void)tdm__command_failed(status);
    }
    tdm_runtime_stop(runtime);
    return status;
}

/* Ends the command: SIGTERM to its session's group, and SIGKILL after COMMAND_END_MS. Returns its
 * wait status. */
static int command_end(struct tdm__process *command)
{
    struct pollfd ended = {.fd = command->pidfd, .events = POLLIN};
    int wait_status = 0;

    (void)kill(-command->pid, SIGTERM);
    (void)poll(&ended, 1, COMMAND_END_MS);
    (void)kill(-command->pid, SIGKILL);
    (void)poll(&ended, 1, COMMAND_END_MS);
    (void)tdm__process_reap(command, &wait_status);
    return wait_status;
}

/* Waits until the command has ended and returns its wait status. Ends it on a signal, and when the
 * node has ended. */
static int command_wait(const struct launch *launch, struct tdm__process *command)
{
    struct pollfd events[2] = {{.fd = command->pidfd, .events = POLLIN},
                               {.fd = launch->signals, .events = POLLIN}};
    int wait_status;

    while (!tdm__process_reap(command, &wait_status)) {
        (void)poll(events, 2, WATCH_MS);
        if ((events[1].revents & POLLIN) != 0) {
            return command_end(command);
        }
        if (!tdm__directory_is_locked(launch->node.directory)) {
            (void)fprintf(
                stderr,
                "tandem: running the command failed: the head node ended before the command\n");
            (void)command_end(command);
            return 1 << 8; /* Exit code 1. */
        }
    }
    return wait_status;
}

/* Runs the user's command on the head node. Returns the exit code: that of the command, or 128 plus
 * the number of the signal that ended it. */
static int command_run(const struct launch *launch, int words_count, char **words)
{
    char **argv = calloc((size_t)words_count + 5, sizeof(*argv));
    struct tdm__spawn_options options = {.program = "/bin/sh",
                                         .argv = argv,
                                         .output_fd = -1,
                                         .dies_with_parent = true,
                                         .new_session = true};
    struct tdm__process command;
    tdm_status status;
    int wait_status;

    if (argv == NULL) {
        return tdm__command_failed(
            tdm__fail(TDM_E_NOMEM, "starting the command failed: out of memory"));
    }
    argv[0] = word("sh");
    argv[1] = word("-c");
    argv[2] = word("exec \"$@\""); /* The shell searches PATH. */
    argv[3] = word("sh");
    memcpy(argv + 4, words, (size_t)words_count * sizeof(*argv));
    status = tdm__spawn(&options, &command);
    free(argv);
    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    wait_status = command_wait(launch, &command);
    tdm__process_forget(&command);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/* ---- the other nodes --------------------------------------------------------------------- */

/* Connects to the head node's port. Returns 0 if a process listens there, else the error number. */
static int try_head(const struct tdm__address *address)
{
    const struct timeval limit = {.tv_sec = HEAD_CONNECT_S};
    int fd = socket(address->socket.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = 0;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0 ||
        connect(fd, &address->socket.any, address->socket_bytes) != 0) {
        error = errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return error;
}

/* Waits until the head node has ended, or a signal arrives. Returns the exit code: failure if the
 * own node has ended first, or if the head node's machine does not answer. */
static int wait_for_end_of_head(const struct launch *launch)
{
    struct pollfd signals = {.fd = launch->signals, .events = POLLIN};
    int64_t answered_ms = tdm__clock_ms();
    struct tdm__address head;
    int error;

    if (resolve_head(launch, 0, &head) != TDM_OK) {
        return tdm__command_failed(tdm__wrap(TDM_E_NODE_LOST, "watching the head node failed"));
    }
    while (poll(&signals, 1, WATCH_MS) <= 0) {
        error = try_head(&head);
        if (error == ECONNREFUSED) {
            return TDM__EXIT_SUCCESS;
        }
        if (error == 0) {
            answered_ms = tdm__clock_ms();
        } else if (tdm__clock_ms() - answered_ms > HEAD_SILENT_MS) {
            return tdm__command_failed(
                tdm__fail(TDM_E_NODE_LOST,
                          "watching the head node failed: the node at %s has not replied for %d s",
                          launch->head, HEAD_SILENT_MS / 1000));
        }
        if (!tdm__directory_is_locked(launch->node.directory)) {
            return tdm__command_failed(tdm__fail(
                TDM_E_NODE_LOST, "running the node failed: node %u ended before the head node",
                launch->rendezvous.rank));
        }
    }
    return TDM__EXIT_FAILED;
}

/* ---- the command ------------------------------------------------------------------------- */

/* Receives SIGINT and SIGTERM by a descriptor from now on. */
static tdm_status signals_open(struct launch *launch)
{
    sigset_t watched;

    (void)sigemptyset(&watched);
    (void)sigaddset(&watched, SIGINT);
    (void)sigaddset(&watched, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &watched, NULL);
    launch->signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
    return launch->signals < 0 ? tdm__fail_errno(errno, "signalfd") : TDM_OK;
}

/* Checks that all nodes can have the same token. */
static tdm_status check_token(const struct launch *launch)
{
    const char *named = getenv("TANDEM_TOKEN_FILE");

    if (launch->rendezvous.nodes_count > 1 && (named == NULL || access(named, R_OK) != 0)) {
        return tdm__fail(
            TDM_E_AUTH,
            "launching a node failed: TANDEM_TOKEN_FILE %s%s. All nodes need the same "
            "token, for example in a file of a shared folder: (umask 077; head -c 32 "
            "/dev/urandom > ~/token); export TANDEM_TOKEN_FILE=~/token",
            named == NULL ? "is not set" : "cannot be read: ", named == NULL ? "" : named);
    }
    return TDM_OK;
}

/* Sets an environment variable, which the node and the command inherit. */
static void set_variable(const char *name, const char *text)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe) no other thread runs when it is called */
    (void)setenv(name, text, 1);
}

/* Reads the rendezvous and creates the temporary directory, which becomes TMPDIR. */
static tdm_status launch_prepare(struct launch *launch)
{
    ssize_t length = readlink("/proc/self/exe", launch->program, sizeof(launch->program) - 1);

    TDM_TRY(cli_rendezvous_read(&launch->rendezvous));
    TDM_TRY(check_token(launch));
    if (length < 0) {
        return tdm__fail_errno(errno, "readlink /proc/self/exe");
    }
    launch->program[length] = '\0';
    (void)snprintf(launch->head, sizeof(launch->head), "%s:%u", launch->rendezvous.head_host,
                   launch->rendezvous.head_port);
    (void)snprintf(launch->directory, sizeof(launch->directory), "%s/tandem-launch-XXXXXX",
                   tdm__directory_parent_path());
    if (mkdtemp(launch->directory) == NULL) {
        return tdm__fail_errno(errno, "launching a node failed: mkdtemp %s", launch->directory);
    }
    set_variable("TMPDIR", launch->directory);
    return signals_open(launch);
}

/* Starts the node, runs the command or waits for its end elsewhere, and returns the exit code. */
static int launch_run(struct launch *launch, int start_count, int words_count, char **words)
{
    tdm_status status = node_start(launch, start_count, words);
    int first = start_count + 1;

    if (status != TDM_OK) {
        return tdm__command_failed(status);
    }
    if (launch->rendezvous.rank > 0) {
        return wait_for_end_of_head(launch);
    }
    if (wait_for_nodes(launch) != TDM_OK) {
        return TDM__EXIT_FAILED;
    }
    set_variable("TANDEM_ADDRESS", launch->node.address);
    return command_run(launch, words_count - first, words + first);
}

/* Runs `tandem launch`. */
static int launch_main(int words_count, char **words)
{
    struct launch *launch = calloc(1, sizeof(*launch));
    int start_count = 0;
    tdm_status status;
    int code;

    while (start_count < words_count && strcmp(words[start_count], "--") != 0) {
        start_count++;
    }
    if (launch == NULL || start_count + 1 >= words_count) {
        free(launch);
        return tdm__refuse_arguments("launch", "a command must follow \"--\"");
    }
    if (start_count > WORDS_MAX - WORDS_ADDED_MAX) {
        free(launch);
        return tdm__refuse_arguments("launch", "at most 112 words may precede \"--\"");
    }
    status = launch_prepare(launch);
    code = status != TDM_OK ? tdm__command_failed(status)
                            : launch_run(launch, start_count, words_count, words);
    if (launch->directory[0] != '\0' && status == TDM_OK) {
        node_end(launch);
    }
    free(launch);
    return code;
}

static struct tdm__option options[] = {{NULL, false, NULL}};

const struct tdm__command tdm__command_launch = {
    .name = "launch",
    .summary = "start a cluster for one command, as srun or another launcher asks",
    .help = "usage: srun --ntasks-per-node=1 tandem launch [options of start] -- COMMAND ...\n\n"
            "Run once on each machine by a launcher. Process 0 starts a head node, waits\n"
            "until all nodes have joined, and runs COMMAND. The others start a node that\n"
            "joins. When COMMAND has ended, all nodes end, and nothing of them is left.\n\n"
            "TANDEM_TOKEN_FILE names a file with the same token on all machines. COMMAND\n"
            "gets TANDEM_ADDRESS, and a TMPDIR that is removed. Its exit code is that of\n"
            "process 0.\n\n"
            "The place of a process is read from SLURM_*, or from\n"
            "  TANDEM_LAUNCH_HEAD=HOST[:PORT]  where the head node listens (6379)\n"
            "  TANDEM_LAUNCH_RANK=N            number of this node; 0 is the head node\n"
            "  TANDEM_LAUNCH_NODES=N           number of nodes\n",
    .options = options,
    .run_words = launch_main};
