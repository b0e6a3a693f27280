/* actor_life.c - an actor on its node: placed, started, alive, ended, remembered. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/bootstrap.h"
#include "actors/node/actor_entry.h"
#include "actors/node/death.h"
#include "actors/node/state.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICES_VARIABLE "CUDA_VISIBLE_DEVICES"
enum { PLACE_DEADLINE_MS = 10000, LEAVE_MS = 5000 };

/* ---- the table -------------------------------------------------------------------------- */

struct actor_entry *tdm__actor_entry_find(struct tdm__node *node, const struct tdm__id *id)
{
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (tdm__id_equal(&entry->spec->id, id)) {
            return entry;
        }
    }
    return NULL;
}

const struct tombstone *tdm__tombstone_find(struct tdm__node *node, const struct tdm__id *id)
{
    for (uint32_t i = 0; i < TOMBSTONES_MAX; i++) {
        if (tdm__id_equal(&node->actors->tombstones[i].id, id)) {
            return &node->actors->tombstones[i];
        }
    }
    return NULL;
}

struct actor_entry *tdm__actor_entry_add(struct tdm__node *node, struct tdm__actor_spec *spec,
                                         enum actor_state state)
{
    struct actor_entry *entry = calloc(1, sizeof(*entry));

    if (entry == NULL) {
        return NULL;
    }
    entry->node = node;
    entry->state = state;
    entry->spec = spec;
    (void)tdm__actor_label(spec->name, spec->class_name, &spec->id, entry->label,
                           sizeof(entry->label));
    entry->next = node->actors->all;
    node->actors->all = entry;
    return entry;
}

void tdm__actor_entry_wait(struct actor_entry *entry, enum waiter_kind kind,
                           bool end_is_success, struct tdm__incoming *incoming)
{
    struct waiter *waiter = calloc(1, sizeof(*waiter));

    if (waiter == NULL) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, "one more who waits for an actor");
        return;
    }
    *waiter = (struct waiter){entry->waiters, kind, incoming, end_is_success};
    entry->waiters = waiter;
}

/* An end is an end when the places are free again, too. */
static bool anything_matches(struct tdm__node *node, const struct ender *ender)
{
    if (node->actors->releases != NULL) {
        return true;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        if (ender->matches(entry->spec, &ender->key)) {
            return true;
        }
    }
    return false;
}

static void tell_enders(struct tdm__node *node)
{
    struct ender **place = &node->actors->enders;

    while (*place != NULL) {
        struct ender *ender = *place;

        if (anything_matches(node, ender)) {
            place = &ender->next;
            continue;
        }
        *place = ender->next;
        ender->fn(ender->arg);
        free(ender);
    }
}

static void answer_waiters(struct actor_entry *entry, tdm_status status, const char *text)
{
    while (entry->waiters != NULL) {
        struct waiter *waiter = entry->waiters;

        entry->waiters = waiter->next;
        if (waiter->end_is_success) {
            tdm__incoming_reply_pack(waiter->incoming, "");
        } else {
            tdm__incoming_fail(waiter->incoming, status, text);
        }
        free(waiter);
    }
}

/* Takes it out of the table; whoever waits reads `text`. */
static void entry_remove(struct actor_entry *entry, tdm_status status, const char *text)
{
    struct tdm__node *node = entry->node;
    struct actor_entry **place = &node->actors->all;
    struct tombstone *tombstone = &node->actors->tombstones[node->actors->tombstones_next];

    while (*place != entry) {
        place = &(*place)->next;
    }
    *place = entry->next;
    tdm__node_state_ended(node, entry, text);
    tombstone->id = entry->spec->id;
    tombstone->status = status;
    free(tombstone->text);
    tombstone->text = strdup(text);
    TDM_ASSERT(tombstone->text != NULL);
    node->actors->tombstones_next = (node->actors->tombstones_next + 1) % TOMBSTONES_MAX;
    answer_waiters(entry, status, text);
    tdm__timer_destroy(entry->end_timer);
    tdm__actor_spec_destroy(entry->spec);
    free(entry);
    tell_enders(node);
}

/* ---- placing ---------------------------------------------------------------------------- */

static void start_on_other(struct actor_entry *entry, const struct tdm__reserved *reserved);

