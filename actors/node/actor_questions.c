/* actor_questions.c - questions about one actor, by id or by name, wherever it lives. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/node/actor_entry.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "scheduler/attempt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_UP_MS = 5000, EARLY_MS = 3000 };

/* "actor.await"    (id, false, creator's node): its description once it lives, or its death
 * "actor.fate"     the same from one who lost the connection to it: does it live at all?
 * "actor.kill"     (id, may it be restarted?): nothing, once it is gone and its name free
 * "actor.why"      (id): why it does not live yet, in words
 * "actor.release"  its last handle is gone; from its creator */
enum question_kind { AWAIT, FATE, KILL, WHY, RELEASE };

struct question {
    struct tdm__node *node;
    struct tdm__incoming *incoming; /* owned */
    enum question_kind kind;
    struct tdm__id actor;
    bool may_restart;
    bool asked_home;
    struct tdm__id creators_node;    /* AWAIT: none if it is not told */
    struct tdm__actor_record record; /* where it lives, by the store */
};

static void question_ask(struct question *question);

static void question_fail(struct question *question, tdm_status status, const char *detail)
{
    tdm__incoming_fail(question->incoming, status, detail);
    free(question);
}

static void question_done(struct question *question)
{
    tdm__incoming_reply_pack(question->incoming, "");
    free(question);
}

/* ---- here ------------------------------------------------------------------------------- */

static void kill_here(struct actor_entry *entry, struct question *question)
{
    if (question->may_restart) {
        tdm__actor_entry_kill_process(entry);
        question_done(question);
        return;
    }
    tdm__actor_entry_wait(entry, WAITS_FOR_END, question->incoming);
    free(question);
    tdm__actor_entry_end(entry, true);
}

/* Only its creator counts its handles; another node's daemon asks for one there. */
static void release_here(struct actor_entry *entry, struct question *question)
{
    const struct tdm__identity *peer = tdm__incoming_peer(question->incoming);

    if (!entry->spec->detached &&
        (peer->kind == TDM__PEER_DAEMON || tdm__id_equal(&peer->id, &entry->spec->creator))) {
        tdm__actor_entry_release(entry);
    }
    question_done(question);
}

static const char *why_not_alive(const struct actor_entry *entry, char *text, size_t room)
{
    const char *trouble = tdm__node_store_trouble(entry->node);

    switch (entry->lifecycle.state) {
    case ACTOR_NEW:
    case ACTOR_PLACING:
    case ACTOR_FINDING_HOLDER:
    case ACTOR_WAITING:
        if (trouble[0] != '\0') {
            (void)snprintf(text, room, "it waits for a place: %s", trouble);
            return text;
        }
        return entry->waits_for[0] != '\0' ? entry->waits_for : "it waits for a place";
    case ACTOR_STARTING:
    case ACTOR_CONSTRUCTOR_FAILED:
        return "its constructor has not returned";
    case ACTOR_RESTARTING:
        return "it died and is being restarted";
    case ACTOR_ENDING:
    case ACTOR_ENDED:
        return "it is ending";
    case ACTOR_ALIVE:
    case ACTOR_REMOTE_STARTING:
    case ACTOR_REMOTE_UNSURE:
    case ACTOR_REMOTE:
    case ACTOR_REMOTE_REFUSED:
    case ACTOR_ENDED_ELSEWHERE:
        break;
    }
    return "it lives";
}

static void answer_here(struct actor_entry *entry, struct question *question)
{
    char text[512];

    switch (question->kind) {
    case AWAIT:
    case FATE:
        if (entry->lifecycle.state != ACTOR_ALIVE) {
            tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, question->incoming);
        } else if (question->kind == AWAIT) {
            tdm__actor_entry_answer_described(entry, question->incoming);
        } else {
            tdm__actor_entry_ask(entry, question->incoming);
        }
        free(question);
        break;
    case KILL:
        kill_here(entry, question);
        break;
    case WHY:
        tdm__incoming_reply_pack(question->incoming, "s",
                                 why_not_alive(entry, text, sizeof(text)));
        free(question);
        break;
    case RELEASE:
        release_here(entry, question);
        break;
    }
}

static void answer_dead(const struct tombstone *tombstone, struct question *question)
{
    if (question->kind == KILL || question->kind == RELEASE) {
        question_done(question);
    } else {
        question_fail(question, tombstone->status, tombstone->text);
    }
}

