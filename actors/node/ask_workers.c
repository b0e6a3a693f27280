/* ask_workers.c - one question to every worker of a node, or to every process. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/ask_workers.h"

#include "actors/node/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

struct asking {
    struct tdm__request request; /* while it is asked */
    tdm__asked_each *each;
    tdm__asked_done *done;
    void *arg;
    uint32_t pending; /* one of them until all have been asked */
    uint32_t silent_count;
};

struct question {
    struct asking *asking;
    struct tdm__asked_worker worker;
};

static void one_less(struct asking *asking)
{
    asking->pending--;
    if (asking->pending == 0) {
        asking->done(asking->arg, asking->silent_count);
        free(asking);
    }
}

static void on_answer(void *arg, struct tdm__reply *reply)
{
    struct question *question = arg;
    struct asking *asking = question->asking;

    if (reply->status == TDM_OK) {
        asking->each(asking->arg, &question->worker, reply->packed);
    } else if (reply->status != TDM_E_CLOSED) { /* it has left: nothing is missing */
        asking->silent_count++;
    }
    free(question);
    one_less(asking);
}

static void ask(struct asking *asking, struct tdm__conn *conn,
                const struct tdm__asked_worker *worker)
{
    struct question *question = malloc(sizeof(*question));

    if (question != NULL) {
        *question = (struct question){asking, *worker};
        if (tdm__conn_call(conn, &asking->request, on_answer, question, NULL) == TDM_OK) {
            asking->pending++;
            return;
        }
    }
    free(question);
    asking->silent_count++;
}

static void ask_actors(struct asking *asking, const struct tdm__node *node)
{
    for (const struct actor_entry *entry = node->actors->all; entry != NULL;
         entry = entry->next) {
        struct tdm__asked_worker worker = {.pid = 0};

        if (entry->lifecycle.state != ACTOR_ALIVE || entry->worker == NULL ||
            entry->worker->conn == NULL) {
            continue;
        }
        worker.pid = entry->worker->pid;
        (void)tdm__id_text(&entry->spec->id, worker.actor);
        memcpy(worker.class_name, entry->spec->class_name, TDM__ACTOR_NAME_BYTES);
        memcpy(worker.name, entry->spec->name, TDM__ACTOR_NAME_BYTES);
        ask(asking, entry->worker->conn, &worker);
    }
}

static void ask_process(void *arg, struct tdm__conn *conn)
{
    const struct tdm__identity *peer = tdm__conn_peer(conn);

    if (peer->kind == TDM__PEER_WORKER || peer->kind == TDM__PEER_DRIVER) {
        ask(arg, conn, &(struct tdm__asked_worker){.pid = peer->pid});
    }
}

static struct tdm__request question_of(const char *method, int64_t timeout_ms)
{
    return (struct tdm__request){
        .method = method, .packed = {"\x90", 1}, .deadline_ms = tdm__deadline_in(timeout_ms)};
}

tdm_status tdm__ask_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                            tdm__asked_each *each, tdm__asked_done *done, void *arg)
{
    struct asking *asking = calloc(1, sizeof(*asking));

    if (asking == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a question to all workers");
    }
    *asking = (struct asking){question_of(method, timeout_ms), each, done, arg, 1, 0};
    ask_actors(asking, node);
    one_less(asking);
    return TDM_OK;
}

tdm_status tdm__ask_processes(struct tdm__node *node, const char *method, int64_t timeout_ms,
                              tdm__asked_each *each, tdm__asked_done *done, void *arg)
{
    struct asking *asking = calloc(1, sizeof(*asking));

    if (asking == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a question to all processes");
    }
    *asking = (struct asking){question_of(method, timeout_ms), each, done, arg, 1, 0};
    tdm__rpc_each(node->rpc, ask_process, asking);
    one_less(asking);
    return TDM_OK;
}