static void make_record(struct actor_entry *entry, const struct tdm__reserve_actor *request,
                        const struct tdm__reserved *reserved)
{
    entry->record = (struct tdm__actor_record){.actor = entry->spec->id,
                                               .node = reserved->node.id,
                                               .group = entry->spec->group,
                                               .bundle = entry->spec->bundle,
                                               .grant = reserved->grant};
    memcpy(entry->record.name_key, request->name_key, sizeof(entry->record.name_key));
    memcpy(entry->record.class_name, entry->spec->class_name, sizeof(entry->record.class_name));
}

static void make_request(const struct actor_entry *entry, struct tdm__reserve_actor *request)
{
    const struct tdm__actor_spec *spec = entry->spec;

    *request = (struct tdm__reserve_actor){.actor = spec->id,
                                           .wish = spec->wish,
                                           .group = spec->group,
                                           .bundle = spec->bundle,
                                           .returns = spec->max_restarts != 0 &&
                                                      tdm__id_is_none(&spec->group)};
    request->wish.home = entry->node->record.id;
    if (spec->name[0] != '\0') {
        (void)snprintf(request->name_key, sizeof(request->name_key), "name/%s/%s",
                       spec->name_space, spec->name);
    }
    memcpy(request->class_name, spec->class_name, sizeof(request->class_name));
}

/* A place on its way back into the store.  Kept until the store has it: what is not given back
 * is lost to all. */
struct release {
    struct release *next;
    struct tdm__node *node; /* borrowed */
    struct tdm__actor_record record;
};

static void release_send(struct release *release);

static void release_over(struct release *release)
{
    struct tdm__node *node = release->node;
    struct release **place = &node->actors->releases;

    while (*place != release) {
        place = &(*place)->next;
    }
    *place = release->next;
    free(release);
    tdm__node_actors_retry(node);
    tdm__node_groups_retry(node);
    tell_enders(node);
}

static void given_back(void *arg, tdm_status status, const char *detail)
{
    struct release *release = arg;

    if (status != TDM_OK) {
        tdm__log(TDM__WARN, "actors", "giving a place back: %s: %s", tdm_strerror(status),
                 detail);
    }
    if ((status == TDM_E_STORE || status == TDM_E_TIMEOUT) && !release->node->stopping) {
        release_send(release);
    } else {
        release_over(release);
    }
}

static void release_send(struct release *release)
{
    const struct tdm__node *node = release->node;

    if (node->store == NULL) {
        release_over(release); /* the node stops; its lease gives back what it held */
    } else if (tdm__release_actor(node->loop, node->store, &release->record,
                                  tdm__deadline_in(PLACE_DEADLINE_MS), given_back,
                                  release) != TDM_OK) {
        tdm__log(TDM__ERROR, "actors", "a place is not given back: %s", tdm_error_detail());
        release_over(release);
    }
}

static void give_place_back(struct actor_entry *entry)
{
    struct release *release = calloc(1, sizeof(*release));

    if (release == NULL) {
        tdm__log(TDM__ERROR, "actors", "out of memory: a place is not given back");
        return;
    }
    *release = (struct release){entry->node->actors->releases, entry->node, entry->record};
    entry->node->actors->releases = release;
    release_send(release);
}

/* The actor that had the name is dead, and only the store does not know it yet. */
static bool name_is_returning(const struct tdm__node *node, const char *name_key)
{
    for (const struct release *release = node->actors->releases;
         release != NULL && name_key[0] != '\0'; release = release->next) {
        if (strcmp(release->record.name_key, name_key) == 0) {
            return true;
        }
    }
    return false;
}

static void placed(void *arg, tdm_status status, const char *detail,
                   const struct tdm__reserved *reserved)
{
    struct actor_entry *entry = arg;
    struct tdm__reserve_actor request;
    char text[512];

    if (status == TDM_E_AGAIN && !entry->unwanted) {
        entry->state = ACTOR_WAITING;
        tdm__log(TDM__INFO, "actors", "actor %s waits: %s", entry->label, detail);
        return;
    }
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "actor %s cannot be made: %s", entry->label,
                       entry->unwanted ? "it was ended before it had a place" : detail);
        entry_remove(entry, entry->unwanted ? TDM_E_ACTOR_DIED : status, text);
        return;
    }
    make_request(entry, &request);
    make_record(entry, &request, reserved);
    if (entry->unwanted) {
        give_place_back(entry);
        entry_remove(entry, TDM_E_ACTOR_DIED, "it was ended before it was started");
    } else if (tdm__id_equal(&reserved->node.id, &entry->node->record.id)) {
        tdm__actor_entry_start(entry, &entry->record);
    } else {
        start_on_other(entry, reserved);
    }
}

