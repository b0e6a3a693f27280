/* cluster.c - connects a command of tandem to a running cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cluster.h"

#include "actors/process/runtime.h"
#include "cli/local_nodes.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        TDM_TRY(cli_local_node_find_only(address, sizeof(address)));
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
