/* nccl_ending_test.c - the ways in which an ncclComm_t ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "colocate/comm/nccl/ending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* What NCCL was asked for, and what it answers. */
static struct {
    unsigned finalized;
    unsigned destroyed;
    unsigned aborted;
    int finalize_result; /* Result of ncclCommFinalize. */
    int asks;            /* Questions until the asynchronous state is `state`. */
    int state;           /* Asynchronous state at the end. */
    void *context;       /* Context that was made current. */
} fake;

static int fake_finalize(void *comm)
{
    (void)comm;
    fake.finalized++;
    return fake.finalize_result;
}

static int fake_destroy(void *comm)
{
    (void)comm;
    fake.destroyed++;
    return NCCL_SUCCESS;
}

static int fake_abort(void *comm)
{
    (void)comm;
    fake.aborted++;
    return NCCL_SUCCESS;
}

static int fake_async_error(void *comm, int *state)
{
    (void)comm;
    *state = fake.asks > 0 ? NCCL_IN_PROGRESS : fake.state;
    fake.asks--;
    return NCCL_SUCCESS;
}

static int fake_set_current(void *context)
{
    fake.context = context;
    return CU_SUCCESS;
}

static const struct tdm__nccl_library library = {.ncclCommFinalize = fake_finalize,
                                                 .ncclCommDestroy = fake_destroy,
                                                 .ncclCommAbort = fake_abort,
                                                 .ncclCommGetAsyncError = fake_async_error};
static const struct tdm__cuda_driver driver = {.cuCtxSetCurrent = fake_set_current};

/* Ends an ncclComm_t with this patience. */
static void end(int64_t patience_ms)
{
    const struct tdm__nccl_ending ending = {.library = &library,
                                            .driver = &driver,
                                            .context = &fake,
                                            .comm = &fake,
                                            .patience_ms = patience_ms};

    tdm__nccl_end(&ending);
    assert_ptr_equal(fake.context, &fake);
}

static int set_up(void **state)
{
    (void)state;
    fake.finalized = fake.destroyed = fake.aborted = 0;
    fake.finalize_result = NCCL_IN_PROGRESS;
    fake.asks = 3;
    fake.state = NCCL_SUCCESS;
    return 0;
}

static void test_group_that_lives_is_finalized_and_destroyed(void **state)
{
    (void)state;
    end(20000);
    assert_int_equal(fake.finalized, 1);
    assert_int_equal(fake.destroyed, 1);
    assert_int_equal(fake.aborted, 0);
    assert_int_equal(fake.asks, -1);
}

static void test_group_that_failed_is_aborted_at_once(void **state)
{
    (void)state;
    end(0);
    assert_int_equal(fake.finalized, 0);
    assert_int_equal(fake.destroyed, 0);
    assert_int_equal(fake.aborted, 1);
}

static void test_rank_that_does_not_leave_is_not_waited_for_for_ever(void **state)
{
    (void)state;
    fake.asks = 1 << 20;
    end(5);
    assert_int_equal(fake.finalized, 1);
    assert_int_equal(fake.destroyed, 0);
    assert_int_equal(fake.aborted, 1);
}

static void test_failure_of_nccl_ends_in_an_abort(void **state)
{
    (void)state;
    fake.state = NCCL_REMOTE_ERROR;
    end(20000);
    assert_int_equal(fake.asks, -1); /* The state is final, so that it is not asked for again. */
    assert_int_equal(fake.destroyed, 0);
    assert_int_equal(fake.aborted, 1);
    (void)set_up(state);
    fake.finalize_result = NCCL_INVALID_USAGE;
    end(20000);
    assert_int_equal(fake.destroyed, 0);
    assert_int_equal(fake.aborted, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_group_that_lives_is_finalized_and_destroyed, set_up),
        cmocka_unit_test_setup(test_group_that_failed_is_aborted_at_once, set_up),
        cmocka_unit_test_setup(test_rank_that_does_not_leave_is_not_waited_for_for_ever, set_up),
        cmocka_unit_test_setup(test_failure_of_nccl_ends_in_an_abort, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