void tdm__actor_entry_place(struct actor_entry *entry)
{
    struct tdm__node *node = entry->node;
    struct tdm__reserve_actor request;

    make_request(entry, &request);
    if (name_is_returning(node, request.name_key)) {
        entry->state = ACTOR_WAITING;
        return;
    }
    entry->state = ACTOR_PLACING;
    if (tdm__reserve_actor(node->loop, node->store, &request,
                           tdm__deadline_in(PLACE_DEADLINE_MS), placed, entry) != TDM_OK) {
        entry_remove(entry, TDM_E_NOMEM, tdm_error_detail());
    }
}

void tdm__node_actors_retry(struct tdm__node *node)
{
    struct actor_entry *next;

    if (node->stopping) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (entry->state == ACTOR_WAITING) {
            tdm__actor_entry_place(entry);
        }
    }
}

/* ---- on another node -------------------------------------------------------------------- */

static void pass_on(struct waiter *waiter, struct tdm__reply *reply)
{
    if (reply->status == TDM_OK) {
        tdm__incoming_reply(waiter->incoming, reply->packed, NULL, 0);
    } else {
        tdm__incoming_fail(waiter->incoming, reply->status, reply->detail);
    }
}

static bool is_unreachable(tdm_status status)
{
    return status == TDM_E_NODE_LOST || status == TDM_E_STORE;
}

static void answer_for_other(struct actor_entry *entry, struct tdm__reply *reply)
{
    while (entry->waiters != NULL) {
        struct waiter *waiter = entry->waiters;

        entry->waiters = waiter->next;
        pass_on(waiter, reply);
        free(waiter);
    }
}

static void on_started_there(void *arg, struct tdm__reply *reply)
{
    struct actor_entry *entry = arg;

    entry->start_pending = false;
    if (reply->status != TDM_OK) {
        give_place_back(entry); /* the other node did, if it could */
    }
    if (is_unreachable(reply->status) && !entry->unwanted && !entry->node->stopping) {
        tdm__log(TDM__INFO, "actors", "actor %s waits: %s", entry->label, reply->detail);
        entry->state = ACTOR_WAITING; /* for a node that is there */
        return;
    }
    answer_for_other(entry, reply);
    if (reply->status != TDM_OK && !entry->end_pending) {
        entry_remove(entry, reply->status, reply->detail);
    } else if (entry->unwanted) {
        tdm__actor_entry_end(entry, true);
    }
}

static void write_record(tdm_writer *writer, const struct actor_entry *entry)
{
    tdm_write_array(writer, 3);
    tdm__actor_spec_write(writer, entry->spec);
    tdm__grant_write(writer, &entry->record.grant);
    tdm_write_string(writer, entry->record.name_key);
}