/* ---- elsewhere -------------------------------------------------------------------------- */

static void pass_question(struct question *question, const struct tdm__id *other);

/* Its node is lost: its home, if that is another one, may make it anew. */
static void on_answer(void *arg, struct tdm__reply *reply)
{
    struct question *question = arg;
    struct tdm__node *node = question->node;
    struct actor_entry *entry =
        node->actors == NULL ? NULL : tdm__actor_entry_find(node, &question->actor);

    if (reply->status == TDM_OK) {
        tdm__incoming_reply(question->incoming, reply->packed, NULL, 0);
        free(question);
    } else if (reply->status == TDM_E_NODE_LOST && entry != NULL &&
               (!tdm__actor_state_is_remote(entry->lifecycle.state) || question->kind == KILL ||
                tdm__actor_entry_outlives_node(entry))) {
        if (question->kind == KILL) {
            kill_here(entry, question);
        } else {
            tdm__actor_entry_wait(entry, WAITS_FOR_LIFE, question->incoming);
            free(question);
        }
    } else if (reply->status == TDM_E_NODE_LOST && question->record.returns &&
               !question->asked_home &&
               !tdm__id_equal(&question->record.home, &node->record.id)) {
        question->asked_home = true;
        pass_question(question, &question->record.home);
    } else {
        question_fail(question, reply->status, reply->detail);
    }
}

static const char *method_of(enum question_kind kind)
{
    static const char *const methods[] = {"actor.await", "actor.fate", "actor.kill",
                                          "actor.why", "actor.release"};

    return methods[kind];
}

static void pass_question(struct question *question, const struct tdm__id *other)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        question_fail(question, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm_write_array(writer, 2);
    tdm_write_bytes(writer, question->actor.bytes, sizeof(question->actor.bytes));
    tdm_write_bool(writer, question->may_restart);
    tdm__node_forward(question->node, other, method_of(question->kind),
                      tdm_writer_bytes(writer), tdm__incoming_deadline(question->incoming),
                      on_answer, question);
    tdm_writer_destroy(writer);
}

/* ---- by the store ----------------------------------------------------------------------- */

/* Reads one actor's record by its key, which lies behind `arg`'s beginning. */
static tdm_status look_up_body(void *arg, struct tdm__txn *txn)
{
    struct question *question = arg;

    if (tdm__txn_count(txn) == 0) {
        return tdm__fail(TDM_E_ACTOR_DIED, "the actor has ended, and how is no longer known");
    }
    return tdm__actor_record_read(tdm__txn_at(txn, 0), &question->record);
}

/* The start of the actor is on its way here, from the node that found this place for it; or its
 * creation, from a process whose handle was faster. */
static void wait_for_start(struct question *question)
{
    struct early_question *early = calloc(1, sizeof(*early));

    if (early == NULL) {
        question_fail(question, TDM_E_NOMEM, "a question");
        return;
    }
    *early = (struct early_question){.next = question->node->actors->early,
                                     .actor = question->actor,
                                     .incoming = question->incoming,
                                     .deadline_ms = tdm__deadline_in(EARLY_MS)};
    question->node->actors->early = early;
    free(question);
}

/* Nobody has heard of it yet. */
static void await_creation(struct question *question)
{
    const struct tdm__id *other = &question->creators_node;

    if (tdm__id_is_none(other) || tdm__id_equal(other, &question->node->record.id)) {
        wait_for_start(question);
    } else {
        pass_question(question, other);
    }
}

static void looked_up(void *arg, tdm_status status, const char *detail)
{
    struct question *question = arg;
    struct tdm__node *node = question->node;

    if (status == TDM_E_ACTOR_DIED && question->kind == AWAIT && node->actors != NULL) {
        await_creation(question);
    } else if (status == TDM_E_ACTOR_DIED &&
               (question->kind == KILL || question->kind == RELEASE)) {
        question_done(question); /* long dead */
    } else if (status != TDM_OK || node->actors == NULL) {
        question_fail(question, status == TDM_OK ? TDM_E_CANCELED : status, detail);
    } else if (!tdm__id_equal(&question->record.node, &node->record.id)) {
        pass_question(question, &question->record.node);
    } else if (tdm__actor_entry_find(node, &question->actor) != NULL ||
               tdm__tombstone_find(node, &question->actor) != NULL) {
        question_ask(question);
    } else {
        wait_for_start(question);
    }
}

