/* two_nodes.c - two daemons on one machine, one Redis, TCP between them. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/two_nodes.h"

#include "runtime/redis/embedded.h"
#include "runtime/token.h"
#include "tests/support/actor_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAID_BYTES = 1024 };

_Noreturn static void become_daemon(const struct two_nodes *nodes, const char *name, int output)
{
    static const char *const program = TDM_TEST_BUILD_DIR "/tandemd";
    char label[80];

    (void)snprintf(label, sizeof(label), "side=%s", name);
    (void)dup2(output, STDOUT_FILENO);
    (void)setenv("TANDEM_TOKEN_FILE", nodes->token_path, 1);
    (void)execl(program, program, "--redis",
                nodes->redis_url != NULL ? nodes->redis_url
                                         : tdm__redis_embedded_url(nodes->redis.server),
                "--listen", "127.0.0.1", "--name", name, "--gpus", "2", "--cpus", "4", "--labels",
                label, "--memory-bytes", "1000000000", "--resource", "disk=2", (char *)NULL);
    _exit(127);
}

int test_node_start(const struct two_nodes *nodes, const char *name, struct test_node *node,
                    char *said)
{
    int output[2];
    size_t used = 0;
    ssize_t got;
    int daemon = 0;

    if (pipe2(output, O_CLOEXEC) < 0) {
        return 1;
    }
    node->supervisor = fork();
    if (node->supervisor == 0) {
        become_daemon(nodes, name, output[1]);
    }
    (void)close(output[1]);
    while (used < SAID_BYTES - 1 &&
           (got = read(output[0], said + used, SAID_BYTES - 1 - used)) > 0) {
        used += (size_t)got;
        if (memchr(said, '\n', used) != NULL) {
            break;
        }
    }
    said[used] = '\0';
    (void)close(output[0]);
    if (sscanf(said, "ready %d %159s", &daemon, node->address) != 2) {
        return 1;
    }
    node->daemon = daemon;
    return 0;
}

void test_node_stop(struct test_node *node)
{
    if (node->supervisor != 0) {
        (void)kill(node->supervisor, SIGTERM);
        (void)waitpid(node->supervisor, NULL, 0);
        node->supervisor = 0;
    }
}

int two_nodes_open(struct two_nodes *nodes)
{
    uint8_t token[TDM__TOKEN_BYTES];
    char said[SAID_BYTES];

    if (redis_fixture_open(&nodes->redis) != 0) {
        return 1;
    }
    (void)snprintf(nodes->token_path, sizeof(nodes->token_path), "%s/cluster-token",
                   nodes->redis.directory);
    if (tdm__token_create(nodes->token_path, token) != TDM_OK ||
        test_node_start(nodes, "first", &nodes->first, said) != 0 ||
        test_node_start(nodes, "second", &nodes->second, said) != 0) {
        return 1;
    }
    return setenv("TANDEM_TOKEN_FILE", nodes->token_path, 1);
}

void two_nodes_close(struct two_nodes *nodes)
{
    test_node_stop(&nodes->first);
    test_node_stop(&nodes->second);
    redis_fixture_close(&nodes->redis);
}

tdm_runtime *two_nodes_join(struct two_nodes *nodes)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    tdm_runtime *runtime = NULL;

    if (getenv("TANDEM_WORKER") != NULL) {
        (void)tdm_runtime_start(NULL, &runtime); /* The call never returns. */
        _exit(1);
    }
    actor_fixture_prepare();
    if (two_nodes_open(nodes) == 0) {
        options.address = nodes->first.address;
        (void)tdm_runtime_start(&options, &runtime);
    }
    if (runtime == NULL) {
        (void)fprintf(stderr, "no cluster: %s\n", tdm_error_detail());
    }
    return runtime;
}

int two_nodes_leave(struct two_nodes *nodes, tdm_runtime *runtime)
{
    tdm_runtime_stop(runtime);
    two_nodes_close(nodes);
    return actor_fixture_clean_up();
}
