/* node_fixture.c - a node in this process, of which a test is the rest of the cluster. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/node_fixture.h"

#include "actors/daemon/actor_actions.h"
#include "actors/daemon/actor_end.h"
#include "actors/daemon/actor_service.h"
#include "actors/daemon/actor_start.h"
#include "actors/daemon/ended_actors.h"
#include "actors/daemon/node.h"
#include "actors/daemon/node_notices.h"
#include "actors/daemon/peer_daemons.h"
#include "actors/daemon/placement_group_service.h"
#include "actors/daemon/state_service.h"
#include "runtime/clock.h"
#include "runtime/store/txn.h"
#include "scheduler/retrying_txn.h"
#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- the node --------------------------------------------------------------------------- */

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct node_fixture *scene = arg;
    const char *method = tdm__incoming_method(incoming);

    if (strncmp(method, "actor.", strlen("actor.")) == 0) {
        tdm__actor_service.serve(&scene->node, incoming);
    } else if (strncmp(method, "group.", strlen("group.")) == 0) {
        tdm__placement_group_service.serve(&scene->node, incoming);
    } else if (strncmp(method, "state.", strlen("state.")) == 0) {
        tdm__state_service.serve(&scene->node, incoming);
    } else if (strncmp(method, "node.", strlen("node.")) == 0) {
        tdm__node_service.serve(&scene->node, incoming);
    } else {
        assert_null(scene->last);
        scene->last = incoming;
    }
}

static void note_gone(void *self, const struct tdm__peer_identity *peer)
{
    struct node_fixture *scene = self;

    assert_true(scene->gone_count < sizeof(scene->gone_ids) / sizeof(scene->gone_ids[0]));
    scene->gone_ids[scene->gone_count++] = peer->id;
}

static const struct tdm__service_ops noting_service = {.prefix = "noting",
                                                       .peer_exited = note_gone};

static void make_node(struct node_fixture *scene)
{
    struct tdm__node *node = &scene->node;
    struct tdm__peer_identity self = pair_identity("this");

    *node = (struct tdm__node){.loop = scene->world.loop,
                               .store = &scene->deaf.store,
                               .services = &scene->services,
                               .events = &tdm__node_events};
    (void)snprintf(node->record.name, sizeof(node->record.name), "this");
    node->record.id = reserve_fixture_join(&scene->world, "this", 2);
    self.kind = TDM__PEER_DAEMON;
    self.id = self.node = node->record.id;
    TRY(tdm__rpc_create(node->loop, &self, pair_token, &node->rpc));
    tdm__rpc_set_call_handler(node->rpc, serve, scene);
    TRY(tdm__rpc_listen(node->rpc, scene->address, node->record.unix_address,
                        sizeof(node->record.unix_address)));
    (void)snprintf(node->directory, sizeof(node->directory), "%s", scene->directory);
    memcpy(node->token, pair_token, sizeof(node->token));
    node->visible_devices_variable = "CUDA_VISIBLE_DEVICES";
    tdm__oom_init(&node->oom, "");
    TRY(tdm__workers_create(node->rpc, "/does/not/exist", NULL, &node->workers));
    TRY(tdm__ended_actors_create(node));
    TRY(tdm__node_actors_create(node));
    TRY(tdm__placement_groups_create(node));
    TRY(tdm__node_notices_create(node));
    TRY(tdm__node_peers_create(node));
}

