/* cluster.c - the way from a command to a running cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"

#include "runtime/error.h"
#include "runtime/text.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Somebody listens there, and this user may talk to it. */
static bool answers(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool connected;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    connected = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return connected;
}

static tdm_status choose_only(const glob_t *found, char *address, size_t room)
{
    char list[1024];
    struct tdm__text text = tdm__text_in(list, sizeof(list));
    uint32_t count = 0;

    for (size_t i = 0; i < found->gl_pathc; i++) {
        if (answers(found->gl_pathv[i])) {
            count++;
            (void)snprintf(address, room, "unix:%s", found->gl_pathv[i]);
            tdm__text_add(&text, "\n  --address %s", address);
        }
    }
    if (count == 0) {
        return tdm__fail(TDM_E_NOT_FOUND,
                         "no node of yours runs on this machine; say which one by --address or "
                         "TANDEM_ADDRESS");
    }
    if (count > 1) {
        return tdm__fail(TDM_E_INVAL, "%u nodes run here; say which one:%s", count, list);
    }
    return TDM_OK;
}

static tdm_status find_only(char *address, size_t room)
{
    const char *parent = getenv("TMPDIR");
    char pattern[4096];
    glob_t found = {0};
    tdm_status status;

    (void)snprintf(pattern, sizeof(pattern), "%s/tandem-*/tandemd.sock",
                   parent == NULL || parent[0] == '\0' ? "/tmp" : parent);
    (void)glob(pattern, 0, NULL, &found);
    status = choose_only(&found, address, room);
    globfree(&found);
    return status;
}

tdm_status tdm__cluster_join(const struct tdm__words *words, tdm_runtime **runtime_out)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    const char *named = getenv("TANDEM_ADDRESS");
    char address[256];

    options.address = tdm__option_value(words, "--address");
    if (options.address == NULL && named != NULL && named[0] != '\0') {
        options.address = named;
    }
    if (options.address == NULL) {
        TDM_TRY(find_only(address, sizeof(address)));
        options.address = address;
    }
    options.start_timeout_ms = TDM__CLUSTER_MS;
    return tdm_runtime_start(&options, runtime_out);
}

int tdm__cluster_leave(tdm_runtime *runtime, tdm_status status)
{
    int code = status == TDM_OK ? TDM__EXIT_DONE : tdm__command_failed(status);

    tdm_runtime_stop(runtime); /* has words of its own to say about the connection's end */
    return code;
}
