/* network.h - the simulated network between machines: links that are cut and healed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_TESTS_CLUSTER_SIM_NETWORK_H
#define TDM_TESTS_CLUSTER_SIM_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Machines have the numbers 1 to MACHINES_MAX. The store is at the other end of links, too, but its
 * messages are not sent over sockets (cluster_store.h). */
enum { MACHINES_MAX = 4, STORE_MACHINE = MACHINES_MAX + 1, LINK_ENDS_MAX = MACHINES_MAX + 2 };

/* The processes use Unix sockets, which deliver at once. What crosses a cut link is hidden from its
 * receiver, the end of a connection included, until the link is healed, as TCP repeats it. A
 * connection that is started over a cut link gets no answer at all. */

/* Begins with whole links. The sockets of the machines are in `directory`, which is borrowed. */
void network_begin(const char *directory);
void network_end(void);
/* Cuts or heals the link in one direction. */
void network_set_cut(uint32_t from, uint32_t to, bool is_cut);
bool network_is_cut(uint32_t from, uint32_t to);
void network_heal_all(void);
/* Writes the address of the socket `name` on the machine, "unix:DIRECTORY/mN-NAME". */
void network_address(uint32_t machine, const char *name, char *address_out, size_t address_bytes);

#endif
