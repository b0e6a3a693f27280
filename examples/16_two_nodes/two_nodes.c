/* two_nodes.c - two daemons that share a Redis server, and actors that are placed on either. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tandem/tandem.h>
#include <unistd.h>

/* One daemon, which is a child process of this program. */
struct node {
    pid_t pid;
    char address[PATH_MAX]; /* Address that programs and daemons connect to. */
};

/* Folder of this program. */
static char directory[PATH_MAX];
/* Path of the library with class `place`. */
static char library[PATH_MAX + 32];

/* Replaces this process by a daemon. `token` is the assignment "TANDEM_TOKEN_FILE=PATH". The file
 * has 32 random bytes, by which the nodes and programs of one cluster recognise each other. Without
 * a path the daemon makes a token of its own. `store` is the URL of the Redis server; NULL: the
 * daemon starts one. */
_Noreturn static void become_daemon(const char *name, const char *label, const char *store,
                                    const char *token)
{
    char program[PATH_MAX + 32];

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)snprintf(program, sizeof(program), "%s/../tandemd", directory);
    (void)execlp("env", "env", token, access(program, X_OK) == 0 ? program : "tandemd", "--listen",
                 "127.0.0.1", "--name", name, "--labels", label, "--cpus", "4",
                 store == NULL ? NULL : "--redis", store, NULL);
    _exit(127);
}

/* Waits for the line "ready PID ADDRESS", which a daemon prints once programs can connect. */
static tdm_status read_address(struct node *node, int fd)
{
    FILE *said = fdopen(fd, "r");
    int count = said == NULL ? 0 : fscanf(said, "ready %*d %4095s", node->address);

    if (said != NULL) {
        (void)fclose(said);
    }
    return count == 1 ? TDM_OK
                      : tdm_fail(TDM_E_IO, "a daemon ended while starting; its message is above");
}

static void start_node(struct node *node, const char *name, const char *store, const char *token)
{
    const char *label = store == NULL ? "gpu=h100" : "gpu=none";
    int ends[2];

    TDM_CHECK(pipe(ends) == 0 ? TDM_OK : tdm_fail(TDM_E_IO, "pipe"));
    node->pid = fork();
    TDM_CHECK(node->pid >= 0 ? TDM_OK : tdm_fail(TDM_E_IO, "fork"));
    if (node->pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        become_daemon(name, label, store, token);
    }
    (void)close(ends[1]);
    TDM_CHECK(read_address(node, ends[0]));
}

/* Starts both daemons. The first one starts a Redis server and creates the cluster's token. Both
 * are in its directory, together with its socket. */
static void start_cluster(struct node *first, struct node *second)
{
    char store[PATH_MAX + 32];
    char token[PATH_MAX + 32];
    const char *path = first->address + strlen("unix:");
    int length;

    start_node(first, "first", NULL, "TANDEM_TOKEN_FILE=");
    length = (int)(strrchr(path, '/') - path);
    (void)snprintf(store, sizeof(store), "unix://%.*s/redis/socket", length, path);
    (void)snprintf(token, sizeof(token), "TANDEM_TOKEN_FILE=%.*s/token", length, path);
    start_node(second, "second", store, token);
}

/* Creates an actor with these options and prints the node it runs on. */
static void show_place(tdm_runtime *runtime, const char *what, struct tdm_actor_options options)
{
    tdm_actor *place;
    const char *name;
    tdm_ref *ref;

    options.library = library;
    TDM_CHECK(tdm_actor_create(runtime, "place", &options, &place, ""));
    TDM_CHECK(tdm_actor_call(place, "name", &ref, ""));
    TDM_CHECK(tdm_get(ref, 20000, "s", &name));
    (void)printf("%s: %s\n", what, name);
    tdm_ref_release(ref);
    tdm_actor_destroy(place);
}

/* Returns the ID of the node with that name. */
static const char *node_named(const struct tdm_node_state *nodes, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(nodes[i].name, name) == 0) {
            return nodes[i].id;
        }
    }
    return NULL;
}

int main(void)
{
    const struct tdm_bundle bundles[] = {{.num_cpus = 1}, {.num_cpus = 1}};
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_bundle_placement places[2];
    const struct tdm_node_state *nodes;
    tdm_placement_group *group;
    struct node first;
    struct node second;
    tdm_runtime *runtime;
    uint32_t count;

    directory[readlink("/proc/self/exe", directory, sizeof(directory) - 1)] = '\0';
    *strrchr(directory, '/') = '\0';
    (void)snprintf(library, sizeof(library), "%s/place_library.so", directory);
    start_cluster(&first, &second);

    options.address = first.address;
    TDM_CHECK(tdm_runtime_start(&options, &runtime));
    TDM_CHECK(tdm_list_nodes(runtime, 10000, &nodes, &count));
    (void)printf("%u nodes\n", count);

    show_place(runtime, "with an h100", (struct tdm_actor_options){.labels = {"gpu=h100"}});
    show_place(runtime, "without one", (struct tdm_actor_options){.labels = {"gpu!=h100"}});
    show_place(runtime, "with one of two kinds",
               (struct tdm_actor_options){.labels = {"gpu=in(b200,h100)"}});
    show_place(runtime, "on the first node",
               (struct tdm_actor_options){.scheduling = TDM_SCHEDULE_NODE,
                                          .node_id = node_named(nodes, count, "first")});
    tdm_list_free(nodes);

    /* Each bundle of a strict-spread group is on a node of its own, or the group is not created. */
    TDM_CHECK(tdm_placement_group_create(runtime, bundles, 2, TDM_STRICT_SPREAD, 10000, &group));
    TDM_CHECK(tdm_placement_group_locate_bundle(group, 0, &places[0]));
    TDM_CHECK(tdm_placement_group_locate_bundle(group, 1, &places[1]));
    (void)printf("two bundles: %s\n", strcmp(places[0].node_id, places[1].node_id) == 0
                                          ? "on one node"
                                          : "on two nodes");
    TDM_CHECK(tdm_placement_group_remove(group, 10000));

    tdm_runtime_stop(runtime);
    (void)kill(second.pid, SIGTERM);
    (void)waitpid(second.pid, NULL, 0);
    (void)kill(first.pid, SIGTERM);
    (void)waitpid(first.pid, NULL, 0);
    return 0;
}
