/* link.c - this process's way to one actor: found, lost, found again, or dead. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/link.h"

#include "actors/arguments.h"
#include "actors/handle.h"
#include "actors/ref.h"
#include "actors/traffic.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"
#include "runtime/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FATE_TIMEOUT_MS = 5000,
    AGAIN_FIRST_MS = 10, /* doubled each time */
    AGAIN_LAST_MS = 1000,
    UNREACHABLE_MS = 60000 /* alive, says its node */
};

tdm_status tdm__link_call(struct tdm__link *link, struct tdm__outgoing *outgoing)
{
    if (link->state == TDM__LINK_DEAD) {
        return tdm__fail(link->death_status, "%s", link->death);
    }
    if (link->max_pending_calls > 0 && link->pending_count >= link->max_pending_calls) {
        return tdm__fail(TDM_E_AGAIN, "%u calls of actor %s are pending, its limit is %u",
                         link->pending_count, link->label, link->max_pending_calls);
    }
    tdm__traffic_push(link, outgoing);
    return TDM_OK;
}

/* ---- where it is ------------------------------------------------------------------------ */

static tdm_status read_description(struct tdm__link *link, const tdm_value *description,
                                   char *address, size_t room)
{
    struct tdm__actor_description_message message;
    const char *chosen;
    bool here;

    TDM_TRY(tdm__actor_description_decode(description, &message));
    here = strcmp(message.node_id, link->runtime->node_id) == 0;
    chosen = here ? message.unix_address : message.tcp_address;
    if (chosen == NULL) {
        return tdm__fail(TDM_E_PROTOCOL, "actor %s on node %s has no %s address", link->label,
                         message.node_id, here ? "unix" : "tcp");
    }
    (void)snprintf(address, room, "%s", chosen);
    link->info.pid = message.pid;
    (void)snprintf(link->info.node_id, sizeof(link->info.node_id), "%s", message.node_id);
    link->info.gpus_count = 0;
    for (uint32_t i = 0; i < message.gpu_indices.count && i < TDM__RUNTIME_GPUS_MAX; i++) {
        tdm__message_list_read(&message.gpu_indices, i, &link->info.gpu_indices[i],
                               sizeof(link->info.gpu_indices[i]));
        link->info.gpus_count++;
    }
    link->incarnation = message.incarnation;
    return TDM_OK;
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail);

static tdm_status open_to(struct tdm__link *link, const char *address)
{
    TDM_TRY(tdm__rpc_connect(link->runtime->rpc, address, &link->conn));
    tdm__conn_on_closed(link->conn, on_closed, link);
    link->state = TDM__LINK_OPEN;
    tdm__traffic_pump(link);
    return TDM_OK;
}

static void ask_fate(struct tdm__link *link);

/* Nothing is heard of it any more: its daemon knows why. */
static void lose(struct tdm__link *link)
{
    link->state = TDM__LINK_ASKING;
    link->lost_since_ms = tdm__clock_ms();
    link->attempts_count = 0;
    ask_fate(link);
}

static void drop_arguments(struct tdm__link *link)
{
    struct tdm__arguments *arguments = link->arguments;

    link->arguments = NULL;
    link->owes_arguments = false;
    tdm__arguments_destroy(arguments);
}

/* One that cannot be reached may have ended since it was described, and be restarted. */
void tdm__link_found(struct tdm__link *link, const tdm_value *description)
{
    char address[TDM__ADDRESS_BYTES];

    if (link->state != TDM__LINK_CREATING) {
        return; /* killed meanwhile */
    }
    link->may_be_another = false;
    if (read_description(link, description, address, sizeof(address)) != TDM_OK) {
        tdm__link_die(link, TDM_E_PROTOCOL, tdm_error_detail());
    } else if (open_to(link, address) != TDM_OK) {
        lose(link);
    }
    if (!link->may_return) {
        drop_arguments(link); /* it is constructed */
    }
}

