/* fork_servers.h - the fork servers of a node: which programs have one, and whether it replies. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TDM_ACTORS_DAEMON_FORK_SERVERS_H
#define TDM_ACTORS_DAEMON_FORK_SERVERS_H

#include "actors/common/fork_server.h"
#include "runtime/loop/loop.h"
#include "runtime/process/spawn.h"

#include <stdbool.h>

/* A program that workers execute, and that a fork server executes once. All pointers are
 * borrowed. */
struct tdm__worker_program {
    char *const *argv;     /* Path of the program and its arguments, ended by NULL. */
    const char *directory; /* Working directory. */
    /* Environment, ended by NULL, with room for one more entry. */
    char **environment;
};

/* Executes a program in the role "worker" or "fork_server", which its first call of Tandem reads.
 * The descriptors of `options` are set; the rest is filled in here. */
tdm_status tdm__worker_program_execute(const struct tdm__worker_program *program, const char *role,
                                       struct tdm__spawn_options *options,
                                       struct tdm__process *process_out);

/* A key (program with arguments, directory and environment) that was used before, and its fork
 * server if it was used twice. The table owns it. */
struct tdm__fork_server;
/* The fork servers of a daemon. Only the daemon's loop thread uses it. */
struct tdm__fork_servers;

/* Called when a fork server has not replied to a request for long. No requests are sent to it any
 * more. For each of its workers without a report the callback closes the socket for reports, starts
 * the worker in another way, and calls tdm__fork_server_release(). */
typedef void tdm__fork_server_silent_fn(void *arg, struct tdm__fork_server *fork_server);

/* Creates the table. `reply_ms` is how long a fork server that has replied before may take for one
 * request, in milliseconds. */
tdm_status tdm__fork_servers_create(struct tdm__loop *loop, int64_t reply_ms,
                                    tdm__fork_server_silent_fn *silent, void *arg,
                                    struct tdm__fork_servers **servers_out);
/* Kills all fork servers, and with them the workers that they have forked, and frees the table.
 * NULL is allowed. */
void tdm__fork_servers_destroy(struct tdm__fork_servers *servers);
/* Returns whether `pid` is the process of a fork server. */
bool tdm__fork_servers_own(const struct tdm__fork_servers *servers, pid_t pid);

/* Returns the fork server for a key that was used before; NULL if the key is new, which is then
 * remembered, or if workers with the key cannot be forked. Takes ownership of `key`, a string from
 * malloc(); NULL is allowed. */
struct tdm__fork_server *tdm__fork_servers_find(struct tdm__fork_servers *servers, char *key);
/* Starts the process of the fork server with this program if it does not run, and sends it a
 * request with its descriptors. On TDM_OK the caller calls tdm__fork_server_replied() when the
 * report on the request has come, and tdm__fork_server_release() when the worker has ended. */
tdm_status tdm__fork_server_send(struct tdm__fork_server *fork_server,
                                 const struct tdm__worker_program *program,
                                 const struct tdm__fork_server_request *request, const int *fds,
                                 uint32_t fds_count);
/* Records that a report on a request has come. */
void tdm__fork_server_replied(struct tdm__fork_server *fork_server);
/* Ends a fork server whose process runs threads, so that it can never fork. */
void tdm__fork_server_disable(struct tdm__fork_server *fork_server);
/* Records that one worker of the fork server has ended, or is not forked. */
void tdm__fork_server_release(struct tdm__fork_server *fork_server);

#endif
