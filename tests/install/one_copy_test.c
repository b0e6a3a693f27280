/* one_copy_test.c - a process has one Tandem, however many libraries it loads. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/error.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char library_path[] = TDM_TEST_BUILD_DIR "/tests/one_copy_library.so";

/* The detail is state inside libtandem: with two copies the program would read its own. */
static void loaded_library_shares_the_state_of_its_program(void **state)
{
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    tdm_status (*library_fail)(void);

    (void)state;
    assert_non_null(library);
    *(void **)&library_fail = dlsym(library, "one_copy_fail");
    assert_non_null(library_fail);
    (void)tdm__fail(TDM_E_IO, "said by the program");
    assert_int_equal(library_fail(), TDM_E_LIMIT);
    assert_string_equal(tdm_error_detail(), "said by the library");
    assert_int_equal(dlclose(library), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_library_shares_the_state_of_its_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
