/* ask_workers.c - one question to every worker of a node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/ask_workers.h"

#include "actors/node/actor_entry.h"
#include "runtime/clock.h"
#include "runtime/error.h"

#include <stdlib.h>
#include <string.h>

struct asking {
    void (*each)(void *arg, const struct tdm__asked_worker *worker, struct tdm_bytes answer);
    void (*done)(void *arg);
    void *arg;
    uint32_t pending;
};

struct question {
    struct asking *asking;
    struct tdm__asked_worker worker;
};

static void one_less(struct asking *asking)
{
    asking->pending--;
    if (asking->pending == 0) {
        asking->done(asking->arg);
        free(asking);
    }
}

static void on_answer(void *arg, struct tdm__reply *reply)
{
    struct question *question = arg;
    struct asking *asking = question->asking;

    if (reply->status == TDM_OK) {
        asking->each(asking->arg, &question->worker, reply->packed);
    }
    free(question);
    one_less(asking);
}

static void ask(struct asking *asking, const struct actor_entry *entry,
                const struct tdm__request *request)
{
    struct question *question = calloc(1, sizeof(*question));

    if (question == NULL) {
        return;
    }
    question->asking = asking;
    question->worker.pid = entry->worker->pid;
    (void)tdm__id_text(&entry->spec->id, question->worker.actor);
    memcpy(question->worker.class_name, entry->spec->class_name, TDM__ACTOR_NAME_BYTES);
    memcpy(question->worker.name, entry->spec->name, TDM__ACTOR_NAME_BYTES);
    if (tdm__conn_call(entry->worker->conn, request, on_answer, question, NULL) == TDM_OK) {
        asking->pending++;
    } else {
        free(question);
    }
}

tdm_status tdm__ask_workers(struct tdm__node *node, const char *method, int64_t timeout_ms,
                            void (*each)(void *arg, const struct tdm__asked_worker *worker,
                                         struct tdm_bytes answer),
                            void (*done)(void *arg), void *arg)
{
    struct tdm__request request = {
        .method = method, .packed = {"\x90", 1}, .deadline_ms = tdm__deadline_in(timeout_ms)};
    struct asking *asking = calloc(1, sizeof(*asking));

    if (asking == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a question to all workers");
    }
    *asking = (struct asking){each, done, arg, 1}; /* one until all have been asked */
    for (const struct actor_entry *entry = node->actors->all; entry != NULL;
         entry = entry->next) {
        if (entry->state == ACTOR_ALIVE && entry->worker != NULL &&
            entry->worker->conn != NULL) {
            ask(asking, entry, &request);
        }
    }
    one_less(asking);
    return TDM_OK;
}