static void ask_store(struct question *question)
{
    const struct tdm__node *node = question->node;
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", &question->actor, key)};

    if (tdm__attempt_run(node->store, patterns, 1, tdm__deadline_in(LOOK_UP_MS), look_up_body,
                         looked_up, question) != TDM_OK) {
        question_fail(question, TDM_E_NOMEM, tdm_error_detail());
    }
}

static void question_ask(struct question *question)
{
    struct actor_entry *entry = tdm__actor_entry_find(question->node, &question->actor);
    const struct tombstone *tombstone = tdm__tombstone_find(question->node, &question->actor);

    if (entry != NULL && entry->lifecycle.state == ACTOR_REMOTE_STARTING &&
        question->kind == RELEASE) {
        release_here(entry, question);
    } else if (entry != NULL && tdm__actor_state_is_remote(entry->lifecycle.state)) {
        pass_question(question, &entry->record.node);
    } else if (entry != NULL) {
        answer_here(entry, question);
    } else if (tombstone != NULL) {
        answer_dead(tombstone, question);
    } else {
        ask_store(question);
    }
}

static enum question_kind kind_of(const char *method)
{
    enum question_kind kind = AWAIT;

    while (kind < RELEASE && strcmp(method, method_of(kind)) != 0) {
        kind++;
    }
    return kind;
}

void tdm__node_serve_question(struct tdm__node *node, struct tdm__incoming *incoming)
{
    struct question *question = calloc(1, sizeof(*question));
    const tdm_value *value;
    struct tdm_bytes id;

    if (question == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "a question");
        return;
    }
    *question = (struct question){
        .node = node, .incoming = incoming, .kind = kind_of(tdm__incoming_method(incoming))};
    if (tdm__incoming_value(incoming, &value) != TDM_OK) {
        question_fail(question, TDM_E_PROTOCOL, tdm_error_detail());
        return;
    }
    id = tdm_value_bytes(tdm_value_at(value, 0));
    if (id.size_bytes != sizeof(question->actor.bytes)) {
        question_fail(question, TDM_E_PROTOCOL, "a question about an actor begins with its id");
        return;
    }
    memcpy(question->actor.bytes, id.data, id.size_bytes);
    question->may_restart = tdm_value_bool(tdm_value_at(value, 1), 0) != 0;
    id = tdm_value_bytes(tdm_value_at(value, 2));
    if (id.size_bytes == sizeof(question->creators_node.bytes)) {
        memcpy(question->creators_node.bytes, id.data, id.size_bytes);
    }
    question_ask(question);
}

void tdm__node_early_questions(struct tdm__node *node, int64_t now_ms)
{
    struct early_question *early = node->actors->early;

    node->actors->early = NULL;
    while (early != NULL) {
        struct early_question *next = early->next;

        if (tdm__actor_entry_find(node, &early->actor) != NULL) {
            tdm__node_serve_question(node, early->incoming);
            free(early);
        } else if (early->deadline_ms <= now_ms) {
            tdm__incoming_fail(early->incoming, TDM_E_ACTOR_DIED,
                               "the actor has ended, and how is no longer known");
            free(early);
        } else {
            early->next = node->actors->early;
            node->actors->early = early;
        }
        early = next;
    }
}

/* ---- by name ---------------------------------------------------------------------------- */

/* Asked by a process, or by an entry of this node that wants whoever has its name. */
struct finding {
    struct tdm__node *node;
    struct tdm__incoming *incoming; /* owned; NULL: an entry asks */
    struct tdm__id entry;
    char name[2 * TDM__ACTOR_NAME_BYTES];
    bool asked_home;
    struct tdm__actor_record record;
    const struct tdm__reply *reply; /* borrowed, while it is passed on */
};

static struct actor_entry *finding_entry(const struct finding *finding)
{
    return finding->node->actors == NULL
               ? NULL
               : tdm__actor_entry_find(finding->node, &finding->entry);
}

/* answer: (id, class, description) */
static void answer_found(void *arg, struct tdm__incoming *incoming)
{
    const struct finding *finding = arg;
    char id[TDM__ID_TEXT_BYTES];

    tdm__incoming_reply_pack(incoming, "ssp", tdm__id_text(&finding->record.actor, id),
                             finding->record.class_name, &finding->reply->packed);
}