/* All handles, and the calls that wait, go over to a link that there was before. */
static void move_to(struct tdm__link *link, struct tdm__link *other)
{
    while (link->handles != NULL) {
        tdm_actor *actor = link->handles;

        link->handles = actor->next;
        actor->link = other;
        actor->next = other->handles;
        other->handles = actor;
        other->holders_count++;
        other->counted_count += actor->counted ? 1 : 0;
        link->counted_count -= actor->counted ? 1 : 0;
        tdm__link_release(link);
    }
    tdm__traffic_move(link, other);
}

/* Nobody counts: it was found by its name. */
static void drop_hold(struct tdm__link *link)
{
    tdm_ref *hold = link->hold;

    link->hold = NULL;
    if (hold != NULL) {
        hold->on_end = NULL;
        tdm_ref_release(hold);
    }
}

void tdm__link_becomes(struct tdm__link *link, const struct tdm__id *id, const char *class_name,
                       const tdm_value *description)
{
    struct tdm__link *other = tdm__link_find(link->runtime, id);

    link->may_be_another = false;
    drop_hold(link);
    drop_arguments(link);
    if (other == NULL) {
        link->id = *id;
        (void)tdm__id_text(id, link->info.id);
        (void)snprintf(link->info.class_name, sizeof(link->info.class_name), "%s", class_name);
        tdm__link_found(link, description);
        return;
    }
    if (other != link) {
        move_to(link, other);
    }
    tdm__link_release(other);
}

/* ---- the end of an actor ---------------------------------------------------------------- */

void tdm__link_die(struct tdm__link *link, tdm_status status, const char *detail)
{
    if (link->state == TDM__LINK_DEAD) {
        return;
    }
    link->state = TDM__LINK_DEAD;
    link->death_status = status;
    link->death = strdup(detail);
    TDM_ASSERT(link->death != NULL);
    link->holders_count++; /* with the last call it may be idle, and this is not through */
    tdm__traffic_fail_all(link, status, link->death);
    drop_arguments(link);
    link->holders_count--;
    if (link->conn != NULL) {
        tdm__conn_on_closed(link->conn, NULL, NULL);
        tdm__conn_close(link->conn);
        link->conn = NULL;
    }
}

/* The daemon is gone: that is what ended the actor, and the first thing to know. */
static void die_with_daemon(struct tdm__link *link, const char *detail)
{
    (void)tdm__runtime_daemon_gone(link->runtime, detail);
    tdm__link_die(link, TDM_E_NODE_LOST, tdm_error_detail());
}

void tdm__links_die_with_daemon(tdm_runtime *runtime, const char *detail)
{
    struct tdm__link *link = runtime->links;

    while (link != NULL) {
        struct tdm__link *next;

        link->holders_count++;
        if (strcmp(link->info.node_id, runtime->node_id) == 0) {
            die_with_daemon(link, detail);
        }
        next = link->next; /* what has died may have taken others along */
        tdm__link_release(link);
        link = next;
    }
}

static void ask_later(struct tdm__link *link);

/* It lives: as it was, behind a link that was cut, or restarted. */
static void reopen(struct tdm__link *link, const tdm_value *description)
{
    uint64_t before = link->incarnation;
    char address[TDM__ADDRESS_BYTES];
    char reason[160];
    tdm_status status = read_description(link, description, address, sizeof(address));

    if (status == TDM_OK && link->incarnation != before) {
        (void)snprintf(reason, sizeof(reason), "actor %s died and was restarted", link->label);
        tdm__traffic_fail_unrepeatable(link, reason);
        tdm__traffic_renumber(link);
    }
    if (status == TDM_OK) {
        status = open_to(link, address);
    }
    if (status == TDM_OK) {
        return;
    }
    if (status == TDM_E_PROTOCOL || tdm__clock_ms() - link->lost_since_ms > UNREACHABLE_MS) {
        tdm__link_die(link, TDM_E_ACTOR_DIED, tdm_error_detail());
    } else {
        ask_later(link);
    }
}

