/* daemon_token.c - finds or creates the token of the cluster for a daemon. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_token.h"

#include "actors/process/text_sizes.h"
#include "runtime/error.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Makes the file "token" in the directory of a started daemon a link to the token file `named`. So
 * programs of this node find the token without TANDEM_TOKEN_FILE. */
static tdm_status link_token(const char *named, const char *path)
{
    char absolute[PATH_MAX];

    if (realpath(named, absolute) == NULL || (unlink(path) != 0 && errno != ENOENT) ||
        symlink(absolute, path) != 0) {
        return tdm__fail_errno(errno, "starting the daemon failed: linking %s to the token file %s",
                               path, named);
    }
    return TDM_OK;
}

tdm_status cli_daemon_token_get(const struct cli_daemon_options *options, const char *directory,
                                uint8_t token_out[TDM__TOKEN_BYTES])
{
    const char *named = getenv("TANDEM_TOKEN_FILE");
    char path[TDM__ADDRESS_BYTES + 16];
    tdm_status status;

    (void)snprintf(path, sizeof(path), "%s/token", directory);
    if (named != NULL && named[0] != '\0') {
        TDM_TRY(tdm__token_read(named, token_out));
        return options->is_started ? link_token(named, path) : TDM_OK;
    }
    if (options->redis_url != NULL || options->join_address != NULL) {
        return tdm__fail(TDM_E_AUTH,
                         "starting the daemon failed: a node of a cluster needs TANDEM_TOKEN_FILE, "
                         "the same 32-byte file on every node. Make it "
                         "by: umask 077; head -c 32 /dev/urandom >token");
    }
    status = tdm__token_create(path, token_out);
    return status == TDM_E_EXISTS ? tdm__token_read(path, token_out) : status;
}
