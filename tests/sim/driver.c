/* driver.c - a simulated process that creates actors and calls them at random. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/driver.h"

#include "actors/client/actor_channel.h"
#include "actors/objects/export.h"
#include "actors/objects/objects.h"
#include "actors/runtime_create.h"
#include "runtime/assert.h"
#include "runtime/clock.h"
#include "runtime/error.h"
#include "tests/sim/daemon.h"
#include "tests/sim/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIND_MS = 5000, KILL_MS = 60000, LARGE_BYTES = 110 * 1024, STREAM_ITEMS_MAX = 40 };

static const char *const class_names[] = {"plain", "asynchronous", "threaded"};

/* ---- results ---------------------------------------------------------------------------- */

static void on_done(void *arg, tdm_ref *ref)
{
    (void)ref;
    model_done((uint32_t)(uintptr_t)arg);
}

static struct reference_slot *free_slot(struct driver *driver)
{
    for (uint32_t i = 0; i < DRIVER_SLOTS; i++) {
        if (driver->slots[i].ref == NULL) {
            return &driver->slots[i];
        }
    }
    return NULL;
}

/* Returns a slot in use, or NULL. */
static struct reference_slot *some_slot(struct driver *driver)
{
    struct reference_slot *slot = &driver->slots[sim_below(DRIVER_SLOTS)];

    return slot->ref == NULL ? NULL : slot;
}

static int64_t number_in(const tdm_value *value)
{
    const tdm_value *first = tdm_value_kind_of(value) == TDM_ARRAY ? tdm_value_at(value, 0) : value;

    return tdm_value_int(first, -1);
}

/* Stores the reference of a value (number, reference, the reference's value) in a slot of its
 * own. */
static void take_given(struct driver *driver, const tdm_value *value)
{
    struct reference_slot *slot = free_slot(driver);
    tdm_status status;

    if (slot == NULL || tdm_value_kind_of(tdm_value_at(value, 1)) != TDM_REFERENCE) {
        return;
    }
    status = tdm_value_ref(driver->runtime, tdm_value_at(value, 1), &slot->ref);
    if (status != TDM_OK) {
        model_fail("a given reference cannot be opened: %s", tdm_error_detail());
    }
    slot->expected = tdm_value_int(tdm_value_at(value, 2), -1);
    slot->call = SLOT_GIVEN;
    slot->gives = false;
}

static void check_lossy(const struct reference_slot *slot, tdm_status status,
                        const tdm_value *value)
{
    if (status == TDM_OK) {
        if (slot->expected >= 0 && number_in(tdm_value_at(value, 0)) != slot->expected) {
            model_fail("a reference's value is %lld, not %lld",
                       (long long)number_in(tdm_value_at(value, 0)), (long long)slot->expected);
        }
    } else if (slot->call == SLOT_PUT ||
               ((status == TDM_E_OWNER_DIED || status == TDM_E_VALUE_LOST) && !model_may_lose())) {
        model_fail("a reference has no value: %s: %s", tdm_strerror(status), tdm_error_detail());
    }
}

/* Waits for a reference that is done or will be, and checks its result. */
static void take_result(struct driver *driver, struct reference_slot *slot, int64_t timeout_ms)
{
    const tdm_value *value = NULL;
    tdm_status status = tdm_get_value(slot->ref, timeout_ms, &value);

    if (status == TDM_E_TIMEOUT && timeout_ms != TDM_FOREVER) {
        return; /* The result does not exist yet. */
    }
    if (slot->call < 0) {
        check_lossy(slot, status, value);
        return;
    }
    model_result((uint32_t)slot->call, status,
                 status == TDM_OK ? tdm_value_int(tdm_value_at(value, 0), -1) : 0);
    if (status == TDM_OK && slot->gives) {
        take_given(driver, value);
        slot->gives = false;
    }
}

static void release(struct reference_slot *slot)
{
    tdm_ref_release(slot->ref);
    slot->ref = NULL;
}

/* ---- actors ----------------------------------------------------------------------------- */

