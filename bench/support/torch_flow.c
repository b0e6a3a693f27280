/* torch_flow.c - the flow that everybody has: PyTorch, shared tensors, pickled handles, copy_. */
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

/* Debian's, which has Debian's PyTorch; another one in front of it on the path has not. */
static const char python[] = "/usr/bin/python3";

static char ask(const struct bench_torch_flow *stock, char word)
{
    bench_write(stock->fd, &word, 1);
    bench_read(stock->fd, &word, 1);
    return word;
}

static double time_of(const struct bench_torch_flow *stock, char word)
{
    double begun = bench_clock_seconds();

    (void)ask(stock, word);
    return bench_clock_seconds() - begun;
}

/* Both ways bring what the trainers have. */
static void warm(const struct bench_torch_flow *stock)
{
    static const char ways[] = {'t', 'b'};

    for (size_t i = 0; i < sizeof(ways); i++) {
        (void)ask(stock, 's');
        (void)ask(stock, ways[i]);
        if (ask(stock, 'c') != 'k') {
            errno = EILSEQ;
            bench_die("torch_flow.py: weights that are not there");
        }
    }
}

static void spawn(struct bench_torch_flow *stock, char *const argv[])
{
    posix_spawn_file_actions_t actions;
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        bench_die("socketpair");
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], BENCH_PEER_FD);
    errno = posix_spawn(&stock->pid, python, &actions, NULL, argv, environ);
    stock->is_there = errno == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    stock->fd = ends[0];
}

void bench_torch_flow_start(struct bench_torch_flow *stock, const char *directory, uint32_t layers,
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
    spawn(stock, argv);
    if (stock->is_there) {
        bench_read(stock->fd, &word, 1);
    }
    if (word == 'r') {
        warm(stock);
        return;
    }
    (void)fprintf(stderr, "bench: the stock flow is left out: PyTorch is not installed "
                          "(apt-get install python3-torch)\n");
    bench_torch_flow_stop(stock);
}

double bench_torch_flow_by_tensor(const struct bench_torch_flow *stock)
{
    return time_of(stock, 't');
}

double bench_torch_flow_by_bucket(const struct bench_torch_flow *stock)
{
    return time_of(stock, 'b');
}

void bench_torch_flow_stop(struct bench_torch_flow *stock)
{
    (void)close(stock->fd);
    while (stock->is_there && waitpid(stock->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    stock->is_there = false;
}