static void start_on_other(struct actor_entry *entry, const struct tdm__reserved *reserved)
{
    tdm_writer *writer;

    entry->state = ACTOR_REMOTE;
    if (tdm_writer_create(&writer) != TDM_OK) {
        give_place_back(entry);
        entry_remove(entry, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    write_record(writer, entry);
    entry->start_pending = true;
    tdm__node_forward(entry->node, &reserved->node.id, "actor.start", tdm_writer_bytes(writer),
                      TDM__NEVER, on_started_there, entry);
    tdm_writer_destroy(writer);
}

/* The answer to the start may still be under way: whoever comes last removes the entry. */
static void on_ended_there(void *arg, struct tdm__reply *reply)
{
    struct actor_entry *entry = arg;

    entry->end_pending = false;
    if (is_unreachable(reply->status)) {
        give_place_back(entry); /* nobody else will */
    }
    if (!entry->start_pending) {
        entry_remove(entry, TDM_E_ACTOR_DIED,
                     reply->status == TDM_OK ? "ended with its creator" : reply->detail);
    }
}

static void end_on_other(struct actor_entry *entry)
{
    entry->unwanted = true;
    if (!entry->end_pending) {
        entry->end_pending = true;
        tdm__node_ask_about(entry->node, &entry->record.node, "actor.kill", &entry->spec->id,
                            tdm__deadline_in(LEAVE_MS), on_ended_there, entry);
    }
}

/* ---- starting --------------------------------------------------------------------------- */

static void on_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status);

/* The `index`-th of the devices that this daemon itself may see: "GPU-3f2a" of
 * "GPU-77,GPU-3f2a". By its number where there is no such list. */
static void write_device(uint32_t index, char *text, size_t room)
{
    const char *visible = getenv(DEVICES_VARIABLE);

    for (uint32_t i = 0; visible != NULL && *visible != '\0'; i++) {
        size_t length = strcspn(visible, ",");

        if (i == index) {
            (void)snprintf(text, room, "%.*s", (int)length, visible);
            return;
        }
        visible += length + (visible[length] == ',' ? 1 : 0);
    }
    (void)snprintf(text, room, "%u", index);
}

/* "CUDA_VISIBLE_DEVICES=0,2": what the actor was given, and nothing for one without GPUs. */
static void write_devices(const struct tdm__grant *grant, char *text, size_t room)
{
    size_t used = (size_t)snprintf(text, room, DEVICES_VARIABLE "=");

    for (uint32_t i = 0; i < grant->gpus_count; i++) {
        char device[64];
        int added;

        write_device(grant->gpu_indices[i], device, sizeof(device));
        added = snprintf(text + used, room - used, "%s%s", i == 0 ? "" : ",", device);
        used += (size_t)added < room - used ? (size_t)added : 0;
    }
}

static tdm_status start_process(struct actor_entry *entry)
{
    char devices[1280];
    const struct tdm__node *node = entry->node;
    struct tdm__bootstrap bootstrap = {.node = node->record.id,
                                       .gpus_count = entry->record.grant.gpus_count,
                                       .spec = entry->spec};
    int fd;
    tdm_status status;

    memcpy(bootstrap.token, node->token, sizeof(bootstrap.token));
    memcpy(bootstrap.node_name, node->record.name, sizeof(bootstrap.node_name));
    (void)snprintf(bootstrap.daemon_address, sizeof(bootstrap.daemon_address), "%s",
                   node->record.unix_address);
    memcpy(bootstrap.directory, node->directory, sizeof(bootstrap.directory));
    memcpy(bootstrap.listen_host, node->listen_host, sizeof(bootstrap.listen_host));
    for (uint32_t i = 0; i < bootstrap.gpus_count; i++) {
        bootstrap.gpu_indices[i] = entry->record.grant.gpu_indices[i];
    }
    TDM_TRY(tdm__bootstrap_write(&bootstrap, &fd));
    write_devices(&entry->record.grant, devices, sizeof(devices));
    status = tdm__workers_start(node->workers, entry->spec,
                                entry->spec->keep_visible_devices ? NULL : devices, fd,
                                on_worker_ended, entry, &entry->worker);
    (void)close(fd);
    return status;
}

void tdm__actor_entry_start(struct actor_entry *entry, const struct tdm__actor_record *record)
{
    char text[512];
    tdm_status status;

    entry->record = *record;
    entry->state = ACTOR_STARTING;
    status = start_process(entry);
    if (status != TDM_OK) {
        (void)snprintf(text, sizeof(text), "actor %s cannot be started on node %s: %s",
                       entry->label, entry->node->record.name, tdm_error_detail());
        give_place_back(entry);
        entry_remove(entry, TDM_E_ACTOR_DIED, text);
    }
}

void tdm__actor_entry_describe(const struct actor_entry *entry, tdm_writer *writer)
{
    char node_id[TDM__ID_TEXT_BYTES];

    tdm_write_array(writer, 5);
    tdm_write_int(writer, entry->pid);
    tdm_write_string(writer, tdm__id_text(&entry->node->record.id, node_id));
    tdm_write_array(writer, entry->record.grant.gpus_count);
    for (uint32_t i = 0; i < entry->record.grant.gpus_count; i++) {
        tdm_write_uint(writer, entry->record.grant.gpu_indices[i]);
    }
    tdm_write_string(writer, entry->unix_address);
    tdm_write_string(writer, entry->tcp_address[0] == '\0' ? NULL : entry->tcp_address);
}

void tdm__actor_entry_answer_described(const struct actor_entry *entry,
                                       struct tdm__incoming *incoming)
{
    tdm_writer *writer;

    if (tdm_writer_create(&writer) != TDM_OK) {
        tdm__incoming_fail(incoming, TDM_E_NOMEM, tdm_error_detail());
        return;
    }
    tdm__actor_entry_describe(entry, writer);
    tdm__incoming_reply(incoming, tdm_writer_bytes(writer), NULL, 0);
    tdm_writer_destroy(writer);
}

static void on_end_timer(void *arg)
{
    struct actor_entry *entry = arg;

    if (entry->worker != NULL) {
        tdm__log(TDM__INFO, "actors", "actor %s did not leave within %d ms: killing pid %d",
                 entry->label, (int)LEAVE_MS, (int)entry->worker->pid);
        tdm__worker_kill(entry->worker);
    }
}

/* Its process ends by itself now, or is killed when it takes too long. */
static void leaves_soon(struct actor_entry *entry)
{
    tdm__worker_may_leave(entry->worker);
    if (entry->end_timer == NULL &&
        (tdm__timer_create(entry->node->loop, on_end_timer, entry, &entry->end_timer) !=
             TDM_OK ||
         tdm__timer_set(entry->end_timer, tdm__deadline_in(LEAVE_MS)) != TDM_OK)) {
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_constructed(struct actor_entry *entry, int64_t pid, tdm_status status,
                                  const char *detail, const char *unix_address,
                                  const char *tcp_address)
{
    struct waiter **place = &entry->waiters;

    entry->pid = pid;
    if (status != TDM_OK) {
        (void)snprintf(entry->failure, sizeof(entry->failure), "%s: %s", tdm_strerror(status),
                       detail);
        leaves_soon(entry);
        return;
    }
    (void)snprintf(entry->unix_address, sizeof(entry->unix_address), "%s", unix_address);
    (void)snprintf(entry->tcp_address, sizeof(entry->tcp_address), "%s",
                   tcp_address == NULL ? "" : tcp_address);
    if (entry->state == ACTOR_STARTING) {
        entry->state = ACTOR_ALIVE;
    }
    while (*place != NULL) {
        struct waiter *waiter = *place;

        if (waiter->kind != WAITS_FOR_LIFE) {
            place = &waiter->next;
            continue;
        }
        *place = waiter->next;
        tdm__actor_entry_answer_described(entry, waiter->incoming);
        free(waiter);
    }
}

/* ---- ending ----------------------------------------------------------------------------- */

static bool is_child(const struct tdm__actor_spec *spec, const void *key)
{
    return !spec->detached && tdm__id_equal(&spec->creator, key);
}

static void on_worker_ended(void *arg, struct tdm__worker_process *worker, int wait_status)
{
    struct actor_entry *entry = arg;
    struct tdm__node *node = entry->node;
    struct tdm__identity gone = {.kind = TDM__PEER_WORKER,
                                 .id = entry->spec->id,
                                 .node = node->record.id,
                                 .pid = worker->pid};
    const struct tdm__death death = {.label = entry->label,
                                     .node_name = node->record.name,
                                     .pid = worker->pid,
                                     .wait_status = wait_status,
                                     .failure = entry->failure,
                                     .was_wanted = entry->state == ACTOR_ENDING,
                                     .oom = &node->oom,
                                     .output = worker->output};
    char text[TDM__DEATH_BYTES];

    tdm__death_write(&death, text);
    tdm__log(entry->state == ACTOR_ENDING ? TDM__DEBUG : TDM__INFO, "actors", "%s", text);
    (void)snprintf(gone.name, sizeof(gone.name), "%.63s", entry->label);
    entry->worker = NULL;
    if (entry->unix_address[0] != '\0') {
        (void)unlink(entry->unix_address + strlen("unix:"));
    }
    tdm__services_peer_gone(node->services, &gone);
    tdm__node_actors_end(node, is_child, &gone.id, true, NULL, NULL);
    tdm__node_groups_creator_gone(node, &gone.id);
    if (!node->stopping) {
        tdm__workers_sweep_orphans(node->workers,
                                   node->spare_child == NULL ? 0 : node->spare_child());
    }
    give_place_back(entry);
    entry_remove(entry, TDM_E_ACTOR_DIED, text);
}

static void ask_to_leave(struct actor_entry *entry)
{
    struct tdm__request request = {.method = "worker.exit",
                                   .packed = {"\x90", 1},
                                   .deadline_ms = tdm__deadline_in(LEAVE_MS)};

    leaves_soon(entry);
    if (entry->worker->conn == NULL ||
        tdm__conn_call(entry->worker->conn, &request, NULL, NULL, NULL) != TDM_OK) {
        tdm__worker_kill(entry->worker);
    }
}

void tdm__actor_entry_end(struct actor_entry *entry, bool at_once)
{
    switch (entry->state) {
    case ACTOR_PLACING:
        entry->unwanted = true;
        break;
    case ACTOR_WAITING:
        entry_remove(entry, TDM_E_ACTOR_DIED, "it was ended before it had a place");
        break;
    case ACTOR_REMOTE:
        end_on_other(entry);
        break;
    case ACTOR_STARTING:
    case ACTOR_ALIVE:
        entry->state = ACTOR_ENDING;
        if (at_once) {
            tdm__worker_kill(entry->worker);
        } else {
            ask_to_leave(entry);
        }
        break;
    case ACTOR_ENDING:
        if (at_once && entry->worker != NULL) {
            tdm__worker_kill(entry->worker);
        }
        break;
    }
}

void tdm__node_actors_end(struct tdm__node *node,
                          bool (*matches)(const struct tdm__actor_spec *spec, const void *key),
                          const void *key, bool at_once, void (*fn)(void *arg), void *arg)
{
    struct actor_entry *next;

    if (fn != NULL) {
        struct ender *ender = calloc(1, sizeof(*ender));

        TDM_ASSERT(ender != NULL);
        *ender = (struct ender){
            .next = node->actors->enders, .matches = matches, .fn = fn, .arg = arg};
        if (key != NULL) {
            ender->key = *(const struct tdm__id *)key;
        }
        node->actors->enders = ender;
    }
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (matches(entry->spec, key)) {
            tdm__actor_entry_end(entry, at_once);
        }
    }
    tell_enders(node);
}

void tdm__node_actors_home_lost(struct tdm__node *node, const struct tdm__id *home)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = next) {
        next = entry->next;
        if (tdm__id_equal(&entry->home, home) && !entry->spec->detached) {
            tdm__actor_entry_end(entry, true);
        }
    }
}

