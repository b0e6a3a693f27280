/* started_node.c - the node that `tandem start` has started on this machine. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/process/started_node.h"

#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/file.h"
#include "runtime/socket.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Name of the file with the address of the cluster, and the first words of its line. */
#define FILE_NAME "cluster"
#define HEAD      "head "
#define MEMBER    "member "

tdm_status tdm__started_node_directory(char *path, size_t path_bytes)
{
    int written = snprintf(path, path_bytes, "%s/" TDM__DIRECTORY_NAME_START "started-%u",
                           tdm__directory_parent_path(), (unsigned)geteuid());

    return written < 0 || (size_t)written >= path_bytes
               ? tdm__fail(TDM_E_LIMIT, "the directory of a node is too long; set TMPDIR to a "
                                        "shorter one")
               : TDM_OK;
}

/* Reads the line of the file with the address of the cluster. Returns false if absent. */
static bool read_cluster(struct tdm__started_node *node)
{
    char path[PATH_MAX];
    char line[sizeof(node->cluster_address) + 16];
    const char *address = NULL;

    (void)snprintf(path, sizeof(path), "%s/" FILE_NAME, node->directory);
    if (!tdm__file_read_text(path, line, sizeof(line))) {
        return false;
    }
    line[strcspn(line, "\n")] = '\0';
    node->is_head = strncmp(line, HEAD, strlen(HEAD)) == 0;
    if (node->is_head) {
        address = line + strlen(HEAD);
    } else if (strncmp(line, MEMBER, strlen(MEMBER)) == 0) {
        address = line + strlen(MEMBER);
    }
    if (address == NULL || strlen(address) >= sizeof(node->cluster_address)) {
        return false;
    }
    (void)snprintf(node->cluster_address, sizeof(node->cluster_address), "%s", address);
    return true;
}

tdm_status tdm__started_node_find(struct tdm__started_node *node_out)
{
    struct tdm__started_node node = {.is_head = false};
    int written;

    TDM_TRY(tdm__started_node_directory(node.directory, sizeof(node.directory)));
    if (!tdm__directory_is_locked(node.directory) || !read_cluster(&node)) {
        return tdm__fail(TDM_E_NOT_FOUND,
                         "no node of yours was started on this machine; `tandem start --head` "
                         "starts one");
    }
    written = snprintf(node.address, sizeof(node.address), "unix:%s/tandemd.sock", node.directory);
    if (written < 0 || (size_t)written >= sizeof(node.address)) {
        return tdm__fail(TDM_E_LIMIT, "the directory %s is too long", node.directory);
    }
    *node_out = node;
    return TDM_OK;
}

tdm_status tdm__started_node_write(const char *directory, bool is_head, const char *cluster_address)
{
    struct tdm__atomic_file file;
    char path[PATH_MAX];
    char line[TDM__ADDRESS_BYTES + 16];
    tdm_status status;

    (void)snprintf(path, sizeof(path), "%s/" FILE_NAME, directory);
    (void)snprintf(line, sizeof(line), "%s%s\n", is_head ? HEAD : MEMBER, cluster_address);
    TDM_TRY(tdm__atomic_file_open(&file, path));
    status = tdm__atomic_file_write(&file, line, strlen(line));
    if (status != TDM_OK) {
        tdm__atomic_file_abandon(&file);
        return status;
    }
    return tdm__atomic_file_commit(&file);
}

/* Returns whether `text` has the form "host:port". */
static bool is_host_and_port(const char *text)
{
    const char *colon = strrchr(text, ':');

    return colon != NULL && colon > text && strncmp(text, "unix:", 5) != 0 &&
           strncmp(text, "tcp:", 4) != 0 && tdm__port_is_valid(colon + 1);
}

/* Returns whether the host in "host:port" means the machine itself. */
static bool is_loopback(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strncmp(text, "localhost:", 10) == 0 ||
           strncmp(text, "[::1]:", 6) == 0;
}

/* Returns whether "host:port" is the address of the cluster that the started node belongs to. The
 * head is also meant by a loopback address with its port. */
static bool node_has_address(const struct tdm__started_node *node, const char *text)
{
    return strcmp(text, node->cluster_address) == 0 ||
           (node->is_head && is_loopback(text) &&
            strcmp(strrchr(text, ':'), strrchr(node->cluster_address, ':')) == 0);
}

tdm_status tdm__node_address_resolve(const char *text, char *address, size_t address_bytes)
{
    struct tdm__started_node node;
    const char *found = text;
    const char *prefix = "";
    int written;

    if (strcmp(text, "auto") == 0) {
        TDM_TRY(tdm__started_node_find(&node));
        found = node.address;
    } else if (is_host_and_port(text)) {
        bool is_here = tdm__started_node_find(&node) == TDM_OK && node_has_address(&node, text);

        found = is_here ? node.address : text;
        prefix = is_here ? "" : "tcp:";
    }
    written = snprintf(address, address_bytes, "%s%s", prefix, found);
    return written < 0 || (size_t)written >= address_bytes
               ? tdm__fail(TDM_E_LIMIT, "the address \"%s\" of a node is too long", text)
               : TDM_OK;
}
