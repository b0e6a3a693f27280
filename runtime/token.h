/* token.h - the cluster's secret: 32 bytes in a file that only its user can read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_TOKEN_H
#define TDM_RUNTIME_TOKEN_H

#include "runtime/rpc/rpc.h"

/* Writes a new random token to `path`, 0600; TDM_E_EXISTS if the file is there. */
tdm_status tdm__token_create(const char *path, uint8_t token_out[TDM__TOKEN_BYTES]);
/* Reads it.  Refused (TDM_E_AUTH, with the remedy) when others may read the file, or when it
 * has another length. */
tdm_status tdm__token_read(const char *path, uint8_t token_out[TDM__TOKEN_BYTES]);
/* The token of a daemon at `address`: TANDEM_TOKEN_FILE, else the file "token" beside its Unix
 * socket. */
tdm_status tdm__token_for_address(const char *address, uint8_t token_out[TDM__TOKEN_BYTES]);

#endif
