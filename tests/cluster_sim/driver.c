/* driver.c - simulated drivers, which create, find and end actors, and the calls that they make. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cluster_sim/driver.h"

#include "actors/common/actor_spec.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "runtime/messages/messages.h"
#include "tests/cluster_sim/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACTORS_MAX = 12, CLEANING_ROUNDS = 3 };

struct driver {
    TAILQ_ENTRY(driver) link;
    struct machine *machine;
    struct sim_process *process;
    struct tdm__loop *loop;
    struct tdm__rpc *rpc;
    struct tdm__conn *conn; /* NULL once closed. */
    struct tdm__peer_identity self;
    struct tdm__id actors[ACTORS_MAX]; /* Those that it has created. */
    uint32_t actors_count;
    uint32_t pending_count; /* Calls without a reply. */
    bool cleans;            /* Whether the driver only ends actors with names. */
    bool claims;            /* Whether the driver is asked to create an actor with a name. */
    uint32_t claimed;       /* The number of that name. */
    /* Node for that actor, which is then restarted without a limit; none if it is not chosen. */
    struct tdm__id claimed_node;
    bool has_ended;
    struct tdm__id found; /* Actor that was found last; none if absent. */
};

static struct {
    TAILQ_HEAD(, driver) all;
    struct driver_calls calls;
    bool finish;
} drivers;

/* ---- calls ------------------------------------------------------------------------------- */

static void on_reply(void *arg, struct tdm__rpc_reply *reply)
{
    struct driver_call *call = arg;
    tdm_document *document = NULL;
    struct tdm__actor_found_message found;

    sim_trace("%s %02x%02x -> %s: %.200s", call->method, call->actor.bytes[0], call->actor.bytes[1],
              tdm_strerror(reply->status), reply->detail);
    call->replies_count++;
    call->status = reply->status;
    call->driver->pending_count--;
    if (reply->status == TDM_OK && strcmp(call->method, "actor.find") == 0 &&
        tdm__rpc_reply_document(reply, &document) == TDM_OK) {
        if (tdm__actor_found_decode(tdm_document_root(document), &found) == TDM_OK) {
            (void)tdm__id_parse(found.id, &call->driver->found);
        }
        tdm_document_destroy(document);
    }
}

static void driver_send(struct driver *driver, const char *method, const struct tdm__id *actor,
                        struct tdm_bytes packed)
{
    struct tdm__rpc_request request = {
        .method = method, .packed = packed, .deadline_ms = TDM__NEVER};
    struct driver_call *call;

    if (driver->conn == NULL) {
        return;
    }
    call = calloc(1, sizeof(*call));
    TDM_ASSERT(call != NULL);
    sim_trace("calls %s %02x%02x", method, actor->bytes[0], actor->bytes[1]);
    call->driver = driver;
    (void)snprintf(call->method, sizeof(call->method), "%s", method);
    call->actor = *actor;
    call->sent_ms = sim_now_ms();
    TAILQ_INSERT_TAIL(&drivers.calls, call, link);
    driver->pending_count++;
    if (tdm__conn_call(driver->conn, &request, on_reply, call, NULL) != TDM_OK) {
        call->replies_count++;
        call->status = TDM_E_CLOSED;
        driver->pending_count--;
    }
}

