/* link.c - this process's way to one actor: the calls that wait, that fly, and why they fail.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/link.h"

#include "actors/arguments.h"
#include "actors/handle.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FATE_TIMEOUT_MS = 5000 };

/* One call: in `waiting` until it is sent, in `flying` until it is answered. */
struct tdm__outgoing {
    struct tdm__link *link; /* borrowed */
    struct tdm__outgoing *next;
    struct tdm__outgoing **flying_place; /* what points at it in `flying`; NULL while waiting */
    char method[TDM__RPC_NAME_BYTES_MAX + 1];
    struct tdm__arguments *arguments; /* owned */
    tdm_ref *ref;                     /* held; NULL if nobody waits */
    uint64_t call_id;
    int64_t sent_ms;
    bool lost; /* its connection ended before the answer: the actor's fate answers it */
};

static void link_pump(struct tdm__link *link);
static void link_free_if_unused(struct tdm__link *link);

/* ---- calls ------------------------------------------------------------------------------ */

/* Out of `flying`, if it is there. */
static void outgoing_land(struct tdm__outgoing *outgoing)
{
    if (outgoing->flying_place == NULL) {
        return;
    }
    *outgoing->flying_place = outgoing->next;
    if (outgoing->next != NULL) {
        outgoing->next->flying_place = outgoing->flying_place;
    }
    outgoing->flying_place = NULL;
}

static void outgoing_finish(struct tdm__outgoing *outgoing, tdm_status status,
                            const char *detail, tdm_document *document)
{
    outgoing_land(outgoing);
    if (outgoing->ref != NULL) {
        tdm__ref_complete(outgoing->ref, status, detail, document);
        tdm_ref_release(outgoing->ref);
    } else {
        tdm_document_destroy(document);
    }
    outgoing->link->runtime->results_arrived = true;
    tdm__arguments_destroy(outgoing->arguments);
    free(outgoing);
}

static void outgoing_fly(struct tdm__outgoing *outgoing)
{
    struct tdm__link *link = outgoing->link;

    outgoing->next = link->flying;
    if (link->flying != NULL) {
        link->flying->flying_place = &outgoing->next;
    }
    outgoing->flying_place = &link->flying;
    link->flying = outgoing;
}

static void on_reply(void *arg, struct tdm__reply *reply)
{
    struct tdm__outgoing *outgoing = arg;
    struct tdm__link *link = outgoing->link;
    tdm_document *document = NULL;
    tdm_status status = reply->status;
    const char *detail = reply->detail;

    if (status == TDM_E_CLOSED && !tdm__conn_is_open(link->conn)) {
        outgoing->lost = true; /* what became of the actor decides: see ask_fate() */
        return;
    }
    if (status == TDM_OK) {
        status = tdm__reply_document(reply, &document);
        detail = tdm_error_detail();
    }
    if (status == TDM_OK) {
        tdm__reply_arrived(link->runtime, link->conn, outgoing->call_id, document);
    }
    outgoing_finish(outgoing, status, detail, document);
    tdm__links_pump(link->runtime);
    link_free_if_unused(link);
}

static void outgoing_send(struct tdm__outgoing *outgoing)
{
    struct tdm__link *link = outgoing->link;
    struct tdm__request request = {
        .target = link->id, .method = outgoing->method, .deadline_ms = TDM__NEVER};
    tdm_status status = tdm__arguments_pack(outgoing->arguments, &request.packed);

    outgoing->sent_ms = tdm__clock_ms();
    if (status == TDM_OK) {
        status = tdm__conn_call(link->conn, &request, on_reply, outgoing, &outgoing->call_id);
    }
    if (status != TDM_OK) {
        outgoing_finish(outgoing, status, tdm_error_detail(), NULL);
        return;
    }
    tdm__arguments_sent(outgoing->arguments);
    outgoing_fly(outgoing);
}

static struct tdm__outgoing *take_waiting(struct tdm__link *link)
{
    struct tdm__outgoing *outgoing = link->waiting_head;

    link->waiting_head = outgoing->next;
    if (link->waiting_head == NULL) {
        link->waiting_tail = NULL;
    }
    outgoing->next = NULL;
    return outgoing;
}

/* Sends what can be sent, in order. */
static void link_pump(struct tdm__link *link)
{
    while (link->state == TDM__LINK_OPEN && link->waiting_head != NULL) {
        if (!tdm__arguments_ready(link->waiting_head->arguments)) {
            link->runtime->calls_blocked = true;
            return;
        }
        outgoing_send(take_waiting(link));
    }
}

tdm_status tdm__link_call(struct tdm__link *link, const char *method,
                          struct tdm__arguments *arguments, tdm_ref *ref)
{
    struct tdm__outgoing *outgoing;

