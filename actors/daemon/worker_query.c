/* worker_query.c - one query_target to every worker of a node, or to every process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/daemon/worker_query.h"

#include "actors/daemon/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

struct worker_query {
    struct tdm__rpc_request request; /* while it is asked */
    tdm__query_reply_fn *each;
    tdm__query_done_fn *done;
    void *arg;
    uint32_t pending; /* one of them until all have been asked */
    uint32_t silent_count;
};

struct query_target {
    struct worker_query *worker_query;
    struct tdm__queried_worker worker;
};

static void query_count_down(struct worker_query *worker_query)
{
    worker_query->pending--;
    if (worker_query->pending == 0) {
        worker_query->done(worker_query->arg, worker_query->silent_count);
        free(worker_query);
    }
}

static void on_query_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct query_target *query_target = arg;
    struct worker_query *worker_query = query_target->worker_query;

    if (reply->status == TDM_OK) {
        worker_query->each(worker_query->arg, &query_target->worker, reply->packed);
    } else if (reply->status != TDM_E_CLOSED) { /* it has left: nothing is missing */
        worker_query->silent_count++;
    }
    free(query_target);
    query_count_down(worker_query);
}

static void worker_query_send(struct worker_query *worker_query, struct tdm__conn *conn,
                              const struct tdm__queried_worker *worker)
{
    struct query_target *query_target = malloc(sizeof(*query_target));

    if (query_target != NULL) {
        *query_target = (struct query_target){worker_query, *worker};
        if (tdm__conn_call(conn, &worker_query->request, on_query_reply, query_target, NULL) ==
            TDM_OK) {
            worker_query->pending++;
            return;
        }
    }
    free(query_target);
    worker_query->silent_count++;
}

static void ask_actors(struct worker_query *worker_query, const struct tdm__node *node)
{
    for (const struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        struct tdm__queried_worker worker = {.pid = 0};

        if (entry->lifecycle.state != ACTOR_ALIVE || entry->worker == NULL ||
            entry->worker->conn == NULL) {
            continue;
        }
        worker.pid = entry->worker->pid;
        (void)tdm__id_text(&entry->spec->id, worker.actor);
        memcpy(worker.class_name, entry->spec->class_name, TDM__ACTOR_NAME_BYTES);
        memcpy(worker.name, entry->spec->name, TDM__ACTOR_NAME_BYTES);
        worker_query_send(worker_query, entry->worker->conn, &worker);
    }
}

static void ask_process(void *arg, struct tdm__conn *conn)
{
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);

    if (peer->kind == TDM__PEER_WORKER || peer->kind == TDM__PEER_DRIVER) {
        worker_query_send(arg, conn, &(struct tdm__queried_worker){.pid = peer->pid});
    }
}

static struct tdm__rpc_request query_create_target(const char *method, int64_t timeout_ms)
{
    return (struct tdm__rpc_request){
        .method = method, .packed = {"\x90", 1}, .deadline_ms = tdm__deadline_after(timeout_ms)};
}

tdm_status tdm__query_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg)
{
    struct worker_query *worker_query = calloc(1, sizeof(*worker_query));

    if (worker_query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a query_target to all workers");
    }
    *worker_query =
        (struct worker_query){query_create_target(method, timeout_ms), each, done, arg, 1, 0};
    ask_actors(worker_query, node);
    query_count_down(worker_query);
    return TDM_OK;
}

tdm_status tdm__query_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                                tdm__query_reply_fn *each, tdm__query_done_fn *done, void *arg)
{
    struct worker_query *worker_query = calloc(1, sizeof(*worker_query));

    if (worker_query == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a query_target to all processes");
    }
    *worker_query =
        (struct worker_query){query_create_target(method, timeout_ms), each, done, arg, 1, 0};
    tdm__rpc_each_conn(node->rpc, ask_process, worker_query);
    query_count_down(worker_query);
    return TDM_OK;
}