static void finding_succeeds(struct finding *finding)
{
    struct actor_entry *entry;

    if (finding->incoming != NULL) {
        answer_found(finding, finding->incoming);
    } else if ((entry = finding_entry(finding)) != NULL) {
        tdm__actor_entry_answer_life(entry, answer_found, finding);
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_FOUND});
    }
    free(finding);
}

static void finding_fail(struct finding *finding, tdm_status status, const char *detail)
{
    struct actor_entry *entry;

    if (finding->incoming != NULL) {
        tdm__incoming_fail(finding->incoming, status, detail);
    } else if ((entry = finding_entry(finding)) != NULL) {
        tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_HOLDER_NOT_FOUND,
                                                            .status = status,
                                                            .detail = detail});
    }
    free(finding);
}

static int64_t finding_deadline(const struct finding *finding)
{
    return finding->incoming == NULL ? TDM__NEVER : tdm__incoming_deadline(finding->incoming);
}

static void on_description(void *arg, struct tdm__reply *reply)
{
    struct finding *finding = arg;
    const struct tdm__actor_record *record = &finding->record;
    char detail[TDM__ERROR_DETAIL_BYTES];

    if (reply->status == TDM_OK) {
        finding->reply = reply;
        finding_succeeds(finding);
    } else if (reply->status == TDM_E_NODE_LOST && record->returns && !finding->asked_home) {
        finding->asked_home = true;
        tdm__node_ask_about(finding->node, &record->home, "actor.await", &record->actor,
                            finding_deadline(finding), on_description, finding);
    } else if (reply->status == TDM_E_ACTOR_DIED) { /* its name is just on its way back */
        (void)snprintf(detail, sizeof(detail), "no actor is called %s any more: %s",
                       finding->name, reply->detail);
        finding_fail(finding, TDM_E_NOT_FOUND, detail);
    } else {
        finding_fail(finding, reply->status, reply->detail);
    }
}

static tdm_status name_body(void *arg, struct tdm__txn *txn)
{
    struct finding *finding = arg;

    if (tdm__txn_count(txn) == 0) {
        return tdm__fail(TDM_E_NOT_FOUND, "no actor is called %s", finding->name);
    }
    return tdm__actor_record_read(tdm__txn_at(txn, 0), &finding->record);
}

static void name_found(void *arg, tdm_status status, const char *detail)
{
    struct finding *finding = arg;

    if (status != TDM_OK) {
        finding_fail(finding, status, detail);
        return;
    }
    tdm__node_ask_about(finding->node, &finding->record.node, "actor.await",
                        &finding->record.actor, finding_deadline(finding), on_description,
                        finding);
}

/* Of `wanted` only who asks, and where. */
static void find_by_name(const struct finding *wanted, const char *name_space, const char *name)
{
    struct finding *finding = malloc(sizeof(*finding));
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {key};

    TDM_ASSERT(finding != NULL);
    *finding = *wanted;
    (void)snprintf(finding->name, sizeof(finding->name), "%s in name space %s", name,
                   name_space);
    (void)snprintf(key, sizeof(key), "name/%s/%s", name_space, name);
    if (tdm__attempt_run(finding->node->store, patterns, 1, tdm__deadline_in(LOOK_UP_MS),
                         name_body, name_found, finding) != TDM_OK) {
        finding_fail(finding, TDM_E_INVAL, tdm_error_detail());
    }
}

void tdm__actor_entry_give_holder(struct actor_entry *entry)
{
    struct finding finding = {.node = entry->node, .entry = entry->spec->id};

    find_by_name(&finding, entry->spec->name_space, entry->spec->name);
}

void tdm__node_serve_find(struct tdm__node *node, struct tdm__incoming *incoming)
{
    const char *name_space;
    const char *name;
    tdm_status status = tdm__incoming_unpack(incoming, "ss", &name_space, &name);

    if (status == TDM_OK &&
        (name == NULL || strlen(name) >= TDM__ACTOR_NAME_BYTES || name_space == NULL ||
         strlen(name_space) >= TDM__ACTOR_NAME_BYTES)) {
        status = tdm__fail(TDM_E_INVAL, "a name of an actor has 1 to %d bytes",
                           TDM__ACTOR_NAME_BYTES - 1);
    }
    if (status != TDM_OK) {
        tdm__incoming_fail(incoming, status, tdm_error_detail());
        return;
    }
    find_by_name(&(struct finding){.node = node, .incoming = incoming}, name_space, name);
}
