/* network.c - the simulated network between machines: links that are cut and healed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/network.h"

#include "runtime/assert.h"
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A socket that connects gets a name with the number of its machine, by which the other end knows
 * where it is. The linker leads connect() here. */

enum { BACKLOG = 4096 };
static const char CLIENT_PREFIX[] = "tandem-sim-m";

static struct {
    const char *directory;
    bool is_cut[LINK_ENDS_MAX][LINK_ENDS_MAX];
    int silent_fd; /* Socket that listens and never accepts. */
    struct sockaddr_un silent;
    uint64_t clients_count;
} network;

int named_connect(int fd, const struct sockaddr *address,
                  socklen_t address_bytes) __asm__("__wrap_connect");
int kernel_connect(int fd, const struct sockaddr *address,
                   socklen_t address_bytes) __asm__("__real_connect");

/* The number of the machine in a socket's path, DIRECTORY/mN-NAME; 0 for other paths. */
static uint32_t machine_of_path(const char *path)
{
    size_t length = strlen(network.directory);

    if (strncmp(path, network.directory, length) != 0 || strncmp(path + length, "/m", 2) != 0) {
        return 0;
    }
    return (uint32_t)strtoul(path + length + 2, NULL, 10);
}

/* The machine at the other end of a socket; 0 if both ends are on one machine. */
static uint32_t peer_machine(int fd)
{
    struct sockaddr_un peer = {.sun_family = AF_UNSPEC};
    socklen_t peer_bytes = sizeof(peer);

    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 || peer.sun_family != AF_UNIX ||
        peer_bytes <= sizeof(sa_family_t)) {
        return 0;
    }
    if (peer.sun_path[0] == '\0') {
        return strncmp(peer.sun_path + 1, CLIENT_PREFIX, strlen(CLIENT_PREFIX)) == 0
                   ? (uint32_t)strtoul(peer.sun_path + 1 + strlen(CLIENT_PREFIX), NULL, 10)
                   : 0;
    }
    return machine_of_path(peer.sun_path);
}

static bool hides(uint32_t machine, int fd)
{
    uint32_t peer = machine == 0 ? 0 : peer_machine(fd);

    return peer != 0 && peer <= MACHINES_MAX && network.is_cut[peer][machine];
}

int named_connect(int fd, const struct sockaddr *address, socklen_t address_bytes)
{
    uint32_t machine = sim_self() == NULL ? 0 : sim_process_machine(sim_self());
    struct sockaddr_un own = {.sun_family = AF_UNIX};
    const struct sockaddr_un *local = (const struct sockaddr_un *)address;
    uint32_t other;
    int length;

    if (machine == 0 || address->sa_family != AF_UNIX) {
        return kernel_connect(fd, address, address_bytes);
    }
    length = snprintf(own.sun_path + 1, sizeof(own.sun_path) - 1, "%s%u-%d-%llu", CLIENT_PREFIX,
                      machine, (int)getpid(), (unsigned long long)++network.clients_count);
    (void)bind(fd, (const struct sockaddr *)&own,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
    other = machine_of_path(local->sun_path);
    if (other != 0 && (network.is_cut[machine][other] || network.is_cut[other][machine])) {
        return kernel_connect(fd, (const struct sockaddr *)&network.silent, sizeof(network.silent));
    }
    return kernel_connect(fd, address, address_bytes);
}

void network_begin(const char *directory)
{
    memset(&network, 0, sizeof(network));
    network.directory = directory;
    network.silent.sun_family = AF_UNIX;
    (void)snprintf(network.silent.sun_path, sizeof(network.silent.sun_path), "%s/silent",
                   directory);
    network.silent_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TDM_ASSERT(network.silent_fd >= 0);
    (void)unlink(network.silent.sun_path);
    TDM_ASSERT(bind(network.silent_fd, (const struct sockaddr *)&network.silent,
                    sizeof(network.silent)) == 0);
    TDM_ASSERT(listen(network.silent_fd, BACKLOG) == 0);
    sim_set_network(hides);
}

void network_end(void)
{
    (void)close(network.silent_fd);
    (void)unlink(network.silent.sun_path);
    sim_set_network(NULL);
}

void network_set_cut(uint32_t from, uint32_t to, bool is_cut)
{
    network.is_cut[from][to] = is_cut;
}

bool network_is_cut(uint32_t from, uint32_t to)
{
    return network.is_cut[from][to];
}

void network_heal_all(void)
{
    memset(network.is_cut, 0, sizeof(network.is_cut));
}

void network_address(uint32_t machine, const char *name, char *address_out, size_t address_bytes)
{
    (void)snprintf(address_out, address_bytes, "unix:%s/m%u-%s", network.directory, machine, name);
}
