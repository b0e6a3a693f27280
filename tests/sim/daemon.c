/* daemon.c - a node's daemon as actors see it: it starts, watches and ends their processes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/daemon.h"

#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "tests/sim/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct daemon daemon_here;
const uint8_t daemon_token[TDM__TOKEN_BYTES] = {7};

enum question_kind { OF_LIFE, OF_END };

struct daemon_question {
    TAILQ_ENTRY(daemon_question) link;
    enum question_kind kind;
    struct tdm__incoming_call *incoming; /* owned */
};

struct daemon_actor *daemon_find(const struct tdm__id *id)
{
    struct daemon_actor *actor;

    TAILQ_FOREACH(actor, &daemon_here.actors, link)
    {
        if (tdm__id_equal(&actor->spec->id, id)) {
            return actor;
        }
    }
    return NULL;
}

bool daemon_can_crash(const struct daemon_actor *actor)
{
    return actor->process != NULL && actor->state != DAEMON_DEAD;
}

/* ---- answers ---------------------------------------------------------------------------- */

/* (pid, node id, [gpu …], unix address, tcp address, incarnation, metadata, previous end) */
static void write_description(tdm_writer *writer, const struct daemon_actor *actor)
{
    char node[TDM__ID_TEXT_BYTES];

    tdm_write_array(writer, 8);
    tdm_write_int(writer, actor->pid);
    tdm_write_string(writer, tdm__id_text(&daemon_here.node, node));
    tdm_write_array(writer, 0);
    tdm_write_string(writer, actor->address);
    tdm_write_nil(writer);
    tdm_write_uint(writer, actor->incarnation);
    tdm_write_bytes(writer, NULL, 0); /* No metadata. */
    tdm_write_nil(writer);            /* No end of an earlier process. */
}