    TDM_TRY(tdm__runtime_check(link->runtime));
    if (strlen(method) == 0 || strlen(method) > TDM__RPC_NAME_BYTES_MAX) {
        return tdm__fail(TDM_E_INVAL, "a method name has 1 to %d bytes: \"%.70s\"",
                         TDM__RPC_NAME_BYTES_MAX, method);
    }
    if (link->state == TDM__LINK_DEAD) {
        return tdm__fail(link->death_status, "%s", link->death);
    }
    outgoing = calloc(1, sizeof(*outgoing));
    if (outgoing == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a call of %s", method);
    }
    outgoing->link = link;
    outgoing->arguments = arguments;
    outgoing->ref = ref;
    (void)snprintf(outgoing->method, sizeof(outgoing->method), "%s", method);
    if (ref != NULL) {
        tdm__ref_retain(ref);
    }
    if (link->waiting_tail == NULL) {
        link->waiting_head = outgoing;
    } else {
        link->waiting_tail->next = outgoing;
    }
    link->waiting_tail = outgoing;
    link_pump(link);
    tdm__links_pump(link->runtime); /* a call that could not leave has a result, too */
    return TDM_OK;
}

void tdm__links_pump(tdm_runtime *runtime)
{
    while (runtime->calls_blocked && runtime->results_arrived) {
        runtime->calls_blocked = false;
        runtime->results_arrived = false;
        for (struct tdm__link *link = runtime->links; link != NULL; link = link->next) {
            link_pump(link);
        }
    }
}

/* ---- the end of an actor ---------------------------------------------------------------- */

static void fail_flying(struct tdm__link *link)
{
    char detail[TDM__ERROR_DETAIL_BYTES];
    size_t first_line = strcspn(link->death, "\n"); /* the actor's last words follow it */

    for (struct tdm__outgoing *outgoing = link->flying, *next; outgoing != NULL;
         outgoing = next) {
        next = outgoing->next;
        (void)snprintf(
            detail, sizeof(detail), "%.*s, in method %s, call %llu, %lld ms after it began%s",
            (int)first_line, link->death, outgoing->method,
            (unsigned long long)outgoing->call_id,
            (long long)(tdm__clock_ms() - outgoing->sent_ms), link->death + first_line);
        if (!outgoing->lost) {
            tdm__conn_forget(link->conn, outgoing->call_id);
        }
        outgoing_finish(outgoing, link->death_status, detail, NULL);
    }
}

void tdm__link_die(struct tdm__link *link, tdm_status status, const char *detail)
{
    if (link->state == TDM__LINK_DEAD) {
        return;
    }
    link->state = TDM__LINK_DEAD;
    link->death_status = status;
    link->death = strdup(detail);
    TDM_ASSERT(link->death != NULL);
    fail_flying(link);
    while (link->waiting_head != NULL) {
        outgoing_finish(take_waiting(link), status, link->death, NULL);
    }
    if (link->conn != NULL) {
        tdm__conn_on_closed(link->conn, NULL, NULL);
        tdm__conn_close(link->conn);
        link->conn = NULL;
    }
    tdm__links_pump(link->runtime); /* others may have waited for these results */
}

/* The daemon is gone: that is what ended the actor, and the first thing to know. */
static void die_with_daemon(struct tdm__link *link, const char *detail)
{
    (void)tdm__runtime_daemon_gone(link->runtime, detail);
    tdm__link_die(link, TDM_E_NODE_LOST, tdm_error_detail());
}

void tdm__links_die_with_daemon(tdm_runtime *runtime, const char *detail)
{
    for (struct tdm__link *link = runtime->links; link != NULL; link = link->next) {
        if (strcmp(link->info.node_id, runtime->node_id) == 0) {
            die_with_daemon(link, detail);
        }
    }
}

static void on_fate(void *arg, struct tdm__reply *reply)
{
    struct tdm__link *link = arg;
    char detail[512];

    if (reply->status == TDM_E_CLOSED) {
        die_with_daemon(link, reply->detail);
    } else if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST) {
        tdm__link_die(link, reply->status, reply->detail);
    } else {
        (void)snprintf(detail, sizeof(detail),
                       "actor %s is lost: the connection to pid %lld ended, and %s",
                       link->label, (long long)link->info.pid,
                       reply->status == TDM_OK ? "its node says that it lives" : reply->detail);
        tdm__link_die(link, TDM_E_ACTOR_DIED, detail);
    }
    tdm__link_release(link);
}

static tdm_status send_fate_question(struct tdm__link *link)
{
    struct tdm__request request = {.method = "actor.fate",
                                   .deadline_ms = tdm__deadline_in(FATE_TIMEOUT_MS)};
    struct tdm__conn *daemon;
    tdm_writer *writer;
    tdm_status status;

    TDM_TRY(tdm__runtime_daemon(link->runtime, &daemon));
    TDM_TRY(tdm_writer_create(&writer));
    status = tdm_pack(writer, "b", (const void *)link->id.bytes, sizeof(link->id.bytes));
    request.packed = tdm_writer_bytes(writer);
    if (status == TDM_OK) {
        status = tdm__conn_call(daemon, &request, on_fate, link, NULL);
    }
    tdm_writer_destroy(writer);
    return status;
}