static struct handle_slot *some_handle(struct driver *driver)
{
    struct handle_slot *handle = &driver->handles[sim_below(DRIVER_ACTORS)];

    return handle->actor == NULL ? NULL : handle;
}

static void create(struct driver *driver, struct handle_slot *handle)
{
    static const int32_t counts[] = {0, 1, 3, -1};
    enum model_class actor_class = (enum model_class)sim_below(3);
    struct tdm_actor_options options = {.max_restarts = counts[sim_below(4)],
                                        .max_task_retries = counts[sim_below(4)]};
    struct tdm_actor_info info;
    char name[16];

    if (model.actors_count == MODEL_ACTORS_MAX) {
        return;
    }
    handle->index = model_actor_add(actor_class, options.max_restarts != 0);
    handle->counted = true;
    (void)snprintf(name, sizeof(name), "a%u", handle->index);
    options.name = name;
    model.actors[handle->index].max_task_retries = options.max_task_retries;
    if (tdm_actor_create(driver->runtime, class_names[actor_class], &options, &handle->actor, "") !=
        TDM_OK) {
        model_fail("an actor cannot be made: %s", tdm_error_detail());
    }
    tdm_actor_describe(handle->actor, &info);
    (void)snprintf(model.actors[handle->index].id, sizeof(info.id), "%s", info.id);
    sim_trace("makes actor %u, %s, restarts %d, retries %d", handle->index,
              class_names[actor_class], options.max_restarts, options.max_task_retries);
}

static void find(struct driver *driver, struct handle_slot *handle)
{
    uint32_t index = sim_below(MODEL_ACTORS_MAX);
    struct tdm_actor_info info;
    char name[16];
    tdm_status status;

    (void)snprintf(name, sizeof(name), "a%u", index);
    status = tdm_actor_find(driver->runtime, name, FIND_MS, &handle->actor);
    sim_trace("finds %s: %s", name, tdm_strerror(status));
    if (status != TDM_OK) {
        handle->actor = NULL;
        if (status != TDM_E_NOT_FOUND && status != TDM_E_ACTOR_DIED && status != TDM_E_TIMEOUT) {
            model_fail("finding %s: %s: %s", name, tdm_strerror(status), tdm_error_detail());
        }
        return;
    }
    tdm_actor_describe(handle->actor, &info);
    if (model.actors[index].id[0] == '\0') { /* Its creator's function has not returned yet. */
        (void)snprintf(model.actors[index].id, sizeof(info.id), "%s", info.id);
    } else if (strcmp(info.id, model.actors[index].id) != 0) {
        model_fail("%s is another actor", name);
    }
    handle->index = index;
    handle->counted = false;
}

static void meet(struct driver *driver)
{
    struct handle_slot *handle = &driver->handles[sim_below(DRIVER_ACTORS)];

    if (handle->actor != NULL) {
        return;
    }
    if (sim_below(4) > 0) {
        create(driver, handle);
    } else {
        find(driver, handle);
    }
}

static void drop(struct handle_slot *handle)
{
    sim_trace("drops its handle to actor %u", handle->index);
    if (handle->counted) {
        model.actors[handle->index].dropped = true;
    }
    tdm_actor_destroy(handle->actor);
    handle->actor = NULL;
}

static void kill_actor(struct handle_slot *handle)
{
    struct model_actor *actor = &model.actors[handle->index];
    tdm_status status;

    sim_trace("kills actor %u", handle->index);
    actor->ends_wanted++;
    model.ends_count++;
    status = tdm_actor_kill(handle->actor, KILL_MS);
    if (status != TDM_OK) {
        model_fail("killing actor %u: %s", handle->index, tdm_error_detail());
    }
}

/* ---- calls ------------------------------------------------------------------------------ */

struct making {
    struct driver *driver;
    struct handle_slot *handle;
    struct reference_slot *slot;
    uint32_t number;
    struct model_call *call;
    struct tdm_call_options options;
};

