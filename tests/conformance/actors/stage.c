/* stage.c - where the conformance suite of actors plays: a cluster, and how tests ask for
 * things in it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/conformance/actors/stage.h"

#include "tests/conformance/actors/test_actors.h"
#include "tests/support/two_nodes.h"

#include <poll.h>

enum { CPUS = 8, LOOK_AGAIN_MS = 5, FAULTS_ONE_IN = 8, HEALTH_MS = 4000 };

static struct two_nodes cluster;
static tdm_runtime *runtime;
static uint32_t nodes_count;
static char address[160];

tdm_runtime *stage_runtime(void)
{
    return runtime;
}

uint32_t stage_nodes(void)
{
    return nodes_count;
}

const char *stage_address(void)
{
    return address;
}

/* ---- the worlds ------------------------------------------------------------------------- */

static void set_environment(enum stage_kind kind)
{
    const char *seed = getenv("TANDEM_TEST_SEED");
    char faults[64];
    char health[16];

    (void)snprintf(health, sizeof(health), "%d", (int)HEALTH_MS);
    (void)setenv("TANDEM_RESOURCES", "licence=2", 1);
    (void)setenv("TANDEM_HEALTH_TIMEOUT_MS", health, 1);
    (void)unsetenv("OMP_NUM_THREADS");
    (void)setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c,GPU-d", 1);
    if (kind == STAGE_FAULTY) {
        (void)snprintf(faults, sizeof(faults), "%s,%d", seed == NULL ? "20261121" : seed,
                       (int)FAULTS_ONE_IN);
        (void)printf("store faults (seed, one in): %s\n", faults);
        (void)setenv("TANDEM_STORE_FAULTS", faults, 1);
    }
}

static tdm_status open_world(enum stage_kind kind)
{
    struct tdm_runtime_options options = TDM_RUNTIME_OPTIONS_INIT;
    struct tdm_runtime_info info;

    nodes_count = kind == STAGE_PRIVATE ? 1 : 2;
    options.cpus = CPUS;
    options.log_to_driver = -1;
    if (kind != STAGE_PRIVATE) {
        if (two_nodes_open(&cluster) != 0) {
            return TDM_E_NODE_LOST;
        }
        options = (struct tdm_runtime_options)TDM_RUNTIME_OPTIONS_INIT;
        options.address = cluster.first.address;
    }
    TDM_TRY(tdm_runtime_start(&options, &runtime));
    tdm_runtime_describe(runtime, &info);
    (void)snprintf(address, sizeof(address), "%s", info.address);
    return TDM_OK;
}

static int play_all(void)
{
    return conformance_creation() + conformance_placement() + conformance_calls() +
           conformance_streams() + conformance_references() + conformance_lifetimes() +
           conformance_restarts() + conformance_state() + conformance_errors();
}

int stage_play(enum stage_kind kind, int argc, char **argv)
{
    int failed = 1;

    test_actors_use();
    if (getenv("TANDEM_WORKER") != NULL) {
        return tdm_runtime_start(NULL, &runtime) == TDM_OK; /* never returns */
    }
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    actor_fixture_prepare();
    set_environment(kind);
    if (open_world(kind) == TDM_OK) {
        failed = play_all();
    } else {
        (void)fprintf(stderr, "no world: %s\n", tdm_error_detail());
    }
    tdm_runtime_stop(runtime);
    if (kind != STAGE_PRIVATE) {
        two_nodes_close(&cluster);
    }
    return failed + actor_fixture_clean_up();
}

/* ---- asking ----------------------------------------------------------------------------- */

void stage_must(tdm_status status, const char *what, const char *file, int line)
{
    if (status != TDM_OK) {
        print_error("%s: %s: %s\n", what, tdm_strerror(status), tdm_error_detail());
        _fail(file, line);
    }
}

/* In turn on either node, if nothing else is said. */
static void choose_side(struct tdm_actor_options *options)
{
    static const char *const sides[2] = {"side=first", "side=second"};
    static uint32_t next;

    if (nodes_count == 2 && options->group == NULL && options->labels[0] == NULL &&
        options->scheduling == TDM_SCHEDULE_DEFAULT) {
        options->labels[0] = sides[next++ % 2];
    }
}