static void answer_described(const struct daemon_actor *actor, struct tdm__incoming_call *incoming)
{
    tdm_writer *writer;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    write_description(writer, actor);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

/* Answers who has the name; the caller awaits an actor that is not alive yet. */
static void answer_found(const struct daemon_actor *actor, struct tdm__incoming_call *incoming)
{
    char id[TDM__ID_TEXT_BYTES];
    struct tdm__actor_found_message found = {.id = tdm__id_text(&actor->spec->id, id),
                                             .class_name = actor->spec->class_name,
                                             .holds_name = true};
    tdm_writer *writer;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    if (actor->state == DAEMON_ALIVE) {
        write_description(writer, actor);
        found.description.packed = tdm_writer_bytes(writer);
    }
    tdm__incoming_reply_message(incoming, tdm__actor_found_table(), &found);
    tdm_writer_destroy(writer);
}

static void ask_in(struct daemon_questions *questions, enum question_kind kind,
                   struct tdm__incoming_call *incoming)
{
    struct daemon_question *question = calloc(1, sizeof(*question));

    TDM_ASSERT(question != NULL);
    question->kind = kind;
    question->incoming = incoming;
    TAILQ_INSERT_TAIL(questions, question, link);
}

static void ask(struct daemon_actor *actor, enum question_kind kind,
                struct tdm__incoming_call *incoming)
{
    ask_in(&actor->questions, kind, incoming);
}

static void answer_all(struct daemon_actor *actor)
{
    bool dead = actor->state == DAEMON_DEAD;
    struct daemon_question *question;
    struct daemon_question *next;

    for (question = TAILQ_FIRST(&actor->questions); question != NULL; question = next) {
        next = TAILQ_NEXT(question, link);
        if (question->kind == OF_END && !dead) {
            continue;
        }
        TAILQ_REMOVE(&actor->questions, question, link);
        if (question->kind == OF_END) {
            tdm__incoming_reply_pack(question->incoming, "");
        } else if (dead) {
            tdm__incoming_fail(question->incoming, actor->death_status, actor->death);
        } else {
            answer_described(actor, question->incoming);
        }
        free(question);
    }
}

/* ---- lives ------------------------------------------------------------------------------ */

static void start(struct daemon_actor *actor)
{
    actor->state = DAEMON_STARTING;
    actor->pid = ++daemon_here.last_pid;
    actor->process = worker_start(actor);
}

static void die(struct daemon_actor *actor, tdm_status status, const char *why)
{
    actor->state = DAEMON_DEAD;
    actor->death_status = status;
    (void)snprintf(actor->death, sizeof(actor->death), "actor %s died: %s", actor->spec->class_name,
                   why);
    answer_all(actor);
}

static void end_at_once(struct daemon_actor *actor)
{
    actor->killed = true;
    if (actor->process != NULL) {
        actor->state = DAEMON_ENDING;
        sim_process_kill(actor->process);
    }
}

/* Its last handle is gone. */
static void release(struct daemon_actor *actor)
{
    struct tdm__rpc_request request = {
        .method = "worker.exit", .packed = {"\x91\xc3", 2}, .deadline_ms = TDM__NEVER};

    actor->released = true;
    if (actor->state != DAEMON_ALIVE) {
        return; /* The reply follows when the actor lives. */
    }
    actor->state = DAEMON_ENDING;
    if (actor->conn == NULL || tdm__conn_call(actor->conn, &request, NULL, NULL, NULL) != TDM_OK) {
        sim_process_kill(actor->process);
    }
}

/* From its process: (address). */
static void serve_constructed(struct tdm__incoming_call *incoming)
{
    const struct tdm__peer_identity *peer = tdm__incoming_peer(incoming);
    struct daemon_actor *actor = daemon_find(&peer->id);
    bool is_it = actor->pid == peer->pid && actor->state == DAEMON_STARTING;
    const tdm_value *value;
    const char *address;

    TDM_ASSERT(tdm__incoming_value(incoming, &value) == TDM_OK);
    TDM_ASSERT(tdm_unpack(value, "s", &address) == TDM_OK);
    if (is_it) {
        (void)snprintf(actor->address, sizeof(actor->address), "%s", address);
        actor->state = DAEMON_ALIVE;
    }
    tdm__incoming_reply_pack(incoming, "");
    if (is_it) {
        answer_all(actor);
    }
    if (is_it && actor->released) {
        release(actor);
    }
}

static void process_ended(struct daemon_actor *actor, bool own_will)
{
    int32_t most = actor->spec->max_restarts;
    bool restarts = !own_will && !actor->killed && actor->state != DAEMON_ENDING &&
                    !daemon_here.stopping && (most < 0 || actor->incarnation < (uint32_t)most);

    actor->process = NULL;
    actor->conn = NULL;
    if (!restarts) {
        die(actor, TDM_E_ACTOR_DIED, own_will ? "ended in good order" : "signal 9 (killed)");
        return;
    }
    actor->state = DAEMON_RESTARTING;
    actor->incarnation++;
    start(actor);
}

static void on_ended(void *arg)
{
    process_ended(arg, false);
}

static void on_ended_well(void *arg)
{
    process_ended(arg, true);
}

/* The kernel tells the daemon; when it looks is its own affair. */
void daemon_ended(struct daemon_actor *actor, bool own_will)
{
    TDM_ASSERT(tdm__loop_post(daemon_here.loop, own_will ? on_ended_well : on_ended, actor) ==
               TDM_OK);
}

/* ---- calls that arrive ------------------------------------------------------------------ */

static void serve_question(struct tdm__incoming_call *incoming);

/* A handle may be faster than the message that makes its actor. */
static void serve_early(void)
{
    struct daemon_question *question;
    TAILQ_HEAD(, daemon_question) early = TAILQ_HEAD_INITIALIZER(early);

    TAILQ_CONCAT(&early, &daemon_here.early, link);
    while ((question = TAILQ_FIRST(&early)) != NULL) {
        TAILQ_REMOVE(&early, question, link);
        serve_question(question->incoming);
        free(question);
    }
}

static void serve_create(struct tdm__incoming_call *incoming)
{
    struct daemon_actor *actor = calloc(1, sizeof(*actor));
    const tdm_value *value;

    TDM_ASSERT(actor != NULL);
    TDM_ASSERT(tdm__incoming_value(incoming, &value) == TDM_OK);
    TDM_ASSERT(tdm__actor_spec_read(value, &actor->spec) == TDM_OK);
    TAILQ_INIT(&actor->questions);
    TAILQ_INSERT_TAIL(&daemon_here.actors, actor, link);
    ask(actor, OF_LIFE, incoming);
    start(actor);
    serve_early();
}

static void serve_find(struct tdm__incoming_call *incoming)
{
    struct daemon_actor *actor;
    struct tdm__actor_find_message message;

    TDM_ASSERT(tdm__incoming_decode(incoming, tdm__actor_find_table(), &message) == TDM_OK);
    TAILQ_FOREACH(actor, &daemon_here.actors, link)
    {
        if (strcmp(actor->spec->name, message.name) == 0 && actor->state != DAEMON_DEAD) {
            break;
        }
    }
    if (actor == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "no actor has that name");
    } else if (actor->state == DAEMON_ENDING) {
        ask(actor, OF_LIFE, incoming); /* It fails when the actor is dead. */
    } else {
        answer_found(actor, incoming);
    }
}

