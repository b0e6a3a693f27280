/* job_port.h - the TCP port at which a daemon accepts `tandem job`, and who may use it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_JOB_PORT_H
#define TDM_CLI_JOB_PORT_H

#include "runtime/rpc/rpc.h"

/* Makes the daemon's endpoint listen for `tandem job` at `host_port`, such as "127.0.0.1:8265".
 * Notes the port in the daemon's directory, where commands on this machine find it with the path of
 * the token file. Like everywhere, a peer must prove that it knows the token. A port that another
 * process has is an error that names the remedy. */
tdm_status cli_job_port_listen(struct tdm__rpc *rpc, const char *host_port, const char *directory);

/* Converts the address that the user gave for `tandem job` to an address for tdm__rpc_connect():
 * "http://HOST:PORT" becomes "tcp:HOST:PORT", and other addresses mean what they mean elsewhere
 * (tdm__node_address_resolve()). Returns TDM_E_INVAL for a text that is no address. */
tdm_status cli_job_address_parse(const char *text, char *address, size_t address_bytes);

/* Reads the token for a node whose address cli_job_address_parse() has written: from the file that
 * TANDEM_TOKEN_FILE names, beside the node's socket, or, for a TCP address, from the node of this
 * user on this machine that has noted that port. Returns TDM_E_AUTH with the remedy if there is no
 * such file. */
tdm_status cli_job_port_token(const char *address, uint8_t token_out[TDM__TOKEN_BYTES]);

#endif
