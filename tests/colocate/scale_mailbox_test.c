/* scale_mailbox_test.c - a request for another number of engines waits for the controller. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/job/scale_mailbox.h"

#include "colocate/job/rank.h"
#include "runtime/messages/messages.h"
#include "tests/support/mailbox_actor.h"
#include "tests/support/one_node.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

enum { GPU_BYTES = 4 << 20, CALL_MS = 20000 };

static tdm_runtime *runtime;
static tdm_actor *mailbox;
static tdm_ref *reply; /* The last reply, from which texts are borrowed. */

static int open_actor(void **state)
{
    (void)state;
    mailbox = one_node_actor(runtime, "mailbox_of_test", "trainer/0", 0);
    return mailbox == NULL ? -1 : 0;
}

static int close_actor(void **state)
{
    (void)state;
    tdm_ref_release(reply);
    reply = NULL;
    if (tdm_actor_kill(mailbox, CALL_MS) != TDM_OK) {
        return -1;
    }
    tdm_actor_destroy(mailbox);
    return 0;
}

/* Calls a method and returns the reply. */
static const tdm_value *call(const char *method, const struct tdm__message *table,
                             const void *arguments)
{
    const tdm_value *value;

    tdm_ref_release(reply);
    TRY(tdm__rank_call(mailbox, method, table, arguments, &reply));
    TRY(tdm_get_value(reply, CALL_MS, &value));
    return value;
}

/* Asks as a command does. */
static struct tdm__scale_reply_message ask(uint32_t engines)
{
    const struct tdm__scale_message request = {engines};
    struct tdm__scale_reply_message message;

    TRY(tdm__scale_reply_decode(call("scale", tdm__scale_table(), &request), &message));
    return message;
}

/* Tells the answer to request `answered` as the controller does. */
static struct tdm__scale_request_message tell(uint64_t answered, const char *refusal)
{
    const struct tdm__scale_state_message state = {
        .job = "arith",
        .engines = 2,
        .lack = "",
        .answered = answered,
        .status = refusal[0] == '\0' ? (int64_t)TDM_OK : (int64_t)TDM_E_LIMIT,
        .refusal = refusal};
    struct tdm__scale_request_message message;

    TRY(tdm__scale_request_decode(call("report_scale", tdm__scale_state_table(), &state),
                                  &message));
    return message;
}

static void request_waits_until_the_controller_asks(void **state)
{
    struct tdm__scale_reply_message asked;
    struct tdm__scale_request_message request;

    (void)state;
    asked = ask(0);
    assert_int_equal(asked.number, 0);
    assert_string_equal(asked.state.job, "");
    assert_int_equal(tell(0, "").number, 0);
    asked = ask(3);
    assert_int_equal(asked.number, 1);
    assert_string_equal(asked.state.job, "arith");
    request = tell(0, "");
    assert_int_equal(request.number, 1);
    assert_int_equal(request.engines, 3);
    (void)tell(1, "too many");
    asked = ask(0);
    assert_int_equal(asked.number, 1);
    assert_int_equal(asked.state.answered, 1);
    assert_int_equal(asked.state.status, TDM_E_LIMIT);
    assert_string_equal(asked.state.refusal, "too many");
}

static void request_is_repeated_only_after_its_answer(void **state)
{
    (void)state;
    assert_int_equal(ask(3).number, 1);
    assert_int_equal(ask(3).number, 1); /* The same request, from another command. */
    assert_int_equal(ask(4).number, 2);
    assert_int_equal(tell(2, "").engines, 4);
    assert_int_equal(ask(4).number, 3); /* The controller may have refused the one before. */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(request_waits_until_the_controller_asks, open_actor,
                                        close_actor),
        cmocka_unit_test_setup_teardown(request_is_repeated_only_after_its_answer, open_actor,
                                        close_actor),
    };
    int failed;

    runtime = one_node_start(GPU_BYTES);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    tdm_runtime_stop(runtime);
    return failed;
}
