/* cluster.c - two nodes on this machine: one Redis, two daemons, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
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

enum { TOKEN_BYTES = 32, SAID_BYTES = 4096, PATH_BYTES = 128, NUMBER_BYTES = 24 };

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

/* Reads until the text has come; the lines so far are in `said`. */
static void wait_for(int output, const char *text, char said[SAID_BYTES])
{
    size_t used = 0;

    said[0] = '\0';
    while (strstr(said, text) == NULL || said[used - 1] != '\n') {
        ssize_t got = read(output, said + used, SAID_BYTES - 1 - used);

        if (got <= 0) {
            errno = got == 0 ? ECHILD : errno;
            bench_die(text);
        }
        used += (size_t)got;
        said[used] = '\0';
    }
}

/* It dies with this process. */
static void start(struct bench_cluster *cluster, const char *const *argv, const char *until,
                  char said[SAID_BYTES])
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
    wait_for(output[0], until, said);
}

static void make_token(const char *path)
{
    char token[TOKEN_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    if (fd < 0 || getrandom(token, sizeof(token), 0) != sizeof(token) ||
        write(fd, token, sizeof(token)) != sizeof(token)) {
        bench_die(path);
    }
    (void)close(fd);
}

static void start_redis(struct bench_cluster *cluster)
{
    char socket[PATH_BYTES];
    const char *const argv[] = {"redis-server",     "--port", "0", "--unixsocket", socket, "--dir",
                                cluster->directory, "--save", "",  "--appendonly", "no",   NULL};
    char said[SAID_BYTES];

    (void)snprintf(socket, sizeof(socket), "%s/redis.sock", cluster->directory);
    start(cluster, argv, "eady to accept", said);
}

/* build/<preset>/bench/<this program> → build/<preset>/tandemd */
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

/* env(1) sets what this process, which has threads at times, should not. */
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
    char said[SAID_BYTES];
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
    start(cluster, argv, "ready ", said);
    if (cluster->address[0] == '\0' && sscanf(said, "ready %*d %159s", cluster->address) != 1) {
        bench_die(said);
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
    make_token(path);
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