tdm_actor *stage_make(const char *class_name, const struct tdm_actor_options *options,
                      const char *word)
{
    struct tdm_actor_options placed = {0};
    tdm_actor *actor = NULL;

    if (options != NULL) {
        placed = *options;
    }
    choose_side(&placed);
    if (word == NULL) {
        MUST(tdm_actor_create(runtime, class_name, &placed, &actor, ""));
    } else {
        MUST(tdm_actor_create(runtime, class_name, &placed, &actor, "s", word));
    }
    MUST(tdm_actor_wait_ready(actor, TEST_TIMEOUT_MS));
    return actor;
}

void stage_end(tdm_actor *actor)
{
    MUST(tdm_actor_kill(actor, TEST_TIMEOUT_MS));
    tdm_actor_destroy(actor);
}

int64_t stage_int(tdm_ref *ref)
{
    int64_t number = 0;

    MUST(tdm_get(ref, TEST_TIMEOUT_MS, "i", &number));
    tdm_ref_release(ref);
    return number;
}

tdm_status stage_status(tdm_ref *ref)
{
    const tdm_value *value;
    tdm_status status = tdm_get_value(ref, TEST_TIMEOUT_MS, &value);

    tdm_ref_release(ref);
    return status;
}

tdm_status stage_try(tdm_actor *actor, const char *method)
{
    return actor_fixture_call(actor, method, NULL);
}

tdm_ref *stage_call(tdm_actor *actor, const char *method)
{
    tdm_ref *ref = NULL;

    MUST(tdm_actor_call(actor, method, &ref, ""));
    return ref;
}

tdm_ref *stage_call_int(tdm_actor *actor, const char *method, int64_t argument)
{
    tdm_ref *ref = NULL;

    MUST(tdm_actor_call(actor, method, &ref, "i", argument));
    return ref;
}

int64_t stage_int_of_next_life(tdm_actor *actor, const char *method)
{
    int64_t number = 0;
    tdm_status status;

    do {
        tdm_ref *ref = stage_call(actor, method);

        status = tdm_get(ref, TEST_TIMEOUT_MS, "i", &number);
        tdm_ref_release(ref);
    } while (status == TDM_E_ACTOR_RESTARTING);
    MUST(status);
    return number;
}

void stage_detail_has(const char *part)
{
    if (strstr(tdm_error_detail(), part) == NULL) {
        fail_msg("no \"%s\" in \"%s\"", part, tdm_error_detail());
    }
}

int64_t stage_pid(tdm_actor *actor)
{
    struct tdm_actor_info info;

    tdm_actor_describe(actor, &info);
    return info.pid;
}

void stage_state(tdm_actor *actor, char state[16])
{
    const struct tdm_actor_state *actors;
    struct tdm_actor_info info;
    uint32_t count;

    tdm_actor_describe(actor, &info);
    state[0] = '\0';
    MUST(tdm_list_actors(runtime, TEST_TIMEOUT_MS, &actors, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(actors[i].id, info.id) == 0) {
            (void)snprintf(state, 16, "%s", actors[i].state);
        }
    }
    tdm_list_free(actors);
}

void stage_await_state(tdm_actor *actor, const char *wanted)
{
    char state[16] = "";

    for (int waited_ms = 0; waited_ms < TEST_TIMEOUT_MS; waited_ms += LOOK_AGAIN_MS) {
        stage_state(actor, state);
        if (strcmp(state, wanted) == 0) {
            return;
        }
        (void)poll(NULL, 0, LOOK_AGAIN_MS);
    }
    fail_msg("the actor is %s, not %s", state, wanted);
}

double stage_free(const char *resource)
{
    const struct tdm_node_state *nodes;
    uint32_t count;
    double sum = 0;

    MUST(tdm_list_nodes(runtime, TEST_TIMEOUT_MS, &nodes, &count));
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < nodes[i].amounts_count; j++) {
            if (strcmp(nodes[i].amounts[j].name, resource) == 0) {
                sum += nodes[i].amounts[j].free;
            }
        }
    }
    tdm_list_free(nodes);
    return sum;
}

void stage_await_free(const char *resource, double wanted)
{
    double amount = 0;

    for (int waited_ms = 0; waited_ms < TEST_TIMEOUT_MS; waited_ms += LOOK_AGAIN_MS) {
        amount = stage_free(resource);
        if (amount == wanted) {
            return;
        }
        (void)poll(NULL, 0, LOOK_AGAIN_MS);
    }
    fail_msg("%g of %s are free, not %g", amount, resource, wanted);
}
