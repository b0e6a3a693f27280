/* worker_query.c - sends one request to every worker, or to every process, of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_query.h"

#include "actors/daemon/actor_entry.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

/* A request to many processes that waits for replies. It frees itself after the last one. */
struct worker_query {
    /* The request for all processes; valid while it is being sent. */
    struct tdm__rpc_request request;
    tdm__query_reply_fn *each; /* Callback for each successful reply of a process. */
    tdm__query_done_fn *done;  /* Callback after the last reply of the query. */
    void *arg;                 /* First argument of both callbacks. */
    /* Number of pending replies, plus one until all requests have been sent. */
    uint32_t pending;
    /* Number of processes that did not reply successfully, except those that have exited. */
    uint32_t silent_count;
};

/* One process that the query has asked. It is freed when the process's reply arrives. */
struct query_target {
    struct worker_query *query;        /* Query that asks the process, borrowed. */
    struct tdm__queried_worker worker; /* Actor and process id of the process that is asked. */
};

/* Counts one reply to the query, and ends the query after the last reply. */
static void query_count_down(struct worker_query *query)
{
    query->pending--;
    if (query->pending == 0) {
        query->done(query->arg, query->silent_count);
        free(query);
    }
}

/* Counts a process whose request or reply failed, unless its connection has closed: a process that
 * has exited is not missing. */
static void query_count_missing(struct worker_query *query, tdm_status status)
{
    if (status != TDM_E_CLOSED) {
        query->silent_count++;
    }
}

/* Handles the reply of one process to the query. */
static void on_query_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct query_target *target = arg;
    struct worker_query *query = target->query;

    if (reply->status == TDM_OK) {
        query->each(query->arg, &target->worker, reply->packed);
    } else {
        query_count_missing(query, reply->status);
    }
    free(target);
    query_count_down(query);
}

/* Sends the query's request over `conn` to the process `worker`. */
static void worker_query_send(struct worker_query *query, struct tdm__conn *conn,
                              const struct tdm__queried_worker *worker)
{
    struct query_target *target = malloc(sizeof(*target));
    tdm_status status = TDM_E_NOMEM;

    if (target != NULL) {
        *target = (struct query_target){query, *worker};
        status = tdm__conn_call(conn, &query->request, on_query_reply, target, NULL);
    }
    if (status == TDM_OK) {
        query->pending++;
        return;
    }
    free(target);
    query_count_missing(query, status);
}

/* Sends the query's request to the worker of every living actor. */
static void query_ask_actors(struct worker_query *query, const struct tdm__node *node)
{
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct tdm__queried_worker worker = {.pid = 0};

        if (entry->lifecycle.state != ACTOR_ALIVE || entry->worker == NULL ||
            entry->worker->conn == NULL) {
            continue;
        }
        worker.pid = entry->worker->pid;
        (void)tdm__id_text(&entry->spec->id, worker.actor);
        memcpy(worker.class_name, entry->spec->class_name, TDM__CLASS_NAME_BYTES);
        memcpy(worker.name, entry->spec->name, TDM__ACTOR_NAME_BYTES);
        worker_query_send(query, entry->worker->conn, &worker);
    }
}

/* Sends the query's request over `conn`, if a worker or a driver is at its other end. */
static void query_ask_process(void *arg, struct tdm__conn *conn)
{
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);

    if (peer->kind == TDM__PEER_WORKER || peer->kind == TDM__PEER_DRIVER) {
        worker_query_send(arg, conn, &(struct tdm__queried_worker){.pid = peer->pid});
    }
}

/* Returns a request that calls `method` without arguments. */
static struct tdm__rpc_request query_request(const char *method, int64_t timeout_ms)
{
    return (struct tdm__rpc_request){
        .method = method, .packed = {"\x90", 1}, .deadline_ms = tdm__deadline_after(timeout_ms)};
}

tdm_status tdm__query_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg)
{
    struct worker_query *query = calloc(1, sizeof(*query));

    if (query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a query to all workers");
    }
    *query = (struct worker_query){query_request(method, timeout_ms), each, done, arg, 1, 0};
    query_ask_actors(query, node);
    query_count_down(query);
    return TDM_OK;
}

tdm_status tdm__query_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                                tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg)
{
    struct worker_query *query = calloc(1, sizeof(*query));

    if (query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a query to all processes");
    }
    *query = (struct worker_query){query_request(method, timeout_ms), each, done, arg, 1, 0};
    tdm__rpc_each_conn(node->rpc, query_ask_process, query);
    query_count_down(query);
    return TDM_OK;
}
