/* cluster.c - starts two nodes on this machine: one Redis server, two daemons, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is in a new temporary directory. The processes are children of the benchmark: they
 * get SIGTERM when it dies and are waited for when it ends. A process counts as started when its
 * stdout has a certain text. Both daemons use the token file of the first node. One thread uses
 * a cluster; any failure ends the program. */
#include "cluster.h"

#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Sizes of buffers in bytes: token, output of a process, path, number as text. */
enum { TOKEN_BYTES = 32, OUTPUT_BYTES = 4096, PATH_BYTES = 128, NUMBER_BYTES = 24 };

/* Callback of nftw(): removes one file or directory. */
static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status;
    (void)kind;
    (void)place;
    return remove(path);
}

void bench_remove_tree(const char *directory)
{
    (void)nftw(directory, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Reads the output of a process until a whole line with the text has come. All lines so far are
 * in `output_text`. */
static void wait_for(int output, const char *text, char output_text[OUTPUT_BYTES])
{
    size_t used = 0;

    output_text[0] = '\0';
    while (strstr(output_text, text) == NULL || output_text[used - 1] != '\n') {
        ssize_t got = read(output, output_text + used, OUTPUT_BYTES - 1 - used);

        if (got <= 0) {
            errno = got == 0 ? ECHILD : errno;
            bench_die(text);
        }
        used += (size_t)got;
        output_text[used] = '\0';
    }
}

/* Starts a process and waits until its output has the text `until`. The process gets SIGTERM
 * when this one dies. */
static void start_process(struct bench_cluster *cluster, const char *const *argv, const char *until,
                          char output_text[OUTPUT_BYTES])
{
    int output[2];
    pid_t pid;

    if (pipe2(output, O_CLOEXEC) != 0) {
        bench_die("pipe2");
    }
    pid = fork();
    if (pid < 0) {
        bench_die("fork");
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
        (void)dup2(output[1], STDOUT_FILENO);
        (void)execvp(argv[0], (char *const *)argv);
        bench_die(argv[0]);
    }
    (void)close(output[1]);
    cluster->pids[cluster->count] = pid;
    cluster->outputs[cluster->count++] = output[0];
    wait_for(output[0], until, output_text);
}

/* Creates a file with a random token. */
static void create_token(const char *path)
{
    char token[TOKEN_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || getrandom(token, sizeof(token), 0) != sizeof(token) ||
        write(fd, token, sizeof(token)) != sizeof(token)) {
        bench_die(path);
    }
    (void)close(fd);
}

/* Starts redis-server on a Unix socket, without persistence. */
static void start_redis(struct bench_cluster *cluster)
{
    char socket[PATH_BYTES];
    const char *const argv[] = {"redis-server",     "--port", "0", "--unixsocket", socket, "--dir",
                                cluster->directory, "--save", "",  "--appendonly", "no",   NULL};
    char output_text[OUTPUT_BYTES];

    (void)snprintf(socket, sizeof(socket), "%s/redis.sock", cluster->directory);
    start_process(cluster, argv, "eady to accept", output_text);
}

/* Returns the path of the daemon: build/<preset>/bench/<this program> becomes
 * build/<preset>/tandemd. */
static void find_daemon(char program[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", program, PATH_MAX - 1);

    if (length < 0) {
        bench_die("/proc/self/exe");
    }
    program[length] = '\0';
    for (int i = 0; i < 2; i++) {
        *strrchr(program, '/') = '\0';
    }
    (void)strncat(program, "/tandemd", PATH_MAX - strlen(program) - 1);
}

/* Starts a daemon. The command env(1) sets its environment, because this process may have
 * threads and must not change its own. */
static void start_node(struct bench_cluster *cluster, const struct bench_node *node,
                       const char *name)
{
    char program[PATH_MAX];
    char token[PATH_BYTES];
    char url[PATH_BYTES];
    char directory[PATH_BYTES];
    char cpus[NUMBER_BYTES];
    char gpus[NUMBER_BYTES];
    char gpu_bytes[NUMBER_BYTES];
    char output_text[OUTPUT_BYTES];
    const char *const argv[] = {"env",         token,       program,  "--redis", url,
                                "--listen",    "127.0.0.1", "--name", name,      "--directory",
                                directory,     "--cpus",    cpus,     "--gpus",  gpus,
                                "--gpu-bytes", gpu_bytes,   NULL};

    find_daemon(program);
    (void)snprintf(token, sizeof(token), "TANDEM_TOKEN_FILE=%s/first/token", cluster->directory);
    (void)snprintf(url, sizeof(url), "unix://%s/redis.sock", cluster->directory);
    (void)snprintf(directory, sizeof(directory), "%s/%s", cluster->directory, name);
    (void)snprintf(cpus, sizeof(cpus), "%u", node->cpus);
    (void)snprintf(gpus, sizeof(gpus), "%u", node->gpus);
    (void)snprintf(gpu_bytes, sizeof(gpu_bytes), "%llu", node->gpu_bytes);
    start_process(cluster, argv, "ready ", output_text);
    if (cluster->address[0] == '\0' &&
        sscanf(output_text, "ready %*d %159s", cluster->address) != 1) {
        bench_die(output_text);
    }
}

void bench_cluster_start(struct bench_cluster *cluster, const struct bench_node *node)
{
    char path[PATH_BYTES];

    *cluster = (struct bench_cluster){.directory = "/tmp/tandem-bench-XXXXXX"};
    if (mkdtemp(cluster->directory) == NULL) {
        bench_die(cluster->directory);
    }
    (void)snprintf(path, sizeof(path), "%s/first", cluster->directory);
    if (mkdir(path, 0700) != 0) {
        bench_die(path);
    }
    (void)snprintf(path, sizeof(path), "%s/first/token", cluster->directory);
    create_token(path);
    start_redis(cluster);
    start_node(cluster, node, "first");
    start_node(cluster, node, "second");
}

void bench_cluster_stop(struct bench_cluster *cluster)
{
    while (cluster->count > 0) {
        uint32_t last = --cluster->count;

        (void)kill(cluster->pids[last], SIGTERM);
        (void)waitpid(cluster->pids[last], NULL, 0);
        (void)close(cluster->outputs[last]);
    }
    bench_remove_tree(cluster->directory);
}
