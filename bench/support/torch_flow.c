/* torch_flow.c - runs bench/torch_flow.py, the usual weight update with PyTorch. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "torch_flow.h"

#include "measure.h"
#include "peer.h"

#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Debian's Python, which has Debian's PyTorch. Another python3 on the PATH may not have it. */
static const char python[] = "/usr/bin/python3";

/* Sends a command of one character to the script and returns its reply. */
static char send_command(const struct bench_torch_flow *flow, char word)
{
    bench_write(flow->fd, &word, 1);
    bench_read(flow->fd, &word, 1);
    return word;
}

/* Returns the seconds that a command takes. */
static double time_of(const struct bench_torch_flow *flow, char word)
{
    double begun = bench_clock_seconds();

    (void)send_command(flow, word);
    return bench_clock_seconds() - begun;
}

/* Runs both kinds of update once and checks that the engine gets the trainers' weights. */
static void warm_up(const struct bench_torch_flow *flow)
{
    static const char ways[] = {'t', 'b'};

    for (size_t i = 0; i < sizeof(ways); i++) {
        (void)send_command(flow, 's');
        (void)send_command(flow, ways[i]);
        if (send_command(flow, 'c') != 'k') {
            errno = EILSEQ;
            bench_die("torch_flow.py: weights that are not there");
        }
    }
}

/* Starts the script with a socket as its BENCH_PEER_FD. */
static void spawn_script(struct bench_torch_flow *flow, char *const argv[])
{
    posix_spawn_file_actions_t actions;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        bench_die("socketpair");
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], BENCH_PEER_FD);
    errno = posix_spawn(&flow->pid, python, &actions, NULL, argv, environ);
    flow->is_there = errno == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    flow->fd = ends[0];
}

void bench_torch_flow_start(struct bench_torch_flow *flow, const char *directory, uint32_t layers,
                            uint32_t vocabulary)
{
    char script[512];
    char config[512];
    char layers_text[16];
    char vocabulary_text[16];
    char *const argv[] = {(char *)python, script, config, layers_text, vocabulary_text, NULL};
    char word = 'n';

    (void)snprintf(script, sizeof(script), "%s/torch_flow.py", directory);
    (void)snprintf(config, sizeof(config), "%s/models/qwen3-0.6b.json", directory);
    (void)snprintf(layers_text, sizeof(layers_text), "%u", layers);
    (void)snprintf(vocabulary_text, sizeof(vocabulary_text), "%u", vocabulary);
    spawn_script(flow, argv);
    if (flow->is_there) {
        bench_read(flow->fd, &word, 1);
    }
    if (word == 'r') {
        warm_up(flow);
        return;
    }
    (void)fprintf(stderr, "bench: the PyTorch flow is left out: PyTorch is not installed "
                          "(apt-get install python3-torch)\n");
    bench_torch_flow_stop(flow);
}

double bench_torch_flow_by_tensor(const struct bench_torch_flow *flow)
{
    return time_of(flow, 't');
}

double bench_torch_flow_by_bucket(const struct bench_torch_flow *flow)
{
    return time_of(flow, 'b');
}

void bench_torch_flow_stop(struct bench_torch_flow *flow)
{
    (void)close(flow->fd);
    while (flow->is_there && waitpid(flow->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    flow->is_there = false;
}
