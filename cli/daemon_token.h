/* daemon_token.h - finds or creates the token of the cluster for a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_CLI_DAEMON_TOKEN_H
#define TDM_CLI_DAEMON_TOKEN_H

#include "cli/daemon_options.h"
#include "runtime/token.h"

/* Reads the token from the file that TANDEM_TOKEN_FILE names. Without that variable it is in the
 * file "token" of the daemon's directory, which is created unless an earlier daemon of the
 * directory has left it. The directory of a started daemon gets a link to the file of the variable,
 * so that programs of this node find the token. Returns TDM_E_AUTH, with the remedy, if a node of
 * a cluster does not have the variable, and for the failures of tdm__token_read(). */
tdm_status cli_daemon_token_get(const struct cli_daemon_options *options, const char *directory,
                                uint8_t token_out[TDM__TOKEN_BYTES]);

#endif
