/* shared_ref_test.c - entries of the reference table are found by id until they are removed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "actors/objects/shared_ref.h"

#include "tests/support/object_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* Number of references that make the table grow several times. */
enum { REFS_COUNT = 300 };

static void test_entries_are_found_while_the_table_grows(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__shared_ref *entries[REFS_COUNT];
    struct tdm__id ids[REFS_COUNT];
    tdm_ref *refs[REFS_COUNT];

    for (int i = 0; i < REFS_COUNT; i++) {
        TRY(tdm__id_generate(&ids[i]));
        assert_null(tdm__shared_ref_find(scene->objects, &ids[i]));
        TRY(tdm_put(scene->runtime, &refs[i], "i", (int64_t)i));
        TRY(tdm__shared_ref_create(scene->objects, &ids[i], refs[i], &entries[i]));
    }
    assert_int_equal(object_fixture_count(scene).owned, REFS_COUNT);
    for (int i = 0; i < REFS_COUNT; i++) {
        assert_ptr_equal(tdm__shared_ref_find(scene->objects, &ids[i]), entries[i]);
        tdm_ref_release(refs[i]); /* The last holder removes the entry. */
        assert_null(tdm__shared_ref_find(scene->objects, &ids[i]));
    }
}

static void test_an_own_reference_is_settled_and_has_no_owner(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__shared_ref *entry;
    struct tdm__id id;
    tdm_ref *ref;

    TRY(tdm__id_generate(&id));
    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)1));
    TRY(tdm__shared_ref_create(scene->objects, &id, ref, &entry));
    assert_true(tdm__shared_ref_is_settled(entry));
    assert_false(tdm__shared_ref_is_borrowed(entry));
    assert_null(tdm__shared_ref_owner_node(entry));
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_FIXTURE_TEST(test_entries_are_found_while_the_table_grows),
        OBJECT_FIXTURE_TEST(test_an_own_reference_is_settled_and_has_no_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
