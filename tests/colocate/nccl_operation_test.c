/* nccl_operation_test.c - how operations of the communicator over NCCL start, wait and fail. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/operation.h"
#include "runtime/error.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The functions of NCCL, of the driver and of the control communicator that an operation calls,
 * and what they return. */
static struct {
    tdm_status synchronized;  /* Result of synchronize of the control communicator. */
    tdm_status checked;       /* Result of check of the control communicator. */
    int checks_until_known;   /* Checks of the control communicator that still return TDM_OK. */
    int async_state;          /* State that ncclCommGetAsyncError reports. */
    int polls_until_done;     /* Polls after which the state is NCCL_SUCCESS; negative: never. */
    unsigned control_aborted; /* Number of aborts of the control communicator. */
    unsigned comm_aborted;    /* Number of calls of ncclCommAbort. */
    bool others_knew;         /* The control communicator was aborted before ncclCommAbort. */
} fake;

static tdm_status fake_synchronize(struct tdm__comm *comm, const struct tdm__collective_op *call)
{
    (void)comm;
    (void)call;
    return fake.synchronized;
}

static tdm_status fake_check(struct tdm__comm *comm)
{
    (void)comm;
    if (fake.checks_until_known > 0) {
        fake.checks_until_known--;
        return TDM_OK;
    }
    return fake.checked == TDM_OK ? TDM_OK : tdm__fail(fake.checked, "rank 2 of 3 died");
}

static void fake_abort(struct tdm__comm *comm)
{
    (void)comm;
    fake.control_aborted++;
}

static int fake_set_current(void *context)
{
    (void)context;
    return CU_SUCCESS;
}

static int fake_comm_abort(void *comm)
{
    (void)comm;
    fake.others_knew = fake.control_aborted > 0;
    fake.comm_aborted++;
    return NCCL_SUCCESS;
}

static int fake_async_error(void *comm, int *state)
{
    (void)comm;
    if (fake.polls_until_done == 0) {
        fake.async_state = NCCL_SUCCESS;
    }
    fake.polls_until_done--;
    *state = fake.async_state;
    return NCCL_SUCCESS;
}

static const char *fake_error_string(int result)
{
    return result == NCCL_SYSTEM_ERROR ? "system error" : "other error";
}

static const char *fake_last_error(void *comm)
{
    (void)comm;
    return "no route";
}

static const struct tdm__comm_ops control_ops = {
    .name = "control", .abort = fake_abort, .check = fake_check, .synchronize = fake_synchronize};
static struct tdm__comm control = {.ops = &control_ops, .rank = 1, .ranks_count = 3};
static struct tdm__cuda_driver driver;
static struct tdm__nccl_library library;
static struct tdm__nccl nccl;
static int nccl_handle;

static int set_up(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.async_state = NCCL_IN_PROGRESS;
    driver = (struct tdm__cuda_driver){.cuCtxSetCurrent = fake_set_current};
    library = (struct tdm__nccl_library){.ncclCommAbort = fake_comm_abort,
                                         .ncclCommGetAsyncError = fake_async_error,
                                         .ncclGetErrorString = fake_error_string,
                                         .ncclGetLastError = fake_last_error};
    nccl = (struct tdm__nccl){.base = control,
                              .library = &library,
                              .driver = &driver,
                              .control_comm = &control,
                              .comm = &nccl_handle,
                              .timeout_ms = 20};
    return 0;
}

static tdm_status begin(enum tdm__collective_op_kind kind, uint64_t size_bytes)
{
    const struct tdm__collective_op call = {.kind = kind, .size_bytes = size_bytes};

    return tdm__nccl_op_begin(&nccl, &call);
}

static void test_operation_starts_after_all_ranks_are_in_it(void **state)
{
    (void)state;
    assert_int_equal(begin(TDM__COLLECTIVE_GATHER, 8), TDM_OK);
    assert_true(nccl.deadline_ms > 0);
    fake.synchronized = TDM_E_ABORTED;
    assert_int_equal(begin(TDM__COLLECTIVE_GATHER, 8), TDM_E_ABORTED);
}

static void test_wait_ends_when_nccl_is_done(void **state)
{
    (void)state;
    assert_int_equal(begin(TDM__COLLECTIVE_GATHER, 8), TDM_OK);
    fake.polls_until_done = 3;
    assert_int_equal(tdm__nccl_await_result(&nccl, NCCL_IN_PROGRESS, "ncclSend"), TDM_OK);
    assert_int_equal(fake.control_aborted, 0);
}

static void test_deadline_and_death_end_the_group(void **state)
{
    (void)state;
    fake.polls_until_done = -1;
    assert_int_equal(begin(TDM__COLLECTIVE_GATHER, 8), TDM_OK);
    assert_int_equal(tdm__nccl_await_result(&nccl, NCCL_IN_PROGRESS, "ncclSend"), TDM_E_TIMEOUT);
    assert_string_equal(tdm_error_detail(), "rank 1 of 3: ncclSend did not end within 20 ms");
    assert_int_equal(fake.comm_aborted, 1);
    assert_int_equal(fake.control_aborted, 1);
    assert_true(fake.others_knew);
    assert_null(nccl.comm);

    nccl.comm = &nccl_handle;
    fake.checked = TDM_E_ABORTED;
    assert_int_equal(tdm__nccl_await_result(&nccl, NCCL_IN_PROGRESS, "ncclSend"), TDM_E_ABORTED);
    assert_int_equal(fake.comm_aborted, 2);
}

static void test_failure_of_nccl_has_its_text(void **state)
{
    (void)state;
    assert_int_equal(tdm__nccl_await_result(&nccl, NCCL_SYSTEM_ERROR, "ncclRecv"), TDM_E_DEVICE);
    assert_string_equal(tdm_error_detail(), "rank 1 of 3: ncclRecv: system error (2): no route");
    assert_int_equal(fake.control_aborted, 1);
}

static void test_rank_that_nccl_lost_is_named(void **state)
{
    (void)state;
    fake.async_state = NCCL_REMOTE_ERROR;
    fake.polls_until_done = -1;
    fake.checked = TDM_E_ABORTED;
    fake.checks_until_known = 20;
    assert_int_equal(tdm__nccl_await_result(&nccl, NCCL_IN_PROGRESS, "ncclSend"), TDM_E_ABORTED);
    assert_string_equal(tdm_error_detail(), "rank 2 of 3 died");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_operation_starts_after_all_ranks_are_in_it, set_up),
        cmocka_unit_test_setup(test_wait_ends_when_nccl_is_done, set_up),
        cmocka_unit_test_setup(test_deadline_and_death_end_the_group, set_up),
        cmocka_unit_test_setup(test_failure_of_nccl_has_its_text, set_up),
        cmocka_unit_test_setup(test_rank_that_nccl_lost_is_named, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