/* A found handle has the actor's own default only in the process that made the actor. */
static void choose_retries(const struct handle_slot *handle, struct tdm_call_options *options,
                           struct model_call *call)
{
    call->max_retries = model.actors[handle->index].max_task_retries;
    if (!handle->counted || sim_below(4) == 0) {
        options->max_retries = sim_below(2) == 0 ? -1 : -2;
        call->max_retries = options->max_retries == -1 ? -1 : 0;
    }
}

static bool begin(struct making *making, struct driver *driver, const char *method)
{
    static const int64_t deadlines[] = {1, 5, 20, 60};

    *making =
        (struct making){.driver = driver, .handle = some_handle(driver), .slot = free_slot(driver)};
    if (making->handle == NULL || making->slot == NULL || model_is_full()) {
        return false;
    }
    making->number = model_call_add(making->handle->index, method);
    making->call = &model.calls[making->number];
    making->call->has_uncounted_handle = !making->handle->counted;
    choose_retries(making->handle, &making->options, making->call);
    if (sim_below(12) == 0) {
        making->options.timeout_ms = deadlines[sim_below(4)];
        making->call->has_deadline = true;
    }
    return true;
}

static void end(struct making *making, tdm_status status)
{
    struct reference_slot *slot = making->slot;

    sim_trace("calls %s of actor %u: call %u, %s", making->call->method, making->handle->index,
              making->number, tdm_strerror(status));
    if (status != TDM_OK) {
        slot->ref = NULL;
        model_result(making->number, status, 0);
        return;
    }
    slot->call = (int32_t)making->number;
    slot->expected = making->call->expected;
    making->call->is_watched = true;
    if (tdm_ref_on_done(slot->ref, on_done, (void *)(uintptr_t)making->number) != TDM_OK) {
        model_fail("tdm_ref_on_done: %s", tdm_error_detail());
    }
}

