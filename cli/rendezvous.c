/* rendezvous.c - which node of a cluster this process shall start, from the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
/* A launcher such as Slurm starts one process on each machine and tells each its number. The
 * machine of number 0 becomes the head node. Variables TANDEM_LAUNCH_* of the user's own come
 * first, so that any launcher can be used; without them, those of a Slurm step count.
 *
 * All processes compute the port of the head node from the numbers of the job and the step, so that
 * two jobs that share a machine rarely meet. The functions have no state and read the environment
 * only. */
#include "cli/rendezvous.h"

#include "runtime/error.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NODES_MAX = 100000,       /* Most nodes of a cluster. */
    DEFAULT_PORT = 6379,      /* Port of the head node in TANDEM_LAUNCH_HEAD without a port. */
    FIRST_STEP_PORT = 20000,  /* First port of head nodes of Slurm steps. */
    STEP_PORTS_COUNT = 10000, /* Number of these ports, below those that the kernel chooses. */
    PORTS_OF_A_JOB = 7        /* Distance between the ports of two jobs. */
};

/* Returns the value of a variable; NULL if it is unset or empty. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Reads a number from `min` to `max` from a variable. */
static tdm_status read_number(const char *name, uint32_t min, uint32_t max, uint32_t *number_out)
{
    const char *text = variable(name);
    char *end = NULL;
    unsigned long number;

    if (text == NULL) {
        return tdm__fail(TDM_E_INVAL, "launching a node failed: %s is not set", name);
    }
    number = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || number < min || number > max) {
        return tdm__fail(TDM_E_INVAL,
                         "launching a node failed: %s is \"%s\", wanted a number from %u to %u",
                         name, text, min, max);
    }
    *number_out = (uint32_t)number;
    return TDM_OK;
}

/* Copies a host name of `bytes` bytes. */
static tdm_status copy_host(const char *text, size_t bytes, char host[CLI_HOST_BYTES])
{
    if (bytes == 0 || bytes >= CLI_HOST_BYTES) {
        return tdm__fail(TDM_E_INVAL,
                         "launching a node failed: the name of a host has %zu bytes, wanted 1 to "
                         "%d",
                         bytes, CLI_HOST_BYTES - 1);
    }
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    return TDM_OK;
}

tdm_status cli_rendezvous_first_host(const char *list, char host[CLI_HOST_BYTES])
{
    size_t name_bytes = strcspn(list, "[,");
    char text[2 * CLI_HOST_BYTES];
    const char *numbers;
    const char *rest;

    if (list[name_bytes] != '[') {
        return copy_host(list, name_bytes, host);
    }
    numbers = list + name_bytes + 1;
    rest = strchr(numbers, ']');
    if (rest == NULL || name_bytes >= CLI_HOST_BYTES ||
        (size_t)(rest - numbers) >= CLI_HOST_BYTES) {
        return tdm__fail(TDM_E_INVAL, "launching a node failed: \"%.100s\" is no list of hosts",
                         list);
    }
    (void)snprintf(text, sizeof(text), "%.*s%.*s", (int)name_bytes, list,
                   (int)strcspn(numbers, "-,]"), numbers);
    return copy_host(text, strlen(text), host);
}

/* Reads "HOST" or "HOST:PORT". An IPv6 address with a port stands in brackets. */
static tdm_status read_head(const char *text, struct cli_rendezvous *rendezvous)
{
    const char *colon = strrchr(text, ':');
    bool has_port = colon != NULL && (strchr(text, ':') == colon || text[0] == '[');
    unsigned long port = DEFAULT_PORT;
    char *end = NULL;

    if (has_port) {
        port = strtoul(colon + 1, &end, 10);
        if (colon[1] < '0' || colon[1] > '9' || *end != '\0' || port == 0 || port > UINT16_MAX) {
            return tdm__fail(TDM_E_INVAL,
                             "launching a node failed: TANDEM_LAUNCH_HEAD is \"%s\", wanted "
                             "HOST:PORT with a port from 1 to %d",
                             text, UINT16_MAX);
        }
    }
    rendezvous->head_port = (uint16_t)port;
    return copy_host(text, has_port ? (size_t)(colon - text) : strlen(text), rendezvous->head_host);
}