/* The connection ended: only the daemon that watches the process knows how. */
static void ask_fate(struct tdm__link *link)
{
    char detail[TDM__ERROR_DETAIL_BYTES / 2];
    tdm_status status;

    link->state = TDM__LINK_ASKING;
    link->holders_count++;
    status = send_fate_question(link);
    if (status == TDM_OK) {
        return; /* on_fate() lets go */
    }
    (void)snprintf(detail, sizeof(detail), "%.500s", tdm_error_detail());
    if (status == TDM_E_CLOSED) {
        die_with_daemon(link, detail);
    } else {
        tdm__link_die(link, status, detail);
    }
    tdm__link_release(link);
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct tdm__link *link = arg;

    (void)conn;
    tdm__log(TDM__DEBUG, "link", "connection to %s ended: %s: %s", link->label,
             tdm_strerror(reason), detail);
    link->conn = NULL;
    if (link->state != TDM__LINK_DEAD && !link->runtime->leaving) {
        ask_fate(link);
    }
}

/* ---- the beginning ---------------------------------------------------------------------- */

tdm_status tdm__link_create(tdm_runtime *runtime, const struct tdm__id *id, const char *name,
                            const char *class_name, struct tdm__link **link_out)
{
    struct tdm__link *link = calloc(1, sizeof(*link));

    if (link == NULL) {
        return tdm__fail(TDM_E_NOMEM, "a link to an actor");
    }
    link->runtime = runtime;
    link->holders_count = 1;
    link->id = *id;
    (void)tdm__id_text(id, link->info.id);
    (void)snprintf(link->info.name, sizeof(link->info.name), "%s", name);
    (void)snprintf(link->info.class_name, sizeof(link->info.class_name), "%s", class_name);
    (void)tdm__actor_label(name, class_name, id, link->label, sizeof(link->label));
    link->next = runtime->links;
    runtime->links = link;
    *link_out = link;
    return TDM_OK;
}

struct tdm__link *tdm__link_find(tdm_runtime *runtime, const struct tdm__id *id)
{
    for (struct tdm__link *link = runtime->links; link != NULL; link = link->next) {
        if (tdm__id_equal(&link->id, id)) {
            link->holders_count++;
            return link;
        }
    }
    return NULL;
}

/* description: (pid, node id, [gpu …], unix address or nil, tcp address or nil, node name) */
static tdm_status read_description(struct tdm__link *link, const tdm_value *description,
                                   char *address, size_t room)
{
    const tdm_value *gpus = tdm_value_at(description, 2);
    const char *node_id = tdm_value_string(tdm_value_at(description, 1), "");
    bool here = strcmp(node_id, link->runtime->node_id) == 0;
    const char *chosen = tdm_value_string(tdm_value_at(description, here ? 3 : 4), NULL);

    if (chosen == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "actor %s on node %s has no %s address", link->label,
                         node_id, here ? "unix" : "tcp");
    }
    (void)snprintf(address, room, "%s", chosen);
    link->info.pid = tdm_value_int(tdm_value_at(description, 0), 0);
    (void)snprintf(link->info.node_id, sizeof(link->info.node_id), "%s", node_id);
    link->info.gpus_count = 0;
    for (uint32_t i = 0; i < tdm_value_count(gpus) && i < TDM__RUNTIME_GPUS_MAX; i++) {
        link->info.gpu_indices[i] = (uint32_t)tdm_value_uint(tdm_value_at(gpus, i), 0);
        link->info.gpus_count++;
    }
    return TDM_OK;
}

void tdm__link_found(struct tdm__link *link, const tdm_value *description)
{
    char address[TDM__ADDRESS_BYTES];
    tdm_status status;

    if (link->state != TDM__LINK_CREATING) {
        return; /* killed meanwhile */
    }
    status = read_description(link, description, address, sizeof(address));
    if (status == TDM_OK) {
        status = tdm__rpc_connect(link->runtime->rpc, address, &link->conn);
    }
    if (status != TDM_OK) {
        tdm__link_die(link, status, tdm_error_detail());
        return;
    }
    tdm__conn_on_closed(link->conn, on_closed, link);
    link->state = TDM__LINK_OPEN;
    link_pump(link);
}

/* ---- the end of a link ------------------------------------------------------------------ */

static void unlink_from_runtime(struct tdm__link *link)
{
    struct tdm__link **place = &link->runtime->links;

    while (*place != link) {
        place = &(*place)->next;
    }
    *place = link->next;
}

void tdm__link_release(struct tdm__link *link)
{
    TDM_ASSERT(link->holders_count > 0);
    link->holders_count--;
    link_free_if_unused(link);
}

/* With calls under way it stays: their results may be awaited. */
static void link_free_if_unused(struct tdm__link *link)
{
    tdm__handle_settle(link);
    if (link->holders_count == 0 && link->waiting_head == NULL && link->flying == NULL) {
        tdm__link_destroy(link);
    }
}

void tdm__link_destroy(struct tdm__link *link)
{
    tdm__link_die(link, TDM_E_CANCELED,
                  "the runtime has stopped, or nobody holds the actor any more");
    unlink_from_runtime(link);
    tdm_ref_release(link->hold);
    free(link->death);
    free(link);
}