int node_fixture_open(void **state)
{
    struct node_fixture *scene = calloc(1, sizeof(*scene));

    assert_non_null(scene);
    (void)snprintf(scene->directory, sizeof(scene->directory), "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(scene->directory));
    (void)snprintf(scene->address, sizeof(scene->address), "unix:%s/this", scene->directory);
    assert_int_equal(reserve_fixture_open(&scene->world), 0);
    failing_store_open(&scene->deaf, scene->world.store);
    tdm__services_add(&scene->services, &noting_service, scene);
    make_node(scene);
    remote_peer_open(&scene->driver, scene->world.loop, TDM__PEER_DRIVER, "driver");
    remote_peer_connect(&scene->driver, scene->address);
    *state = scene;
    return 0;
}

static bool has_given_back(void *arg)
{
    const struct tdm__node_actors *actors = ((const struct node_fixture *)arg)->node.actors;

    return actors == NULL || actors->pending_releases == NULL;
}

/* In the order of the daemon's own end, tdm__node_stop(). */
int node_fixture_close(void **state)
{
    struct node_fixture *scene = *state;

    assert_null(scene->last);
    scene->node.stopping = true;
    node_fixture_run(scene, has_given_back, scene);
    scene->node.store = NULL; /* The store closes first, as in a daemon. */
    if (scene->node.workers != NULL) {
        tdm__workers_destroy(scene->node.workers);
    }
    tdm__node_peers_destroy(&scene->node);
    tdm__node_notices_destroy(&scene->node);
    tdm__node_actors_destroy(&scene->node);
    tdm__placement_groups_destroy(&scene->node);
    tdm__ended_actors_destroy(&scene->node);
    node_fixture_settle(scene);
    remote_peer_close(&scene->driver);
    tdm__rpc_destroy(scene->node.rpc);
    reserve_fixture_close(&scene->world);
    (void)rmdir(scene->directory);
    free(scene);
    return 0;
}

/* ---- its actors ------------------------------------------------------------------------- */

struct tdm__actor_spec *node_fixture_spec(struct node_fixture *scene, const char *class_name)
{
    static const char program[] = TDM_TEST_BUILD_DIR "/tests/still_program";
    struct tdm__actor_spec *spec = calloc(1, sizeof(*spec));

    assert_non_null(spec);
    TRY(tdm__id_generate(&spec->id));
    spec->creator = spec->job = scene->driver.self.id;
    (void)snprintf(spec->class_name, sizeof(spec->class_name), "%s", class_name);
    (void)snprintf(spec->name_space, sizeof(spec->name_space), "mine");
    assert_true(sizeof(program) <= sizeof(spec->program));
    memcpy(spec->program, program, sizeof(program));
    (void)snprintf(spec->directory, sizeof(spec->directory), "/tmp");
    TRY(tdm__text_list_add(&spec->environment, "LD_BIND_NOW=")); /* Prevents a fork server. */
    return spec;
}

struct actor_entry *node_fixture_add(struct node_fixture *scene, enum actor_state state)
{
    struct actor_entry *entry =
        tdm__actor_entry_add(&scene->node, node_fixture_spec(scene, "tester"));

    assert_non_null(entry);
    entry->lifecycle.state = state;
    if (tdm__actor_lifecycle_holds_resources(&entry->lifecycle) ||
        tdm__actor_state_is_remote(state)) {
        entry->lifecycle.reservation = ACTOR_RESERVES;
    }
    entry->record.actor = entry->spec->id;
    entry->record.node = scene->node.record.id;
    return entry;
}

void node_fixture_start(struct actor_entry *entry)
{
    entry->lifecycle.state = ACTOR_RESTARTING;
    entry->lifecycle.reservation = ACTOR_RESERVES;
    tdm__actor_entry_handle(entry, (struct actor_event){.kind = ACTOR_ON_TIMER});
    assert_int_equal(entry->lifecycle.state, ACTOR_STARTING);
    assert_non_null(entry->worker);
    assert_true(entry->worker->pid > 0);
}

static bool is_open(void *arg)
{
    return tdm__conn_is_open(((const struct remote_peer *)arg)->conn);
}

static void on_line_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)conn;
    (void)reason;
    (void)detail;
    ((struct tdm__worker_process *)arg)->conn = NULL;
}

/* The program itself says nothing over the line that it was given. */
void node_fixture_play(struct node_fixture *scene, struct actor_entry *entry,
                       struct remote_peer *worker)
{
    int line[2];

    remote_peer_open(worker, scene->world.loop, TDM__PEER_WORKER, "worker");
    worker->self.id = entry->spec->id;
    tdm__rpc_set_identity(worker->rpc, &worker->self);
    tdm__conn_on_closed(entry->worker->conn, NULL, NULL);
    tdm__conn_close(entry->worker->conn);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line), 0);
    TRY(tdm__rpc_adopt(scene->node.rpc, line[0], true, &entry->worker->conn));
    tdm__conn_on_closed(entry->worker->conn, on_line_closed, entry->worker);
    remote_peer_adopt(worker, line[1]);
    node_fixture_run(scene, is_open, worker);
}