static void come_back(struct tdm__link *link, const struct tdm__reply *reply)
{
    tdm_document *document;

    if (tdm__reply_document(reply, &document) != TDM_OK) {
        tdm__link_die(link, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    reopen(link, tdm_document_root(document));
    tdm_document_destroy(document);
}

static void ask_again(void *arg)
{
    struct tdm__link *link = arg;

    if (link->state == TDM__LINK_ASKING) {
        ask_fate(link);
    }
}

/* The longer it takes, the less often. */
static void ask_later(struct tdm__link *link)
{
    int64_t wait_ms = AGAIN_LAST_MS;
    tdm_status status = TDM_OK;

    if (link->attempts_count < 7) {
        wait_ms = (int64_t)AGAIN_FIRST_MS << link->attempts_count++;
    }
    if (link->again == NULL) {
        status = tdm__timer_create(link->runtime->loop, ask_again, link, &link->again);
    }
    if (status == TDM_OK) {
        status = tdm__timer_set(link->again, tdm__deadline_in(wait_ms));
    }
    if (status != TDM_OK) {
        tdm__link_die(link, status, tdm_error_detail());
    }
}

static void on_fate(void *arg, struct tdm__reply *reply)
{
    struct tdm__link *link = arg;
    char detail[512];

    if (link->state != TDM__LINK_ASKING) {
        /* killed meanwhile, or the runtime stops */
    } else if (reply->status == TDM_OK) {
        come_back(link, reply);
    } else if (reply->status == TDM_E_CLOSED) {
        die_with_daemon(link, reply->detail);
    } else if (reply->status == TDM_E_ACTOR_DIED || reply->status == TDM_E_NODE_LOST) {
        tdm__link_die(link, reply->status, reply->detail);
    } else if (reply->status == TDM_E_ACTOR_RESTARTING) {
        tdm__traffic_fail_unrepeatable(link, reply->detail);
        ask_later(link);
    } else if (reply->status == TDM_E_TIMEOUT) {
        ask_later(link); /* it is being restarted, or its node is looked for */
    } else {
        (void)snprintf(detail, sizeof(detail),
                       "actor %s is lost: the connection to pid %lld ended, and %s",
                       link->label, (long long)link->info.pid, reply->detail);
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
    if (link->state == TDM__LINK_DEAD || link->runtime->leaving) {
        return;
    }
    link->state = TDM__LINK_ASKING;
    tdm__traffic_recall(link);
    if (link->lost_since_ms == 0) {
        lose(link);
    } else {
        ask_later(link); /* again, and nothing was heard of it in between */
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
    tdm__traffic_init(link);
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

/* ---- the end of a link ------------------------------------------------------------------ */

static void unlink_from_runtime(struct tdm__link *link)
{
    struct tdm__link **place = &link->runtime->links;

    while (*place != link) {
        place = &(*place)->next;
    }
    *place = link->next;
}

/* The actor may be constructed again, and then wants what it was given. */
static bool keeps_arguments(const struct tdm__link *link)
{
    return link->may_return && link->arguments != NULL &&
           tdm__arguments_pass_on(link->arguments);
}

/* With calls under way it stays: their results may be awaited. */
bool tdm__link_is_unused(const struct tdm__link *link)
{
    return link->holders_count == 0 && tdm__traffic_is_idle(link) && !keeps_arguments(link);
}

void tdm__link_release(struct tdm__link *link)
{
    TDM_ASSERT(link->holders_count > 0);
    link->holders_count--;
    tdm__handle_settle(link);
    if (tdm__link_is_unused(link)) {
        tdm__link_destroy(link);
    }
}

/* Handles that the user has not destroyed outlive the runtime.  They refer to nothing then. */
static void detach_handles(struct tdm__link *link)
{
    for (tdm_actor *actor = link->handles; actor != NULL; actor = actor->next) {
        actor->runtime = NULL;
        actor->link = NULL;
    }
}

void tdm__link_destroy(struct tdm__link *link)
{
    unlink_from_runtime(link); /* so that nobody else comes to destroy it */
    tdm__link_die(link, TDM_E_CANCELED,
                  "the runtime has stopped, or nobody holds the actor any more");
    tdm__traffic_fini(link);
    tdm__timer_destroy(link->again);
    tdm_ref_release(link->hold);
    detach_handles(link);
    free(link->death);
    free(link);
}
