/* scheme_receive_version_test.c - a receiver obeys the outcome of a version that it has received.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/receive_version.h"

#include "colocate/scheme/sender.h"
#include "tests/support/one_node.h"
#include "tests/support/scheme_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) tried((x), #x, __LINE__)

enum { SHORT_MS = 1500, SOON_MS = 10000 };

static tdm_runtime *runtime;
static struct scheme_model model;

static void tried(tdm_status status, const char *what, int line)
{
    if (status != TDM_OK) {
        fail_msg("line %d: %s: %s: %s", line, what, tdm_strerror(status), tdm_error_detail());
    }
}

static tdm_weights_sender *sender_of(const char *id)
{
    scheme_model_fill(&model, 1);
    return scheme_sender(runtime, id, TDM_WEIGHTS_ACTORS, &model, 2);
}

/* The other pupil does not receive, so that the sender gives the version up. */
static void aborted_version_is_discarded_and_the_one_before_is_served(void **state)
{
    tdm_weights_sender *sender = sender_of("aborted");
    tdm_actor *pupils[2];
    tdm_ref *refs[2];
    uint64_t version;

    (void)state;
    for (int i = 0; i < 2; i++) {
        pupils[i] = scheme_pupil(runtime, "aborted", 0);
        refs[i] = scheme_call(pupils[i], "connect", "aborted");
    }
    TRY(tdm_weights_sender_connect(sender));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
    }
    refs[0] = scheme_receive(pupils[0], "aborted", SOON_MS);
    scheme_model_fill(&model, 2);
    sender->timeout_ms = SHORT_MS;
    assert_int_equal(tdm_weights_send(sender, NULL), TDM_E_TIMEOUT);
    assert_int_equal(scheme_end(refs[0], NULL), TDM_E_ABORTED);
    assert_non_null(strstr(tdm_error_detail(), "aborted"));
    TRY(scheme_check(pupils[0], "aborted", 1, 1));
    sender->timeout_ms = SOON_MS;
    for (int i = 0; i < 2; i++) {
        refs[i] = scheme_receive(pupils[i], "aborted", SOON_MS);
    }
    TRY(tdm_weights_send(sender, &version));
    for (int i = 0; i < 2; i++) {
        TRY(scheme_end(refs[i], NULL));
        TRY(scheme_check(pupils[i], "aborted", 2, version));
        tdm_actor_destroy(pupils[i]);
    }
    tdm_weights_sender_shutdown(sender);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aborted_version_is_discarded_and_the_one_before_is_served),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    scheme_model_init(&model);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scheme_model_fini(&model);
    tdm_runtime_stop(runtime);
    return failed;
}