/* Checks that the node is one of the cluster's. */
static tdm_status check_rank(const struct cli_rendezvous *rendezvous, const char *name)
{
    return rendezvous->rank < rendezvous->nodes_count
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "launching a node failed: %s is %u, but there are %u nodes, which count "
                           "from 0",
                           name, rendezvous->rank, rendezvous->nodes_count);
}

/* Reads the variables that Slurm sets for a task of a step. */
static tdm_status read_slurm(struct cli_rendezvous *rendezvous)
{
    uint32_t tasks_count;
    uint32_t job = 0;
    uint32_t step = 0;
    const char *list = variable("SLURM_STEP_NODELIST");
    const char *name = variable("SLURMD_NODENAME");

    TDM_TRY(read_number("SLURM_STEP_NUM_NODES", 1, NODES_MAX, &rendezvous->nodes_count));
    TDM_TRY(read_number("SLURM_STEP_NUM_TASKS", 1, UINT32_MAX, &tasks_count));
    TDM_TRY(read_number("SLURM_NODEID", 0, NODES_MAX, &rendezvous->rank));
    TDM_TRY(read_number("SLURM_JOB_ID", 0, UINT32_MAX, &job));
    TDM_TRY(read_number("SLURM_STEP_ID", 0, UINT32_MAX, &step));
    if (tasks_count != rendezvous->nodes_count) {
        return tdm__fail(TDM_E_INVAL,
                         "launching a node failed: the step has %u tasks on %u nodes, wanted one "
                         "task on each: srun --ntasks-per-node=1",
                         tasks_count, rendezvous->nodes_count);
    }
    if (variable("SLURM_CPUS_ON_NODE") != NULL) {
        TDM_TRY(read_number("SLURM_CPUS_ON_NODE", 1, NODES_MAX, &rendezvous->cpus_count));
    }
    if (name != NULL) {
        TDM_TRY(copy_host(name, strlen(name), rendezvous->name));
    }
    rendezvous->head_port =
        (uint16_t)(FIRST_STEP_PORT + (job * PORTS_OF_A_JOB + step) % STEP_PORTS_COUNT);
    TDM_TRY(check_rank(rendezvous, "SLURM_NODEID"));
    return cli_rendezvous_first_host(list == NULL ? "" : list, rendezvous->head_host);
}

tdm_status cli_rendezvous_read(struct cli_rendezvous *rendezvous_out)
{
    struct cli_rendezvous rendezvous = {.rank = 0};
    const char *head = variable("TANDEM_LAUNCH_HEAD");

    if (head != NULL) {
        TDM_TRY(read_number("TANDEM_LAUNCH_NODES", 1, NODES_MAX, &rendezvous.nodes_count));
        TDM_TRY(read_number("TANDEM_LAUNCH_RANK", 0, NODES_MAX, &rendezvous.rank));
        TDM_TRY(read_head(head, &rendezvous));
        TDM_TRY(check_rank(&rendezvous, "TANDEM_LAUNCH_RANK"));
    } else if (variable("SLURM_STEP_ID") != NULL) {
        TDM_TRY(read_slurm(&rendezvous));
    } else {
        return tdm__fail(TDM_E_INVAL,
                         "launching a node failed: neither a Slurm step nor TANDEM_LAUNCH_HEAD. "
                         "Run `srun --ntasks-per-node=1 tandem launch -- COMMAND`, or set "
                         "TANDEM_LAUNCH_HEAD=HOST:PORT, TANDEM_LAUNCH_RANK and "
                         "TANDEM_LAUNCH_NODES");
    }
    *rendezvous_out = rendezvous;
    return TDM_OK;
}