static void driver_query(struct driver *driver, const char *method, const struct tdm__id *actor,
                         bool may_restart)
{
    const struct tdm__actor_query_message query = {.actor = *actor, .may_restart = may_restart};
    tdm_writer *writer;

    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    TDM_ASSERT(tdm__actor_query_encode(&query, writer) == TDM_OK);
    driver_send(driver, method, actor, tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
}

static void driver_find(struct driver *driver, uint32_t name)
{
    static const struct tdm__id none;
    char text[16];
    const struct tdm__actor_find_message find = {.name_space = "space", .name = text};
    tdm_writer *writer;

    (void)snprintf(text, sizeof(text), "name%u", name);
    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    TDM_ASSERT(tdm__actor_find_encode(&find, writer) == TDM_OK);
    driver_send(driver, "actor.find", &none, tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
}

/* ---- what a driver does ------------------------------------------------------------------- */

static void driver_create_with(struct driver *driver, const struct tdm_actor_options *options,
                               bool detached)
{
    struct tdm__actor_spec *spec;
    tdm_writer *writer;

    if (driver->actors_count == ACTORS_MAX) {
        return;
    }
    TDM_ASSERT(tdm__actor_spec_create("simulated", options, (struct tdm_bytes){"\x90", 1}, &spec) ==
               TDM_OK);
    spec->detached = detached;
    TDM_ASSERT(tdm_writer_create(&writer) == TDM_OK);
    tdm__actor_spec_write(writer, spec);
    sim_trace("creates %02x%02x, name \"%s\", %g GPUs, %d restarts%s", spec->id.bytes[0],
              spec->id.bytes[1], spec->name, options->num_gpus, options->max_restarts,
              spec->detached ? ", detached" : "");
    driver->actors[driver->actors_count++] = spec->id;
    driver_send(driver, "actor.create", &spec->id, tdm_writer_bytes(writer));
    tdm_writer_destroy(writer);
    tdm__actor_spec_destroy(spec);
}

static void driver_create(struct driver *driver)
{
    char name[16];
    struct tdm_actor_options options = {.name_space = "space", .environment = {"LD_BIND_NOW="}};

    (void)snprintf(name, sizeof(name), "name%u", sim_below(DRIVER_NAMES));
    options.name = sim_below(2) == 0 ? name : NULL;
    options.num_cpus = 1;
    options.num_gpus = sim_below(2);
    options.max_restarts = (int32_t)sim_below(3) - 1;
    options.scheduling = sim_below(2) == 0 ? TDM_SCHEDULE_DEFAULT : TDM_SCHEDULE_SPREAD;
    driver_create_with(driver, &options, options.name != NULL && sim_below(3) == 0);
}

/* Creates the actor that the driver was asked for. It needs no resources. */
static void driver_create_claimed(struct driver *driver)
{
    char name[16];
    char node[TDM__ID_TEXT_BYTES];
    struct tdm_actor_options options = {
        .name_space = "space", .environment = {"LD_BIND_NOW="}, .name = name, .max_restarts = -1};

    if (tdm__id_is_none(&driver->claimed_node)) {
        options.max_restarts = (int32_t)sim_below(2) - 1;
    } else {
        options.scheduling = TDM_SCHEDULE_NODE_SOFT;
        options.node_id = tdm__id_text(&driver->claimed_node, node);
    }
    (void)snprintf(name, sizeof(name), "name%u", driver->claimed);
    driver->claims = false;
    driver_create_with(driver, &options, false);
}

/* One of the actors of any driver; NULL if there is none. */
static const struct tdm__id *some_actor(void)
{
    const struct driver *driver;
    uint32_t count = 0;
    uint32_t chosen;

    TAILQ_FOREACH(driver, &drivers.all, link)
    {
        count += driver->actors_count;
    }
    chosen = count == 0 ? 0 : sim_below(count);
    TAILQ_FOREACH(driver, &drivers.all, link)
    {
        if (chosen < driver->actors_count) {
            return &driver->actors[chosen];
        }
        chosen -= driver->actors_count;
    }
    return NULL;
}

static void driver_act(struct driver *driver)
{
    const struct tdm__id *actor = some_actor();
    uint32_t what = sim_below(16);

    if (what < 7 || actor == NULL) {
        driver_create(driver);
    } else if (what < 9) {
        driver_find(driver, sim_below(DRIVER_NAMES));
    } else if (what < 11) {
        driver_query(driver, "actor.await", actor, false);
    } else if (what < 12) {
        driver_query(driver, "actor.fate", actor, false);
    } else if (what < 13) {
        driver_query(driver, "actor.why", actor, false);
    } else if (what < 15) {
        driver_query(driver, "actor.kill", actor, sim_below(3) == 0);
    } else {
        driver_query(driver, "actor.release", actor, false);
    }
}

static bool is_answered(void *arg)
{
    const struct driver *driver = arg;

    return driver->pending_count == 0 || driver->conn == NULL;
}

static bool is_closed(void *arg)
{
    return ((const struct driver *)arg)->conn == NULL;
}

static bool must_finish(void *arg)
{
    return drivers.finish || is_closed(arg);
}

static bool must_act(void *arg)
{
    return ((const struct driver *)arg)->claims || must_finish(arg);
}

static void driver_finish(struct driver *driver)
{
    for (uint32_t i = 0; i < driver->actors_count; i++) {
        driver_query(driver, sim_below(2) == 0 ? "actor.kill" : "actor.release", &driver->actors[i],
                     false);
    }
    /* Actors that lack resources may wait for those of other drivers. */
    (void)tdm__loop_run(driver->loop, is_answered, driver, tdm__deadline_after(3000));
    for (uint32_t i = 0; i < driver->actors_count; i++) {
        driver_query(driver, "actor.kill", &driver->actors[i], false);
    }
    (void)tdm__loop_run(driver->loop, is_answered, driver, TDM__NEVER);
    if (driver->conn != NULL) {
        static const struct tdm__id none;

        driver_send(driver, "actor.leave", &none, (struct tdm_bytes){"\x90", 1});
        (void)tdm__loop_run(driver->loop, is_answered, driver, TDM__NEVER);
    }
}

static void driver_clean(struct driver *driver)
{
    for (uint32_t round = 0; round < CLEANING_ROUNDS; round++) {
        for (uint32_t name = 0; name < DRIVER_NAMES; name++) {
            driver->found = (struct tdm__id){.bytes = {0}};
            driver_find(driver, name);
            (void)tdm__loop_run(driver->loop, is_answered, driver, TDM__NEVER);
            if (!tdm__id_is_none(&driver->found)) {
                driver_query(driver, "actor.kill", &driver->found, false);
                (void)tdm__loop_run(driver->loop, is_answered, driver, TDM__NEVER);
            }
        }
    }
}

static void driver_live(struct driver *driver)
{
    while (!must_finish(driver) && !sim_is_dying()) {
        if (driver->claims) {
            driver_create_claimed(driver);
        } else {
            driver_act(driver);
        }
        (void)tdm__loop_run(driver->loop, must_act, driver,
                            sim_now_ms() + (sim_below(3) == 0 ? sim_below(20) : sim_below(5000)));
    }
    driver_finish(driver);
}

/* ---- life --------------------------------------------------------------------------------- */

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    (void)arg;
    tdm__incoming_reply_pack(incoming, "");
}

static void on_closed(void *arg, struct tdm__conn *conn, tdm_status reason, const char *detail)
{
    (void)conn;
    sim_trace("connection closed: %s: %s", tdm_strerror(reason), detail);
    ((struct driver *)arg)->conn = NULL;
}

static void driver_main(void *arg)
{
    struct driver *driver = arg;
    char address[TDM__ADDRESS_BYTES];

    driver->self.kind = TDM__PEER_DRIVER;
    (void)snprintf(driver->self.name, sizeof(driver->self.name), "driver");
    TDM_ASSERT(tdm__id_generate(&driver->self.id) == TDM_OK);
    TDM_ASSERT(tdm__loop_create(&driver->loop) == TDM_OK);
    TDM_ASSERT(tdm__rpc_create(driver->loop, &driver->self, world_token, &driver->rpc) == TDM_OK);
    tdm__rpc_set_call_handler(driver->rpc, serve, driver);
    network_address(driver->machine->number, "daemon", address, sizeof(address));
    if (tdm__rpc_connect(driver->rpc, address, &driver->conn) == TDM_OK) {
        tdm__conn_on_closed(driver->conn, on_closed, driver);
        if (driver->cleans) {
            driver_clean(driver);
        } else {
            driver_live(driver);
        }
    } else {
        driver->conn = NULL;
    }
    tdm__rpc_destroy(driver->rpc);
    tdm__loop_destroy(driver->loop);
    driver->has_ended = true;
}

static void on_killed(void *arg)
{
    (void)arg; /* Every wait fails from now on. */
}

static void start(struct machine *machine, bool cleans)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    char name[32];

    TDM_ASSERT(driver != NULL);
    driver->machine = machine;
    driver->cleans = cleans;
    (void)snprintf(name, sizeof(name), cleans ? "cleaner%u" : "driver%u", machine->number);
    TAILQ_INSERT_TAIL(&drivers.all, driver, link);
    driver->process = sim_process_create(name, driver_main, on_killed, driver);
    machine_add_process(machine, driver->process);
}

