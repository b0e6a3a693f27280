/* rendezvous.h - which node of a cluster this process shall start, from the environment. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_RENDEZVOUS_H
#define TDM_CLI_RENDEZVOUS_H

#include <stdint.h>
#include <tandem/error.h>

/* Capacity of a host name or address in a rendezvous. */
enum { CLI_HOST_BYTES = 256 };

/* The place of this process in a cluster that one launcher starts on several machines at once. */
struct cli_rendezvous {
    uint32_t rank;                  /* Number of this node, from 0; 0 is the head node. */
    uint32_t nodes_count;           /* Number of nodes of the cluster. */
    char head_host[CLI_HOST_BYTES]; /* Host name or IP address of the head node's machine. */
    uint16_t head_port;             /* Port of the head node. */
    char name[CLI_HOST_BYTES];      /* Name that the launcher has for this node; "" if unknown. */
    uint32_t cpus_count;            /* CPUs that the launcher allows on this node; 0 if unknown. */
};

/* Reads the rendezvous from TANDEM_LAUNCH_RANK, TANDEM_LAUNCH_NODES and TANDEM_LAUNCH_HEAD, or else
 * from the variables that Slurm sets for each task of a step. Returns TDM_E_INVAL, with the
 * variable and the remedy, if they are missing or wrong. Reads the environment only. */
tdm_status cli_rendezvous_read(struct cli_rendezvous *rendezvous_out);

/* Writes the first host of a list of hosts as Slurm writes it, such as "node07" for
 * "node[07-09,12],other". Returns TDM_E_INVAL if the list has no first host. */
tdm_status cli_rendezvous_first_host(const char *list, char host[CLI_HOST_BYTES]);

#endif
