/* job_port.c - the TCP port at which a daemon accepts `tandem job`, and who may use it. */
/* SPDX-License-Identifier: Apache-2.0 */
/* The port speaks the protocol of all connections to a daemon (runtime/rpc), in which both sides
 * prove that they know the cluster's token, without sending it. The scheme "http://" of addresses
 * is only Ray's spelling. The file "job_port" in the daemon's directory holds the address and the
 * path of the token file, one a line. The directory is the user's own, so nobody else reads it. */
#include "cli/job_port.h"

#include "actors/process/started_node.h"
#include "cli/local_nodes.h"
#include "runtime/error.h"
#include "runtime/file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Name of the file in a daemon's directory that holds the address of the job port. */
#define NOTE_NAME "job_port"

enum {
    ADDRESS_BYTES = 512,                         /* Capacity of an address as text. */
    NOTE_BYTES = ADDRESS_BYTES + TDM__PATH_BYTES /* Capacity of the text of the note. */
};

/* ---- addresses ---------------------------------------------------------------------------- */

/* Returns where the port of an address begins, behind the last colon; NULL if it has no port. */
static const char *port_of(const char *address)
{
    const char *colon = strrchr(address, ':');

    return colon == NULL || colon[1] == '\0' || colon[1 + strspn(colon + 1, "0123456789")] != '\0'
               ? NULL
               : colon + 1;
}

/* Writes "tcp:HOST:PORT" for "HOST:PORT", which may be followed by a path. `text` is what the error
 * names. */
static tdm_status tcp_address_write(const char *text, const char *host_port, char *address,
                                    size_t address_bytes)
{
    int written =
        snprintf(address, address_bytes, "tcp:%.*s", (int)strcspn(host_port, "/"), host_port);

    if (written < 0 || (size_t)written >= address_bytes) {
        return tdm__fail(
            TDM_E_LIMIT,
            "reading the address failed: %s has more than %zu bytes. Use a shorter host name", text,
            address_bytes - 1);
    }
    return port_of(address) != NULL && port_of(address) > address + strlen("tcp:")
               ? TDM_OK
               : tdm__fail(
                     TDM_E_INVAL,
                     "reading the address failed: %s has no port. Give http://HOST:PORT, usually "
                     "http://127.0.0.1:8265",
                     text);
}

/* ---- the daemon's side ------------------------------------------------------------------ */

/* Writes the file with the address and the path of the token file into the daemon's directory. */
static tdm_status note_write(const char *directory, const char *address)
{
    const char *named = getenv("TANDEM_TOKEN_FILE");
    struct tdm__atomic_file file;
    char path[TDM__PATH_BYTES];
    char text[NOTE_BYTES];
    char *absolute = named == NULL || named[0] == '\0' ? NULL : realpath(named, NULL);
    int length = absolute != NULL
                     ? snprintf(text, sizeof(text), "%s\n%s\n", address, absolute)
                     : snprintf(text, sizeof(text), "%s\n%s/token\n", address, directory);
    tdm_status status;

    free(absolute);
    if (length < 0 || (size_t)length >= sizeof(text)) {
        return tdm__fail(TDM_E_LIMIT, "writing the note about the port failed: the path of the "
                                      "token file is too long. Choose a shorter --directory");
    }
    (void)snprintf(path, sizeof(path), "%s/" NOTE_NAME, directory);
    TDM_TRY(tdm__atomic_file_open(&file, path));
    status = tdm__atomic_file_write(&file, text, (size_t)length);
    if (status != TDM_OK) {
        tdm__atomic_file_abandon(&file);
        return status;
    }
    return tdm__atomic_file_commit(&file);
}

tdm_status cli_job_port_listen(struct tdm__rpc *rpc, const char *host_port, const char *directory)
{
    char wanted[ADDRESS_BYTES];
    char address[ADDRESS_BYTES];
    const struct tdm__tcp_settings settings = *tdm__rpc_tcp_settings(rpc);
    struct tdm__tcp_settings own = settings;
    tdm_status status;

    TDM_TRY(tcp_address_write(host_port, host_port, wanted, sizeof(wanted)));
    own.advertised_host[0] = '\0'; /* Commands of this machine use the address itself. */
    tdm__rpc_set_tcp_settings(rpc, &own);
    errno = 0; /* The failed bind(2) of a taken port leaves EADDRINUSE. */
    status = tdm__rpc_listen(rpc, wanted, address, sizeof(address));
    tdm__rpc_set_tcp_settings(rpc, &settings);
    if (status != TDM_OK && errno == EADDRINUSE) {
        return tdm__fail(status,
                         "opening the port for jobs failed: the port of %s is taken by another "
                         "process. Stop that process "
                         "(`tandem stop` stops this machine's nodes), or choose another port "
                         "(tandem start --dashboard-port N, tandemd --job-address HOST:N)",
                         host_port);
    }
    TDM_TRY(status);
    return note_write(directory, address);
}

/* ---- the side of commands --------------------------------------------------------------- */

tdm_status cli_job_address_parse(const char *text, char *address, size_t address_bytes)
{
    static const char http[] = "http://";

    if (strncmp(text, http, strlen(http)) == 0) {
        return tcp_address_write(text, text + strlen(http), address, address_bytes);
    }
    TDM_TRY(tdm__node_address_resolve(text, address, address_bytes));
    return strstr(address, "://") == NULL &&
                   (strncmp(address, "unix:", 5) == 0 || strncmp(address, "tcp:", 4) == 0)
               ? TDM_OK
               : tdm__fail(TDM_E_INVAL,
                           "reading the address failed: %s is in no known form. Give "
                           "http://HOST:PORT, HOST:PORT "
                           "or unix:/path",
                           text);
}

/* Search for the node of this machine that has noted a port. */
struct port_search {
    const char *port; /* Port to find, as text; borrowed. */
    /* Path of the token file of the node; "" if no node has noted the port. */
    char token_path[TDM__PATH_BYTES];
};

/* Compares the port that the node in `directory` has noted; for cli_local_nodes_each(). */
static void search_node(void *arg, const char *directory)
{
    struct port_search *search = arg;
    char path[TDM__PATH_BYTES];
    char text[NOTE_BYTES];
    const char *port;
    char *token_path;

    (void)snprintf(path, sizeof(path), "%s/" NOTE_NAME, directory);
    if (!tdm__file_read_text(path, text, sizeof(text)) ||
        (token_path = strchr(text, '\n')) == NULL) {
        return;
    }
    *token_path++ = '\0';
    token_path[strcspn(token_path, "\n")] = '\0';
    port = port_of(text);
    if (port != NULL && strcmp(port, search->port) == 0) {
        (void)snprintf(search->token_path, sizeof(search->token_path), "%s", token_path);
    }
}

tdm_status cli_job_port_token(const char *address, uint8_t token_out[TDM__TOKEN_BYTES])
{
    const char *named = getenv("TANDEM_TOKEN_FILE");
    struct port_search search = {.port = port_of(address)};

    if ((named != NULL && named[0] != '\0') || strncmp(address, "tcp:", 4) != 0 ||
        search.port == NULL) {
        return tdm__token_for_address(address, token_out);
    }
    cli_local_nodes_each(search_node, &search);
    if (search.token_path[0] == '\0') {
        return tdm__fail(TDM_E_AUTH,
                         "finding a node failed: no node of yours on this machine accepts jobs at "
                         "port %s. Start one with "
                         "`tandem start --head`, or, for a node of another machine, set "
                         "TANDEM_TOKEN_FILE to a copy of its token file",
                         search.port);
    }
    return tdm__token_read(search.token_path, token_out);
}