void driver_start(struct machine *machine)
{
    start(machine, false);
}

void driver_start_cleaner(struct machine *machine)
{
    start(machine, true);
}

void driver_claim_on(const struct machine *machine, uint32_t name, const struct tdm__id *node)
{
    struct driver *driver;

    TAILQ_FOREACH(driver, &drivers.all, link)
    {
        if (driver->machine == machine && !driver->has_ended && !driver->cleans) {
            driver->claims = true;
            driver->claimed = name;
            driver->claimed_node = *node;
            return;
        }
    }
}

void driver_claim(const struct machine *machine, uint32_t name)
{
    static const struct tdm__id none;

    driver_claim_on(machine, name, &none);
}

void drivers_finish(void)
{
    drivers.finish = true;
}

uint32_t drivers_count(void)
{
    const struct driver *driver;
    uint32_t count = 0;

    TAILQ_FOREACH(driver, &drivers.all, link)
    {
        count += driver->has_ended || driver->machine->is_off_for_good ? 0 : 1;
    }
    return count;
}

void drivers_kill(const struct machine *machine)
{
    const struct driver *driver;

    TAILQ_FOREACH(driver, &drivers.all, link)
    {
        if (driver->machine == machine && !driver->has_ended) {
            sim_process_kill(driver->process);
        }
    }
}

const struct driver_calls *drivers_calls(void)
{
    return &drivers.calls;
}

uint32_t driver_call_machine(const struct driver_call *call)
{
    return call->driver->machine->number;
}

void drivers_begin(void)
{
    memset(&drivers, 0, sizeof(drivers));
    TAILQ_INIT(&drivers.all);
    TAILQ_INIT(&drivers.calls);
}

void drivers_end(void)
{
    struct driver_call *call;
    struct driver *driver;

    while ((call = TAILQ_FIRST(&drivers.calls)) != NULL) {
        TAILQ_REMOVE(&drivers.calls, call, link);
        free(call);
    }
    while ((driver = TAILQ_FIRST(&drivers.all)) != NULL) {
        TDM_ASSERT(driver->has_ended);
        TAILQ_REMOVE(&drivers.all, driver, link);
        free(driver);
    }
}