#define CALL(making, format, ...)                                                                  \
    tdm_actor_call_with((making)->handle->actor, (making)->call->method, &(making)->options,       \
                        &(making)->slot->ref, format, (int64_t)(making)->number, ##__VA_ARGS__)

static void call_simple(struct driver *driver, const char *method)
{
    struct making making;

    if (begin(&making, driver, method)) {
        making.call->fails = strcmp(method, "fail") == 0;
        making.call->reads_another = strcmp(method, "read") == 0;
        making.slot->gives = strcmp(method, "give") == 0;
        end(&making, CALL(&making, "i"));
    }
}

static void call_note(struct driver *driver)
{
    int64_t value = sim_below(1000);
    struct making making;

    if (begin(&making, driver, "note")) {
        making.call->expected = model_reply(making.number, value);
        making.slot->gives = false;
        end(&making, CALL(&making, "ii", value));
    }
}

static void call_slow(struct driver *driver)
{
    struct making making;

    if (begin(&making, driver, "slow")) {
        making.slot->gives = false;
        end(&making, CALL(&making, "ii", (int64_t)sim_below(60)));
    }
}

/* Calls note with the value of another result. */
static void call_note_of(struct driver *driver)
{
    const struct reference_slot *source = some_slot(driver);
    struct making making;

    if (source != NULL && !source->gives && begin(&making, driver, "note")) {
        making.call->expected = model_reply(making.number, source->expected);
        making.call->source = source->call >= 0 ? source->call : -1;
        /* A given reference may be that of any call, and its failure is this call's failure. */
        making.call->reads_another = source->call == SLOT_GIVEN;
        making.call->may_be_large = source->call < 0;
        making.slot->gives = false;
        end(&making, CALL(&making, "ir", source->ref));
    }
}

static void call_keep(struct driver *driver)
{
    const struct reference_slot *source = some_slot(driver);
    struct making making;

    if (source != NULL && !source->gives && begin(&making, driver, "keep")) {
        making.slot->gives = false;
        end(&making, CALL(&making, "iRi", source->ref, source->expected));
    }
}

/* Calls relay with an actor of a higher index, so that no actor waits for itself. */
static void call_relay(struct driver *driver)
{
    const struct handle_slot *other = some_handle(driver);
    struct making making;

    if (other == NULL || !begin(&making, driver, "relay")) {
        return;
    }
    making.call->reads_another = true;
    making.slot->gives = false;
    if (other->index <= making.handle->index) {
        making.call->method = "note";
        making.call->expected = model_reply(making.number, 1);
        end(&making, CALL(&making, "ii", (int64_t)1));
        return;
    }
    end(&making, CALL(&making, "ihii", other->actor, (int64_t)other->index,
                      (int64_t)(other->counted ? 1 : 0)));
}

static void put(struct driver *driver)
{
    static const char bytes[LARGE_BYTES];
    struct reference_slot *slot = free_slot(driver);
    bool large = sim_below(12) == 0;
    tdm_status status;

    if (slot == NULL) {
        return;
    }
    slot->expected = sim_below(1000);
    slot->call = SLOT_PUT;
    slot->gives = false;
    status = large ? tdm_put(driver->runtime, &slot->ref, "(ib)", slot->expected,
                             (const void *)bytes, sizeof(bytes))
                   : tdm_put(driver->runtime, &slot->ref, "i", slot->expected);
    sim_trace("puts %lld%s", (long long)slot->expected, large ? ", large" : "");
    if (status != TDM_OK) {
        model_fail("tdm_put: %s", tdm_error_detail());
    }
}

static void wait_for_some(struct driver *driver)
{
    tdm_ref *refs[DRIVER_SLOTS];
    uint8_t done[DRIVER_SLOTS];
    uint32_t count = 0;
    uint32_t wanted;
    uint32_t found = 0;
    tdm_status status;

    for (uint32_t i = 0; i < DRIVER_SLOTS; i++) {
        if (driver->slots[i].ref != NULL && sim_below(2) == 0) {
            refs[count++] = driver->slots[i].ref;
        }
    }
    wanted = sim_below(count + 1);
    status = tdm_wait(refs, count, wanted, sim_below(30), done);
    for (uint32_t i = 0; i < count; i++) {
        found += done[i];
    }
    if (count > 0 && (status == TDM_OK) != (found >= wanted)) {
        model_fail("waiting for %u of %u: %s, and %u are done", wanted, count, tdm_strerror(status),
                   found);
    }
}

static void cancel(struct driver *driver)
{
    struct reference_slot *slot = some_slot(driver);
    bool force = sim_below(20) == 0 && driver->faults_per_mille > 0;
    tdm_status status;

    if (slot == NULL || slot->call < 0) {
        return;
    }
    model.calls[slot->call].canceled = true;
    if (force) {
        model.actors[model.calls[slot->call].actor].ends_wanted++;
        model.ends_count++;
    }
    sim_trace("cancels call %d%s", slot->call, force ? " by force" : "");
    status = tdm_cancel(slot->ref, force);
    if (status != TDM_OK) {
        model_fail("tdm_cancel: %s", tdm_error_detail());
    }
}

/* ---- streams ---------------------------------------------------------------------------- */

static void stream_begin(struct driver *driver, struct stream_slot *streaming)
{
    const struct handle_slot *handle = some_handle(driver);
    struct tdm_call_options options = {0};
    struct model_call *call;
    tdm_status status;

    if (handle == NULL || model_is_full()) {
        return;
    }
    streaming->call = model_call_add(handle->index, "count");
    streaming->items = sim_below(STREAM_ITEMS_MAX);
    streaming->taken = 0;
    call = &model.calls[streaming->call];
    call->has_uncounted_handle = !handle->counted;
    choose_retries(handle, &options, call);
    status = tdm_actor_stream(handle->actor, "count", &options, &streaming->stream, "ii",
                              (int64_t)streaming->call, streaming->items);
    sim_trace("streams %lld items of actor %u: call %u", (long long)streaming->items, handle->index,
              streaming->call);
    if (status != TDM_OK) {
        streaming->stream = NULL;
        model_result(streaming->call, status, 0);
    }
}

static void check_item(struct stream_slot *streaming, tdm_ref *ref)
{
    int64_t number = 0;

    streaming->taken++;
    if (tdm_get(ref, 0, "i", &number) != TDM_OK ||
        number != (int64_t)streaming->call + streaming->taken) {
        model_fail("item %lld of call %u is %lld: %s", (long long)streaming->taken, streaming->call,
                   (long long)number, tdm_error_detail());
    }
    tdm_ref_release(ref);
}

static void stream_ended(struct stream_slot *streaming, tdm_status status)
{
    struct model_call *call = &model.calls[streaming->call];

    if (status == TDM_E_END && streaming->taken != streaming->items) {
        model_fail("the stream of call %u ended after %lld of %lld items", streaming->call,
                   (long long)streaming->taken, (long long)streaming->items);
    }
    model_result(streaming->call, status == TDM_E_END ? TDM_OK : status, call->expected);
    tdm_stream_destroy(streaming->stream);
    streaming->stream = NULL;
}

/* Reads with a timeout, because the actor may be busy with another stream that this driver does not
 * read. */
static void stream_take(struct stream_slot *streaming, uint32_t most)
{
    tdm_status status = TDM_OK;
    tdm_ref *ref;

    for (uint32_t i = 0; i < most && status == TDM_OK; i++) {
        status = tdm_stream_next(streaming->stream, sim_below(20), &ref);
        if (status == TDM_OK) {
            check_item(streaming, ref);
        }
    }
    if (status != TDM_OK && status != TDM_E_TIMEOUT) {
        stream_ended(streaming, status);
    }
}

static void stream(struct driver *driver)
{
    struct stream_slot *streaming = &driver->streams[sim_below(DRIVER_STREAMS)];

    if (streaming->stream == NULL) {
        stream_begin(driver, streaming);
    } else if (sim_below(8) == 0) {
        sim_trace("drops the stream of call %u", streaming->call);
        tdm_stream_destroy(streaming->stream);
        streaming->stream = NULL;
    } else {
        stream_take(streaming, sim_below(STREAM_ITEMS_MAX));
    }
}

/* ---- the program ------------------------------------------------------------------------ */

static void use_slot(struct driver *driver, uint32_t what)
{
    struct reference_slot *slot = some_slot(driver);

    if (slot == NULL) {
        return;
    }
    if (what == 0) {
        release(slot);
    } else {
        take_result(driver, slot, sim_below(40));
    }
}

static void use_handle(struct driver *driver, uint32_t what)
{
    struct handle_slot *handle = some_handle(driver);

    if (handle == NULL) {
        return;
    }
    if (what == 0) {
        drop(handle);
    } else if (driver->faults_per_mille > 0 && what == 1) {
        kill_actor(handle);
    }
}

static void one_step(struct driver *driver)
{
    static const char *const simple[] = {"fail", "read", "give", "give", "read"};
    uint32_t what = sim_below(100);

    if (what < 14) {
        meet(driver);
    } else if (what < 34) {
        call_note(driver);
    } else if (what < 42) {
        call_note_of(driver);
    } else if (what < 50) {
        call_simple(driver, simple[sim_below(5)]);
    } else if (what < 56) {
        call_keep(driver);
    } else if (what < 61) {
        call_relay(driver);
    } else if (what < 64) {
        call_slow(driver);
    } else if (what < 69) {
        put(driver);
    } else if (what < 77) {
        stream(driver);
    } else if (what < 81) {
        cancel(driver);
    } else if (what < 92) {
        use_slot(driver, what % 3);
    } else if (what < 95) {
        wait_for_some(driver);
    } else if (what < 98) {
        use_handle(driver, sim_below(4));
    } else {
        sim_sleep(sim_below(30));
    }
    if (sim_below(1000) < driver->faults_per_mille) {
        program_inject_fault(driver, sim_below(100));
    }
}

static bool has_streams(const struct driver *driver)
{
    for (uint32_t i = 0; i < DRIVER_STREAMS; i++) {
        if (driver->streams[i].stream != NULL) {
            return true;
        }
    }
    return false;
}

static void finish(struct driver *driver)
{
    while (has_streams(driver)) {
        struct stream_slot *streaming = &driver->streams[sim_below(DRIVER_STREAMS)];

        if (streaming->stream != NULL) {
            stream_take(streaming, STREAM_ITEMS_MAX);
        }
    }
    for (uint32_t i = 0; i < DRIVER_SLOTS; i++) {
        if (driver->slots[i].ref != NULL) {
            take_result(driver, &driver->slots[i], TDM_FOREVER);
            release(&driver->slots[i]);
        }
    }
    /* Releases also the references that were given meanwhile. */
    for (uint32_t i = 0; i < DRIVER_SLOTS; i++) {
        release(&driver->slots[i]);
    }
    for (uint32_t i = 0; i < DRIVER_ACTORS; i++) {
        if (driver->handles[i].actor != NULL) {
            drop(&driver->handles[i]);
        }
    }
}

/* ---- life ------------------------------------------------------------------------------- */

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    const struct driver *driver = arg;

    if (!tdm__objects_serve(driver->runtime, incoming)) {
        tdm__incoming_fail(incoming, TDM_E_NOT_FOUND, "this process is a driver, no actor");
    }
}

