/* token.h - the secret of a cluster: 32 bytes in a file that only its user can read. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_RUNTIME_TOKEN_H
#define TDM_RUNTIME_TOKEN_H

#include <stdint.h>
#include <tandem/error.h>

/* Bytes of the secret token of a cluster. */
enum { TDM__TOKEN_BYTES = 32 };

/* Generates a random token, writes it to the new file `path` with mode 0600 and stores it in
 * `token_out`.  Returns TDM_E_EXISTS if the file exists. */
tdm_status tdm__token_create(const char *path, uint8_t token_out[TDM__TOKEN_BYTES]);
/* Reads the token from the file `path`.  Returns TDM_E_AUTH, with the remedy, if other users may
 * read the file or if it does not have exactly TDM__TOKEN_BYTES bytes. */
tdm_status tdm__token_read(const char *path, uint8_t token_out[TDM__TOKEN_BYTES]);
/* Reads the token for connecting to the daemon at `address`.  It is in the file that
 * TANDEM_TOKEN_FILE names, else in the file "token" beside the Unix socket.  A TCP address needs
 * the variable: TDM_E_AUTH. */
tdm_status tdm__token_for_address(const char *address, uint8_t token_out[TDM__TOKEN_BYTES]);

#endif