static void serve_kill(struct daemon_actor *actor, bool may_restart,
                       struct tdm__incoming_call *incoming)
{
    if (actor->state == DAEMON_DEAD || may_restart) {
        tdm__incoming_reply_pack(incoming, "");
    } else {
        ask(actor, OF_END, incoming);
    }
    if (actor->state == DAEMON_DEAD) {
        return;
    }
    if (!may_restart) {
        end_at_once(actor);
    } else if (actor->state != DAEMON_ENDING && actor->process != NULL) {
        sim_process_kill(actor->process);
    }
}

/* Whether it answers a ping decides whether it lives. */
struct ping {
    struct daemon_actor *actor;
    struct tdm__incoming_call *incoming; /* owned */
    uint32_t incarnation;
};

static void on_pinged(void *arg, struct tdm__rpc_reply *reply)
{
    struct ping *ping = arg;
    struct daemon_actor *actor = ping->actor;
    bool same = ping->incarnation == actor->incarnation && actor->state == DAEMON_ALIVE;

    if (actor->state == DAEMON_DEAD) {
        tdm__incoming_fail(ping->incoming, actor->death_status, actor->death);
    } else if (same && reply->status != TDM_E_CLOSED && reply->status != TDM_E_TIMEOUT) {
        answer_described(actor, ping->incoming);
    } else {
        ask(actor, OF_LIFE, ping->incoming);
    }
    free(ping);
}

static void serve_fate(struct daemon_actor *actor, struct tdm__incoming_call *incoming)
{
    struct tdm__rpc_request request = {.method = "worker.ping",
                                       .packed = {"\x90", 1},
                                       .deadline_ms = tdm__incoming_deadline(incoming)};
    struct ping *ping = calloc(1, sizeof(*ping));

    TDM_ASSERT(ping != NULL);
    *ping = (struct ping){actor, incoming, actor->incarnation};
    if (actor->conn == NULL ||
        tdm__conn_call(actor->conn, &request, on_pinged, ping, NULL) != TDM_OK) {
        free(ping);
        ask(actor, OF_LIFE, incoming); /* The actor is just dying. */
    }
}

