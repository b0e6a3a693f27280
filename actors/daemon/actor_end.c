/* actor_end.c - the requested and unrequested end of an actor's worker process. */
/* SPDX-License-Identifier: Apache-2.0 */

/* Requests to end an actor become events for the lifecycle (actor_lifecycle.h). It answers with
 * actions such as ask_to_leave, expect_exit and kill_now below. The one timer of an entry limits
 * the wait for an exit, or delays a restart; the lifecycle never needs both.
 *
 * When a worker has ended, tdm__actor_entry_worker_ended() writes the death report. It reports
 * the end of the process to the upper files (struct tdm__node_events), which release what the
 * process held and end what it created. Then it reports ACTOR_ON_WORKER_ENDED to the lifecycle,
 * which decides between restart and end. Everything runs on the daemon's loop thread. */

#include "actors/daemon/actor_end.h"

#include "actors/daemon/actor_facts.h"
#include "actors/daemon/actor_table.h"
#include "actors/daemon/death_report.h"
#include "actors/daemon/worker_processes.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the timer of an entry ---------------------------------------------------------------- */

/* Reports to the actor's state machine that its timer expired: the worker did not exit in time, or
 * a restart is due. */
static void actor_entry_on_timer(void *arg)
{
    struct actor_entry *entry = arg;

    if (entry->worker != NULL) {
        tdm__log(TDM__INFO, "actors", "actor %s does not leave: killing pid %d", entry->label,
                 (int)entry->worker->pid);
    }
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_TIMER});
}

/* Sets the timer of an actor to `delay_ms` milliseconds from now, and creates the timer at the
 * first use. */
static tdm_status actor_entry_set_timer(struct actor_entry *entry, int64_t delay_ms)
{
    if (entry->timer == NULL) {
        TDM_TRY(tdm__timer_create(entry->node->loop, actor_entry_on_timer, entry, &entry->timer));
    }
    return tdm__timer_set(entry->timer, tdm__deadline_after(delay_ms));
}

void tdm__actor_entry_start_later(struct actor_entry *entry, int64_t delay_ms)
{
    if (actor_entry_set_timer(entry, delay_ms) != TDM_OK) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_TIMER});
    }
}

void tdm__actor_entry_kill_now(struct actor_entry *entry)
{
    if (entry->worker != NULL) {
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_expect_exit(struct actor_entry *entry, int64_t patience_ms)
{
    if (entry->worker == NULL) {
        return;
    }
    tdm__worker_expect_exit(entry->worker);
    if (patience_ms > 0 && actor_entry_set_timer(entry, patience_ms) != TDM_OK) {
        tdm__worker_kill(entry->worker);
    }
}

/* ---- after the end of a worker ----------------------------------------------------------- */

bool tdm__node_actor_ends_with(const struct tdm__actor_spec *spec, const void *creator)
{
    return (!spec->detached || spec->awaits_creator_arguments) &&
           tdm__id_equal(&spec->creator, creator);
}

/* Reports the end of the actor's worker process, so that what the process held is released and what
 * it created ends. */
static void actor_entry_clear(struct actor_entry *entry, struct tdm__worker_process *worker)
{
    struct tdm__node *node = entry->node;
    struct tdm__peer_identity *gone = &worker->identity;

    *gone = (struct tdm__peer_identity){.kind = TDM__PEER_WORKER,
                                        .id = entry->spec->id,
                                        .node = node->record.id,
                                        .pid = worker->pid};
    (void)snprintf(gone->name, sizeof(gone->name), "%.63s", entry->label);
    node->events->process_ended(node, gone, worker->left_count == 0);
}

/* True if the status `wait_status` of waitpid() says that the process exited with code 0. */
static bool is_voluntary_exit(int wait_status)
{
    return WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

/* Writes the death report of the actor's worker, and reports the end of the worker. */
static void actor_entry_on_worker_ended(struct actor_entry *entry,
                                        struct tdm__worker_process *worker, int wait_status)
{
    const struct tdm__death_report death = {
        .label = entry->label,
        .node_name = entry->node->record.name,
        .pid = worker->pid,
        .wait_status = wait_status,
        .failure = entry->failure,
        .was_requested = tdm__actor_lifecycle_wants_worker_end(&entry->lifecycle),
        .oom = &entry->node->oom,
        .output = worker->output};
    char text[TDM__DEATH_REPORT_BYTES];
    struct actor_event event = {.kind = ACTOR_ON_WORKER_ENDED,
                                .facts = tdm__actor_entry_facts(entry),
                                .detail = text,
                                .lifetime_ms = tdm__clock_ms() - entry->started_ms,
                                .exited_normally = is_voluntary_exit(wait_status)};
    bool restarts = tdm__actor_lifecycle_restarts(&entry->lifecycle, &event);

    tdm__death_report_write(&death, text);
    (void)snprintf(entry->previous_end, sizeof(entry->previous_end), "%.*s",
                   (int)strcspn(text, "\n"), text);
    tdm__log(entry->lifecycle.state == ACTOR_ENDING ? TDM__DEBUG : TDM__INFO, "actors", "%s%s",
             text, restarts ? "; it is restarted" : "");
    entry->worker = NULL;
    tdm__timer_destroy(entry->timer);
    entry->timer = NULL;
    actor_entry_clear(entry, worker);
    if (restarts) {
        entry->pid = 0;
        entry->unix_address[0] = '\0';
    }
    tdm__actor_entry_report(entry, event);
}

/* If the lease has ended, the supervisor may have killed the worker before this daemon could. */
void tdm__actor_entry_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status)
{
    struct actor_entry *entry = arg;

    if (tdm__lease_status_has_ended(&entry->node->lease_status)) {
        tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_LEASE_ENDING,
                                                            .detail = TDM__LEASE_ENDED_TEXT});
    }
    actor_entry_on_worker_ended(entry, worker, wait_status);
}

