/* cluster.c - connects a command of tandem to a running cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"

#include "actors/process/runtime.h"
#include "actors/process/started_node.h"
#include "runtime/directory.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "runtime/text.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Finds the node that `tandem start` has started, or else this user's only node on this machine,
 * and writes the address of its daemon to `address`. Fails if there are several nodes. */
static tdm_status find_only_node(char *address, size_t room)
{
    struct tdm__started_node started;
    const char *parent = tdm__directory_parent_path();
    char list[1024] = "";
    struct tdm__text text = tdm__text_init(list, sizeof(list));
    const struct dirent *entry;
    uint32_t count = 0;
    DIR *entries;

    if (tdm__started_node_find(&started) == TDM_OK) {
        (void)snprintf(address, room, "%s", started.address);
        return TDM_OK;
    }
    entries = opendir(parent);
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        char path[512];

        (void)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name);
        if (strncmp(entry->d_name, TDM__DIRECTORY_NAME_START, strlen(TDM__DIRECTORY_NAME_START)) ==
                0 &&
            tdm__directory_is_locked(path)) {
            count++;
            (void)snprintf(address, room, "unix:%s/tandemd.sock", path);
            tdm__text_add(&text, "\n  --address %s", address);
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
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

tdm_status tdm__cluster_join(const struct tdm__parsed_arguments *args, tdm_runtime **runtime_out)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    const char *named = getenv("TANDEM_ADDRESS");
    char address[600];

    options.address = tdm__option_value(args, "--address");
    if (options.address == NULL && named != NULL && named[0] != '\0') {
        options.address = named;
    }
    if (options.address == NULL) {
        TDM_TRY(find_only_node(address, sizeof(address)));
        options.address = address;
    }
    options.start_timeout_ms = TDM__CLUSTER_TIMEOUT_MS;
    return tdm_runtime_start(&options, runtime_out);
}

bool tdm__cluster_actor_matches(const struct tdm_actor_state *actor, const char *word)
{
    return strcmp(actor->name, word) == 0 ||
           (strlen(word) >= 4 && strncmp(actor->id, word, strlen(word)) == 0);
}

tdm_status tdm__cluster_call_node(tdm_runtime *runtime, const char *method, const char *node_id,
                                  tdm_document **document_out)
{
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__timeline_read_encode(&(struct tdm__timeline_read_message){node_id}, writer);
    if (status == TDM_OK) {
        status = tdm__runtime_call_daemon(runtime, method, tdm_writer_bytes(writer),
                                          TDM__CLUSTER_TIMEOUT_MS, document_out);
    }
    tdm_writer_destroy(writer);
    return status;
}

int tdm__cluster_leave(tdm_runtime *runtime, tdm_status status)
{
    int code = status == TDM_OK ? TDM__EXIT_SUCCESS : tdm__command_failed(status);

    /* The error is printed first, because stopping the runtime may replace its text. */
    tdm_runtime_stop(runtime);
    return code;
}