static void join(struct driver *driver)
{
    struct tdm__peer_identity self = {.kind = TDM__PEER_DRIVER, .node = daemon_here.node, .pid = 1};
    struct tdm__conn *daemon;

    TDM_ASSERT(tdm__id_generate(&self.id) == TDM_OK);
    (void)snprintf(self.name, sizeof(self.name), "driver %u", driver->number);
    TDM_ASSERT(tdm__runtime_create(&self, daemon_token, &driver->runtime) == TDM_OK);
    (void)tdm__id_text(&daemon_here.node, driver->runtime->node_id);
    driver->runtime->unreachable_ms = 10000;
    (void)snprintf(driver->runtime->directory, sizeof(driver->runtime->directory), "%s",
                   daemon_here.directory);
    (void)snprintf(driver->runtime->name_space, sizeof(driver->runtime->name_space), "sim");
    sim_set_runtime(driver->runtime);
    tdm__rpc_set_call_handler(driver->runtime->rpc, serve, driver);
    TDM_ASSERT(tdm__rpc_connect(driver->runtime->rpc, daemon_here.address, &daemon) == TDM_OK);
    tdm__runtime_set_daemon(driver->runtime, daemon);
}

static bool may_leave(void *arg)
{
    struct driver *driver = arg;

    tdm__ref_table_counts(driver->runtime, &driver->left);
    tdm__object_memory_stats(driver->runtime, &driver->left_memory);
    return driver->may_leave;
}

static void driver_main(void *arg)
{
    struct driver *driver = arg;

    join(driver);
    for (uint32_t i = 0; i < driver->steps; i++) {
        one_step(driver);
    }
    finish(driver);
    driver->is_finished = true;
    (void)tdm__loop_run(driver->runtime->loop, may_leave, driver, TDM__NEVER);
    tdm__runtime_destroy(driver->runtime);
    driver->runtime = NULL;
    sim_set_runtime(NULL);
}

static void on_kill(void *arg)
{
    (void)arg; /* Drivers are never killed. */
}

/* A third of the simulations have no faults; in these nothing may be lost. */
void drivers_plan(struct driver *drivers, uint32_t count)
{
    static const uint32_t roughness[] = {0, 15, 60};
    uint32_t faults_per_mille = roughness[sim_below(3)];
    uint32_t steps = 30 + sim_below(170);

    for (uint32_t i = 0; i < count; i++) {
        drivers[i] = (struct driver){
            .number = i, .steps = steps / count, .faults_per_mille = faults_per_mille};
    }
}

void driver_start(struct driver *driver)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "driver %u", driver->number);
    driver->process = sim_process_create(name, driver_main, on_kill, driver);
}
