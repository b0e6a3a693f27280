/* local_nodes.c - finds the daemons of this user that run on this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/local_nodes.h"

#include "actors/process/started_node.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/text.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void cli_local_nodes_each(void (*fn)(void *arg, const char *directory), void *arg)
{
    const char *parent = tdm__directory_parent_path();
    const struct dirent *entry;
    DIR *entries = opendir(parent);

    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name);
        if (strncmp(entry->d_name, TDM__DIRECTORY_NAME_START, strlen(TDM__DIRECTORY_NAME_START)) ==
                0 &&
            tdm__directory_is_locked(path)) {
            fn(arg, path);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
}

/* The daemons that cli_local_nodes_each() has found. */
struct found_nodes {
    uint32_t count;        /* Number of daemons. */
    char *address;         /* Address of the last daemon; borrowed. */
    size_t address_bytes;  /* Capacity of `address` in bytes. */
    struct tdm__text list; /* Options with the addresses of all daemons, one a line. */
};

/* Adds one daemon to those that were found. */
static void add_node(void *arg, const char *directory)
{
    struct found_nodes *found = arg;

    found->count++;
    (void)snprintf(found->address, found->address_bytes, "unix:%s/tandemd.sock", directory);
    tdm__text_add(&found->list, "\n  --address %s", found->address);
}

tdm_status cli_local_node_find_only(char *address, size_t address_bytes)
{
    char list[1024] = "";
    struct tdm__started_node started;
    struct found_nodes found = {.address = address,
                                .address_bytes = address_bytes,
                                .list = tdm__text_init(list, sizeof(list))};

    if (tdm__started_node_find(&started) == TDM_OK) {
        (void)snprintf(address, address_bytes, "%s", started.address);
        return TDM_OK;
    }
    cli_local_nodes_each(add_node, &found);
    if (found.count == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "finding a node failed: no node of yours runs on this "
                                          "machine. Start one by `tandem start --head`, "
                                          "or name one by --address or TANDEM_ADDRESS");
    }
    if (found.count > 1) {
        return tdm__fail(
            TDM_E_INVAL,
            "finding a node failed: %u nodes run on this machine. Give the --address of one:%s",
            found.count, list);
    }
    return TDM_OK;
}