void node_fixture_construct(struct actor_entry *entry)
{
    tdm__actor_entry_constructed(entry, entry->worker->pid, TDM_OK, "", "unix:/nowhere", NULL);
}

struct actor_entry *node_fixture_add_living(struct node_fixture *scene, const char *class_name,
                                            const char *name, struct remote_peer *worker)
{
    struct actor_entry *entry = node_fixture_add(scene, ACTOR_STARTING);

    (void)snprintf(entry->spec->class_name, sizeof(entry->spec->class_name), "%s", class_name);
    (void)snprintf(entry->spec->name, sizeof(entry->spec->name), "%s", name);
    node_fixture_start(entry);
    node_fixture_play(scene, entry, worker);
    node_fixture_construct(entry);
    return entry;
}

void node_fixture_kill_all(struct node_fixture *scene)
{
    struct actor_entry *next;

    for (struct actor_entry *entry = scene->node.actors->all; entry != NULL; entry = next) {
        next = entry->next;
        tdm__actor_entry_end(entry, true);
    }
    node_fixture_run_out(scene);
}

/* An actor's records on their way into the store. */
struct put {
    struct tdm__actor_record record;
    bool done;
};

static tdm_status put_body(void *arg, struct tdm__txn *txn)
{
    return tdm__actor_record_put(txn, &((struct put *)arg)->record);
}

static void on_put(void *arg, tdm_status status, const char *detail)
{
    (void)detail;
    TRY(status);
    ((struct put *)arg)->done = true;
}

static bool is_put(void *arg)
{
    return ((const struct put *)arg)->done;
}

void node_fixture_put(struct node_fixture *scene, const struct tdm__actor_record *record)
{
    struct put put = {.record = *record};
    char key[TDM__STORE_KEY_BYTES];
    const char *patterns[] = {tdm__store_key("actor", &record->actor, key), record->name_key};

    TRY(tdm__retrying_txn_run(scene->world.store, patterns, record->name_key[0] == '\0' ? 1 : 2,
                              tdm__deadline_after(REMOTE_PEER_WAIT_MS), put_body, on_put, &put));
    node_fixture_run(scene, is_put, &put);
}

static bool has_arrived(void *arg)
{
    return ((const struct node_fixture *)arg)->last != NULL;
}

struct tdm__incoming_call *node_fixture_incoming(struct node_fixture *scene,
                                                 struct remote_reply *answer)
{
    struct tdm__incoming_call *incoming;

    remote_peer_ask(&scene->driver, answer, "test.own", "");
    node_fixture_run(scene, has_arrived, scene);
    incoming = scene->last;
    scene->last = NULL;
    return incoming;
}

/* ---- others, and time ------------------------------------------------------------------- */

void node_fixture_other(struct node_fixture *scene, struct remote_peer *other, const char *name)
{
    struct tdm__node_record record = {.pid = getpid()};
    struct tdm__node_resources totals = {.name = ""};
    struct tdm__resources resources = {.cpu = 0};
    char address[sizeof(record.unix_address)];

    remote_peer_open(other, scene->world.loop, TDM__PEER_DAEMON, name);
    record.id = totals.id = other->self.id;
    (void)snprintf(record.name, sizeof(record.name), "%s", name);
    (void)snprintf(totals.name, sizeof(totals.name), "%s", name);
    (void)snprintf(address, sizeof(address), "unix:%s/%s", scene->directory, name);
    remote_peer_listen(other, address, record.unix_address, sizeof(record.unix_address));
    TRY(tdm__resources_add(&resources, "CPU", 8));
    TRY(tdm__pool_init(&totals.pool, &resources));
    reserve_fixture_join_as(&scene->world, &record, &totals);
}

void node_fixture_run(struct node_fixture *scene, bool (*done)(void *arg), void *arg)
{
    remote_peer_run(scene->world.loop, done, arg);
}

void node_fixture_settle(struct node_fixture *scene)
{
    remote_peer_settle(scene->world.loop);
}

static bool is_empty(void *arg)
{
    const struct node_fixture *scene = arg;

    return scene->node.actors->all == NULL && scene->node.actors->pending_releases == NULL;
}

void node_fixture_run_out(struct node_fixture *scene)
{
    node_fixture_run(scene, is_empty, scene);
}
