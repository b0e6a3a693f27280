/* scheme_two_nodes_test.c - a receiver beside its sender, and one on another node. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/one_node.h"
#include "tests/support/scheme_world.h"
#include "tests/support/two_nodes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SOON_MS = 20000, SCHEMES = 4 };

static struct two_nodes cluster;
static tdm_runtime *runtime; /* a driver of the first */

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_actor *pupil_on(const char *label, const char *id)
{
    const struct tdm_actor_options options = {.labels = {label}};
    tdm_actor *pupil;
    tdm_ref *ref;

    TRY(tdm_actor_create(runtime, "pupil", &options, &pupil, ""));
    TRY(tdm_actor_call(pupil, "open", &ref, "suu", id, (uint64_t)PUPIL_KEEPS, (uint64_t)0));
    TRY(scheme_end(ref, NULL));
    return pupil;
}

/* Both serve it, then the far one dies. */
static void send_to_both(enum tdm_weights_scheme scheme, tdm_actor *pupils[2], const char *id)
{
    struct scheme_model model;
    struct tdm_actor_info info;
    tdm_weights_sender *sender;
    tdm_ref *refs[2];
    uint64_t version;
    tdm_status status;

    scheme_model_init(&model);
    scheme_model_fill(&model, 3);
    sender = scheme_sender(runtime, id, scheme, &model, 2);
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_call(pupils[i], "connect", id);
    }
    TRY(tdm_weights_sender_connect(sender));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        TRY(scheme_check(pupils[i], id, 3, 1));
    }
    tdm_actor_describe(pupils[1], &info);
    one_node_shoot(pupils[1]);
    scheme_model_fill(&model, 4);
    do {
        refs[0] = scheme_receive(pupils[0], id, SOON_MS);
        status = tdm_weights_send(sender, &version);
        if (status != TDM_OK) {
            assert_int_equal(status, TDM_E_ACTOR_DIED);
            assert_non_null(strstr(tdm_error_detail(), info.id));
        }
        assert_int_equal(scheme_end(refs[0], NULL), status == TDM_OK ? TDM_OK : TDM_E_ABORTED);
    } while (status != TDM_OK);
    TRY(scheme_check(pupils[0], id, 4, version));
    tdm_weights_sender_shutdown(sender);
    scheme_model_fini(&model);
}

static void a_receiver_on_another_node_is_one_like_any_other(void **state)
{
    static const struct {
        enum tdm_weights_scheme scheme;
        const char *id;
    } cases[SCHEMES] = {{TDM_WEIGHTS_SHARED, "far.shared"},
                        {TDM_WEIGHTS_PROCESSES, "far.processes"},
                        {TDM_WEIGHTS_RPC, "far.rpc"},
                        {TDM_WEIGHTS_ACTORS, "far.actors"}};

    (void)state;
    for (int i = 0; i < SCHEMES; i++) {
        tdm_actor *pupils[2] = {pupil_on("side=first", cases[i].id),
                                pupil_on("side=second", cases[i].id)};

        send_to_both(cases[i].scheme, pupils, cases[i].id);
        tdm_actor_destroy(pupils[0]);
        tdm_actor_destroy(pupils[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_receiver_on_another_node_is_one_like_any_other),
    };
    int failed;

    runtime = two_nodes_join(&cluster);
    if (runtime == NULL) {
        return 1;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    return failed + two_nodes_leave(&cluster, runtime);
}
