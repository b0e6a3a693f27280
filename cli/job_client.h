/* job_client.h - the connection by which `tandem job` calls a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_JOB_CLIENT_H
#define TDM_CLI_JOB_CLIENT_H

#include "runtime/messages/messages.h"
#include "runtime/rpc/rpc.h"

/* A connection to a daemon that runs submitted jobs. A zeroed structure is closed. */
struct cli_job_client {
    struct tdm__loop *loop; /* Event loop of the connection (owned); NULL if it is closed. */
    struct tdm__rpc *rpc;   /* Endpoint of this command (owned). */
    struct tdm__conn *conn; /* Connection to the daemon; the endpoint owns it. NULL if closed. */
    tdm_status end_reason;  /* Why the connection has ended; TDM_OK before. */
    char address[512];      /* Address of the daemon. */
};

/* What a command remembers of a job after the daemon's reply has been destroyed. */
struct cli_job_end {
    bool has_ended;    /* Whether the job has ended. */
    int wait_status;   /* Wait status of the job's command; 0 if it never ran. */
    int64_t pid;       /* Process that supervises the command; 0 if none was started. */
    char state[16];    /* Ray's name of the job's state. */
    char message[512]; /* Why the job is in this state; "" if the state says it all. */
};

/* Connects to the daemon at the address that the user gave. If `address` is NULL or "auto", that is
 * the one in RAY_API_SERVER_ADDRESS, RAY_ADDRESS or TANDEM_ADDRESS, or else the only node on this
 * machine. The connection is made by the first call. The caller closes the client, also after a
 * failure. */
tdm_status cli_job_client_open(const char *address, struct cli_job_client *client);
/* Closes the connection; does nothing if the client is closed. */
void cli_job_client_close(struct cli_job_client *client);

/* Calls a method of the daemon and blocks until its reply. `message` describes `request`. The
 * caller destroys the document. An error names the address and the remedy if the daemon cannot be
 * reached or does not have the same token. */
tdm_status cli_job_client_call(struct cli_job_client *client, const char *method,
                               const struct tdm__message *message, const void *request,
                               tdm_document **document_out);
/* Calls a method that names a job ("job.describe" or "job.stop"), and stores the job's state. */
tdm_status cli_job_client_query(struct cli_job_client *client, const char *method,
                                const char *submission_id, struct cli_job_end *end_out);
/* Copies what a command remembers of a job. */
void cli_job_end_copy(const struct tdm__job_description_message *job, struct cli_job_end *end_out);

#endif