static void serve_question(struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);
    struct daemon_actor *actor;
    struct tdm__actor_query_message query;

    TDM_ASSERT(tdm__incoming_decode(incoming, tdm__actor_query_table(), &query) == TDM_OK);
    actor = daemon_find(&query.actor);
    if (actor == NULL) {
        ask_in(&daemon_here.early, OF_LIFE, incoming);
        return;
    }
    if (strcmp(method, "actor.release") == 0) {
        tdm__incoming_reply_pack(incoming, "");
        release(actor);
    } else if (strcmp(method, "actor.kill") == 0) {
        serve_kill(actor, query.may_restart, incoming);
    } else if (actor->state == DAEMON_DEAD) {
        tdm__incoming_fail(incoming, actor->death_status, actor->death);
    } else if (actor->state != DAEMON_ALIVE) {
        ask(actor, OF_LIFE, incoming);
    } else if (strcmp(method, "actor.fate") == 0) {
        serve_fate(actor, incoming);
    } else {
        answer_described(actor, incoming);
    }
}

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    const char *method = tdm__incoming_method(incoming);

    (void)arg;
    sim_trace("%s from %s", method, tdm__incoming_peer(incoming)->name);
    if (strcmp(method, "actor.create") == 0) {
        serve_create(incoming);
    } else if (strcmp(method, "actor.find") == 0) {
        serve_find(incoming);
    } else if (strcmp(method, "actor.constructed") == 0) {
        serve_constructed(incoming);
    } else {
        serve_question(incoming);
    }
}

/* A worker's line. */
static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    struct daemon_actor *actor = arg;

    (void)reason;
    (void)detail;
    if (actor->conn == conn) {
        actor->conn = NULL;
    }
}

static void on_accepted(void *arg, struct tdm__conn *conn)
{
    const struct tdm__peer_identity *peer = tdm__conn_peer(conn);
    struct daemon_actor *actor = peer->kind == TDM__PEER_WORKER ? daemon_find(&peer->id) : NULL;

    (void)arg;
    if (actor != NULL && actor->pid == peer->pid && actor->process != NULL) {
        actor->conn = conn;
        tdm__conn_on_closed(conn, on_closed, actor);
    }
}

/* ---- life ------------------------------------------------------------------------------- */

static bool is_stopping(void *arg)
{
    (void)arg;
    return daemon_here.stopping;
}

static void daemon_main(void *arg)
{
    struct tdm__peer_identity self = {.kind = TDM__PEER_DAEMON, .name = "daemon"};

    (void)arg;
    self.id = daemon_here.node;
    self.node = daemon_here.node;
    TDM_ASSERT(tdm__loop_create(&daemon_here.loop) == TDM_OK);
    TDM_ASSERT(tdm__rpc_create(daemon_here.loop, &self, daemon_token, &daemon_here.rpc) == TDM_OK);
    tdm__rpc_set_call_handler(daemon_here.rpc, serve, NULL);
    tdm__rpc_on_accepted(daemon_here.rpc, on_accepted, NULL);
    TDM_ASSERT(tdm__rpc_listen(daemon_here.rpc, daemon_here.address, NULL, 0) == TDM_OK);
    daemon_here.listens = true;
    (void)tdm__loop_run(daemon_here.loop, is_stopping, NULL, TDM__NEVER);
    tdm__rpc_destroy(daemon_here.rpc);
    tdm__loop_destroy(daemon_here.loop);
}

static void on_kill(void *arg)
{
    (void)arg; /* The daemon is never killed. */
}

static bool listens(void *arg)
{
    (void)arg;
    return daemon_here.listens;
}

void daemon_start(const char *directory)
{
    daemon_here = (struct daemon){.last_pid = 100};
    TAILQ_INIT(&daemon_here.actors);
    TAILQ_INIT(&daemon_here.early);
    (void)snprintf(daemon_here.directory, sizeof(daemon_here.directory), "%s", directory);
    (void)snprintf(daemon_here.address, sizeof(daemon_here.address), "unix:%s/d", directory);
    memset(daemon_here.node.bytes, 0xd0, sizeof(daemon_here.node.bytes));
    daemon_here.process = sim_process_create("daemon", daemon_main, on_kill, NULL);
    TDM_ASSERT(sim_run(listens, NULL) == SIM_DONE);
}

void daemon_stop(void)
{
    daemon_here.stopping = true;
}

void daemon_destroy(void)
{
    struct daemon_actor *actor;

    while ((actor = TAILQ_FIRST(&daemon_here.actors)) != NULL) {
        TDM_ASSERT(TAILQ_EMPTY(&actor->questions));
        TAILQ_REMOVE(&daemon_here.actors, actor, link);
        tdm__actor_spec_destroy(actor->spec);
        free(actor);
    }
}