/* ---- requests to end --------------------------------------------------------------------- */

/* Sends "worker.exit" to a worker. */
static tdm_status send_worker_exit(struct tdm__conn *worker, bool drain, int64_t timeout_ms)
{
    struct tdm__rpc_request request = {.method = "worker.exit",
                                       .deadline_ms = tdm__deadline_after(timeout_ms)};
    const struct tdm__worker_exit_message message = {drain};
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm_writer_create(&writer));
    status = tdm__worker_exit_encode(&message, writer);
    if (status == TDM_OK) {
        request.packed = tdm_writer_bytes(writer);
        status = tdm__conn_call(worker, &request, NULL, NULL, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

void tdm__actor_entry_ask_to_leave(struct actor_entry *entry, bool drain, int64_t patience_ms)
{
    if (entry->worker == NULL) {
        return;
    }
    tdm__actor_entry_expect_exit(entry, patience_ms);
    if (entry->worker->conn == NULL ||
        send_worker_exit(entry->worker->conn, drain, patience_ms) != TDM_OK) {
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_end(struct actor_entry *entry, bool at_once)
{
    tdm__actor_entry_report(entry,
                            (struct actor_event){.kind = at_once ? ACTOR_ON_KILL : ACTOR_ON_END});
}

void tdm__actor_entry_kill_process(struct actor_entry *entry)
{
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_KILL_WORKER});
}

void tdm__actor_entry_release(struct actor_entry *entry)
{
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_LAST_HANDLE_GONE});
}

void tdm__actor_entry_exit_requested(struct actor_entry *entry)
{
    tdm__actor_entry_report(entry, (struct actor_event){.kind = ACTOR_ON_EXIT});
}

void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg)
{
    struct actor_entry *next;

    if (fn != NULL) {
        struct actors_end_wait *actors_end_wait = calloc(1, sizeof(*actors_end_wait));

        TDM_ASSERT(actors_end_wait != NULL);
        *actors_end_wait = (struct actors_end_wait){
            .next = node->actors->actors_end_waits, .matches = matches, .fn = fn, .arg = arg};
        if (key != NULL) {
            actors_end_wait->key = *(const struct tdm__id *)key;
        }
        node->actors->actors_end_waits = actors_end_wait;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (matches(entry->spec, key)) {
            tdm__actor_entry_end(entry, at_once);
        }
    }
    tdm__node_actors_check_end_waits(node);
}
