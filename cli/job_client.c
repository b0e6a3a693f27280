/* job_client.c - the connection by which `tandem job` calls a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/job_client.h"

#include "cli/job_port.h"
#include "cli/local_nodes.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Longest wait for a reply of the daemon, and for the end of a connection that has failed, in
 * milliseconds. */
enum { CALL_TIMEOUT_MS = 30000, CLOSE_TIMEOUT_MS = 1000 };

/* Writes the address of the daemon to call. */
static tdm_status find_address(const char *given, char *address, size_t address_bytes)
{
    static const char *const variables[] = {"RAY_API_SERVER_ADDRESS", "RAY_ADDRESS",
                                            "TANDEM_ADDRESS"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]) && given == NULL; i++) {
        const char *value = getenv(variables[i]);

        given = value == NULL || value[0] == '\0' ? NULL : value;
    }
    return given == NULL || strcmp(given, "auto") == 0
               ? cli_local_node_find_only(address, address_bytes)
               : cli_job_address_parse(given, address, address_bytes);
}

/* Notes why the connection to the daemon has ended. */
static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct cli_job_client *client = arg;

    (void)conn;
    (void)detail;
    client->conn = NULL;
    client->end_reason = reason;
}

/* Condition for the loop: whether the connection to the daemon has ended. */
static bool has_closed(void *arg)
{
    const struct cli_job_client *client = arg;

    return client->conn == NULL;
}

tdm_status cli_job_client_open(const char *address, struct cli_job_client *client)
{
    struct tdm__peer_identity self = {
        .kind = TDM__PEER_DRIVER, .pid = getpid(), .name = "tandem job"};
    uint8_t token[TDM__TOKEN_BYTES];

    *client = (struct cli_job_client){.loop = NULL};
    TDM_TRY(find_address(address, client->address, sizeof(client->address)));
    TDM_TRY(cli_job_port_token(client->address, token));
    TDM_TRY(tdm__id_generate(&self.id));
    TDM_TRY(tdm__loop_create(&client->loop));
    TDM_TRY(tdm__rpc_create(client->loop, &self, token, &client->rpc));
    TDM_TRY(tdm__wrap(tdm__rpc_connect(client->rpc, client->address, &client->conn),
                      "connecting to the node at %s failed", client->address));
    tdm__conn_on_closed(client->conn, on_closed, client);
    return TDM_OK;
}

void cli_job_client_close(struct cli_job_client *client)
{
    tdm__rpc_destroy(client->rpc);
    tdm__loop_destroy(client->loop);
    *client = (struct cli_job_client){.loop = NULL};
}

/* Adds the remedy to the error of a call that did not reach the daemon. */
static tdm_status explain_failure(struct cli_job_client *client, tdm_status status)
{
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (status != TDM_E_CLOSED) {
        return status;
    }
    (void)snprintf(detail, sizeof(detail), "%s", tdm_error_detail());
    (void)tdm__loop_run(client->loop, has_closed, client, tdm__deadline_after(CLOSE_TIMEOUT_MS));
    if (client->end_reason == TDM_E_AUTH) {
        return tdm__fail(TDM_E_AUTH,
                         "connecting failed: the node at %s refuses the token (%s). Set "
                         "TANDEM_TOKEN_FILE to a copy "
                         "of its token file",
                         client->address, detail);
    }
    return tdm__fail(TDM_E_NODE_LOST,
                     "connecting failed: the node at %s does not reply: %s. A node that `tandem "
                     "start --head` has "
                     "started accepts jobs",
                     client->address, detail);
}

tdm_status cli_job_client_call(struct cli_job_client *client, const char *method,
                               const struct tdm__message *message, const void *request,
                               tdm_document **document_out)
{
    struct tdm__rpc_request call = {.method = method,
                                    .deadline_ms = tdm__deadline_after(CALL_TIMEOUT_MS)};
    tdm_writer *writer;
    tdm_status status;

    if (client->conn == NULL) {
        return tdm__fail(
            TDM_E_NODE_LOST,
            "request failed: the node at %s has closed the connection. See its tandemd.log",
            client->address);
    }
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__message_encode(message, request, writer);
    if (status == TDM_OK) {
        call.packed = tdm_writer_bytes(writer);
        status = explain_failure(
            client, tdm__conn_call_wait(client->conn, &call, document_out, NULL, NULL));
    }
    tdm_writer_destroy(writer);
    return status;
}

void cli_job_end_copy(const struct tdm__job_description_message *job, struct cli_job_end *end_out)
{
    *end_out = (struct cli_job_end){
        .has_ended = job->has_ended, .wait_status = (int)job->wait_status, .pid = job->pid};
    (void)snprintf(end_out->state, sizeof(end_out->state), "%s", job->state);
    (void)snprintf(end_out->message, sizeof(end_out->message), "%s", job->message);
}

tdm_status cli_job_client_query(struct cli_job_client *client, const char *method,
                                const char *submission_id, struct cli_job_end *end_out)
{
    const struct tdm__job_query_message request = {.submission_id = submission_id};
    struct tdm__job_description_message job;
    tdm_document *document;
    tdm_status status;

    TDM_TRY(cli_job_client_call(client, method, tdm__job_query_table(), &request, &document));
    status = tdm__job_description_decode(tdm_document_root(document), &job);
    if (status == TDM_OK) {
        cli_job_end_copy(&job, end_out);
    }
    tdm_document_destroy(document);
    return status;
}