/* ---- the whole table -------------------------------------------------------------------- */

tdm_status tdm__node_actors_create(struct tdm__node *node)
{
    node->actors = calloc(1, sizeof(*node->actors));
    return node->actors == NULL ? tdm__fail(TDM_E_NOMEM, "the table of actors") : TDM_OK;
}

void tdm__node_actors_destroy(struct tdm__node *node)
{
    if (node->actors == NULL) {
        return;
    }
    for (struct actor_entry *entry = node->actors->all, *next; entry != NULL; entry = next) {
        next = entry->next;
        entry_remove(entry, TDM_E_ACTOR_DIED, "its node has stopped");
    }
    while (node->actors->enders != NULL) {
        struct ender *ender = node->actors->enders;

        node->actors->enders = ender->next;
        free(ender);
    }
    for (uint32_t i = 0; i < TOMBSTONES_MAX; i++) {
        free(node->actors->tombstones[i].text);
    }
    free(node->actors);
    node->actors = NULL;
}

struct tdm__grant *tdm__node_actor_grants(struct tdm__node *node, uint32_t *count_out)
{
    struct tdm__grant *grants;
    uint32_t count = 0;

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    grants = calloc(count + 1, sizeof(*grants));
    TDM_ASSERT(grants != NULL);
    *count_out = 0;
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        bool has_place = entry->state == ACTOR_STARTING || entry->state == ACTOR_ALIVE ||
                         entry->state == ACTOR_ENDING;

        if (has_place && tdm__id_is_none(&entry->record.group)) {
            grants[(*count_out)++] = entry->record.grant;
        }
    }
    return grants;
}

void tdm__node_actors_list(struct tdm__node *node, tdm_writer *writer)
{
    static const char *const states[] = {"placing", "waiting", "starting",
                                         "alive",   "ending",  "remote"};
    uint32_t count = 0;
    char id[TDM__ID_TEXT_BYTES];

    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        count++;
    }
    tdm_write_array(writer, count);
    for (struct actor_entry *entry = node->actors->all; entry != NULL; entry = entry->next) {
        tdm_write_array(writer, 5);
        tdm_write_string(writer, tdm__id_text(&entry->spec->id, id));
        tdm_write_string(writer, entry->spec->name);
        tdm_write_string(writer, entry->spec->class_name);
        tdm_write_string(writer, states[entry->state]);
        tdm_write_int(writer, entry->worker == NULL ? 0 : entry->worker->pid);
    }
}
