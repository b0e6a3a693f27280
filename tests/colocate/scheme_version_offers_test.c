/* scheme_version_offers_test.c - which offer a receiver takes, and how its wait for one ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/scheme/version_offers.h"

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

enum { SHORT_MS = 100, SOON_MS = 10000 };

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
    return scheme_sender(runtime, id, TDM_WEIGHTS_ACTORS, &model, 1);
}

/* Returns a pupil that has received the first version. */
static tdm_actor *connected_pupil(tdm_weights_sender *sender, const char *id)
{
    tdm_actor *pupil = scheme_pupil(runtime, id, 0);
    tdm_ref *ref = scheme_call(pupil, "connect", id);

    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    return pupil;
}

static void wait_without_an_offer_ends_in_time_and_names_the_version(void **state)
{
    tdm_weights_sender *sender = sender_of("quiet");
    tdm_actor *pupil = connected_pupil(sender, "quiet");

    (void)state;
    assert_int_equal(scheme_end(scheme_receive(pupil, "quiet", SHORT_MS), NULL), TDM_E_TIMEOUT);
    assert_non_null(strstr(tdm_error_detail(), "no version of quiet after 1 has come in time"));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

static void wait_ends_when_the_sender_is_shut_down(void **state)
{
    tdm_weights_sender *sender = sender_of("leaving");
    tdm_actor *pupil = connected_pupil(sender, "leaving");
    tdm_ref *ref = scheme_receive(pupil, "leaving", SOON_MS);
    uint8_t is_done;

    (void)state;
    assert_int_equal(tdm_wait(&ref, 1, 1, SHORT_MS, &is_done), TDM_E_TIMEOUT);
    tdm_weights_sender_shutdown(sender);
    assert_int_equal(scheme_end(ref, NULL), TDM_E_END);
    tdm_actor_destroy(pupil);
}

static void receiver_that_joins_between_two_versions_gets_the_next_one(void **state)
{
    tdm_weights_sender *sender = sender_of("between");
    tdm_actor *first = scheme_pupil(runtime, "between", PUPIL_BACKGROUND);
    tdm_actor *second = scheme_pupil(runtime, "between", PUPIL_BACKGROUND);
    tdm_ref *ref = scheme_call(first, "connect", "between");
    uint64_t version = 0;

    (void)state;
    TRY(tdm_weights_sender_connect(sender));
    TRY(scheme_end(ref, NULL));
    ref = scheme_call(second, "connect", "between");
    scheme_model_fill(&model, 2);
    /* Wait until the second receiver has joined. */
    while (tdm_weights_receivers_count(sender) < 2) {
        TRY(tdm_weights_send(sender, &version));
    }
    TRY(scheme_end(ref, NULL));
    TRY(scheme_check(first, "between", 2, version));
    TRY(scheme_check(second, "between", 2, version));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(first);
    tdm_actor_destroy(second);
}

static void offer_that_is_over_is_passed_over(void **state)
{
    tdm_weights_sender *sender = sender_of("over");
    tdm_actor *pupil = connected_pupil(sender, "over");
    uint64_t version;

    (void)state;
    sender->timeout_ms = SHORT_MS;
    assert_int_equal(tdm_weights_send(sender, NULL),
                     TDM_E_TIMEOUT); /* The pupil does not receive. */
    sender->timeout_ms = SOON_MS;
    TRY(tdm_weights_send_async(sender));
    TRY(scheme_end(scheme_receive(pupil, "over", SOON_MS), &version));
    assert_true(version == 3);
    TRY(tdm_weights_wait(sender, SOON_MS, NULL));
    tdm_weights_sender_shutdown(sender);
    tdm_actor_destroy(pupil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wait_without_an_offer_ends_in_time_and_names_the_version),
        cmocka_unit_test(wait_ends_when_the_sender_is_shut_down),
        cmocka_unit_test(receiver_that_joins_between_two_versions_gets_the_next_one),
        cmocka_unit_test(offer_that_is_over_is_passed_over),
    };
    int failed;

    runtime = one_node_start((uint64_t)16 << 20);
    scheme_model_init(&model);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    scheme_model_fini(&model);
    tdm_runtime_stop(runtime);
    return failed;
}
