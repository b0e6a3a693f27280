/* holds_test.c - references kept for what contains them: all or none, and told once settled. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_scene.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

/* ---- references of another process --------------------------------------------------------
 */

struct lent {
    struct object_scene *scene;
    struct far_end owner;
    tdm_ref *refs[3];
};

static void borrow(struct lent *lent, struct object_scene *scene)
{
    lent->scene = scene;
    object_scene_owner(scene, TDM__PEER_DRIVER, &lent->owner);
    for (int i = 0; i < 3; i++) {
        struct tdm__id id;

        TRY(tdm__id_make(&id));
        TRY(object_scene_open_reference(scene, &lent->owner, &id, &lent->refs[i]));
    }
    far_end_hold(&lent->owner, 3);
}

static void acknowledge(struct lent *lent)
{
    tdm__incoming_reply_pack(object_scene_expect(&lent->owner, "object.hold"), "");
    object_scene_settle(lent->scene);
}

static void give_back(struct lent *lent)
{
    for (int i = 0; i < 3; i++) {
        tdm_ref_release(lent->refs[i]);
    }
    object_scene_settle(lent->scene);
    far_end_close(&lent->owner);
}

/* All three, as one that was packed has them. */
static void hold_all(const struct lent *lent, struct tdm__holds *holds)
{
    *holds = (struct tdm__holds){0};
    for (int i = 0; i < 3; i++) {
        TRY(tdm__holds_add(holds, lent->refs[i]));
    }
}

/* ---- a list ----------------------------------------------------------------------------- */

static void the_same_reference_is_held_as_often_as_it_was_added(void **state)
{
    struct object_scene *scene = *state;
    struct tdm__holds holds = {0};
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    for (uint32_t i = 0; i < 9; i++) { /* more than there is room for at first */
        TRY(tdm__holds_add(&holds, ref));
        assert_int_equal(atomic_load(&ref->holders_count), 2 + i);
    }
    tdm__holds_release(&holds);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    assert_int_equal(holds.count, 0);
    tdm__holds_release(&holds); /* of nothing */
    tdm_ref_release(ref);
}

/* ---- settled ---------------------------------------------------------------------------- */

struct told {
    uint32_t count;
    uint32_t at;      /* in the order of all that are told */
    tdm_ref *lets_go; /* of this; NULL: of nothing */
};
static uint32_t told_total;

static void on_settled(void *arg)
{
    struct told *told = arg;

    told->count++;
    told->at = ++told_total;
    tdm_ref_release(told->lets_go);
    told->lets_go = NULL;
}

static void of_nothing_it_is_told_at_once(void **state)
{
    struct object_scene *scene = *state;
    struct tdm__holds holds = {0};
    struct told told = {0};

    assert_true(tdm__holds_settled(&holds));
    TRY(tdm__holds_settle(scene->runtime, &holds, 0));
    TRY(tdm__holds_when_settled(scene->runtime, &holds, on_settled, &told));
    assert_int_equal(told.count, 1);
}

static void it_is_told_once_with_the_last_answer(void **state)
{
    struct lent lent;
    struct tdm__holds holds;
    struct told told = {0};

    borrow(&lent, *state);
    hold_all(&lent, &holds);
    TRY(tdm__holds_when_settled(lent.scene->runtime, &holds, on_settled, &told));
    tdm__holds_release(&holds); /* it keeps its own */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(told.count, 0);
        assert_true(atomic_load(&lent.refs[i]->holders_count) > 1);
        acknowledge(&lent);
    }
    assert_int_equal(told.count, 1);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(atomic_load(&lent.refs[i]->holders_count), 1);
    }
    give_back(&lent);
    assert_int_equal(told.count, 1);
}

static void several_are_told_in_the_order_in_which_they_asked(void **state)
{
    struct lent lent;
    struct tdm__holds holds;
    struct told told[3] = {{0}, {0}, {0}};

    borrow(&lent, *state);
    hold_all(&lent, &holds);
    told[0].lets_go = lent.refs[0]; /* and so comes back to the list */
    lent.refs[0] = NULL;
    told_total = 0;
    for (int i = 0; i < 3; i++) {
        TRY(tdm__holds_when_settled(lent.scene->runtime, &holds, on_settled, &told[i]));
    }
    tdm__holds_release(&holds);
    for (int i = 0; i < 3; i++) {
        acknowledge(&lent);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(told[i].count, 1);
        assert_int_equal(told[i].at, i + 1);
    }
    give_back(&lent);
}

static void an_owner_that_is_gone_has_nothing_to_settle(void **state)
{
    struct lent lent;
    struct tdm__holds holds;
    struct told told = {0};

    borrow(&lent, *state);
    hold_all(&lent, &holds);
    assert_int_equal(tdm__holds_settle(lent.scene->runtime, &holds, 0), TDM_E_TIMEOUT);
    TRY(tdm__holds_when_settled(lent.scene->runtime, &holds, on_settled, &told));
    far_end_cut(&lent.owner);
    TRY(tdm__holds_settle(lent.scene->runtime, &holds, FAR_END_WAIT_MS));
    object_scene_settle(lent.scene);
    assert_int_equal(told.count, 1);
    tdm__holds_release(&holds);
    give_back(&lent);
}

static void at_the_end_all_are_told_settled_or_not(void **state)
{
    struct lent lent;
    struct tdm__holds holds;
    struct told told[2] = {{0}, {0}};

    borrow(&lent, *state);
    hold_all(&lent, &holds);
    for (int i = 0; i < 2; i++) {
        TRY(tdm__holds_when_settled(lent.scene->runtime, &holds, on_settled, &told[i]));
    }
    tdm__holds_release(&holds);
    tdm__holds_give_up(lent.scene->runtime);
    assert_int_equal(told[0].count + told[1].count, 2);
    for (int i = 0; i < 3; i++) {
        acknowledge(&lent);
    }
    assert_int_equal(told[0].count + told[1].count, 2);
    give_back(&lent);
}

/* ---- what a document contains ------------------------------------------------------------ */

/* A reference of this process, and behind it one that cannot be opened. */
static void of_a_wrong_document_nothing_is_held(void **state)
{
    static const char wrong[] = "\xc7\x01"; /* a reference of one byte, which is no array */
    struct object_scene *scene = *state;
    struct tdm__holds holds = {0};
    char bytes[512];
    tdm_document *document;
    struct tdm_bytes packed;
    tdm_writer *writer;
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    TRY(tdm_writer_create(&writer));
    tdm_write_array(writer, 3);
    TRY(tdm__reference_write(writer, ref));
    tdm_write_string(writer, "between");
    packed = tdm_writer_bytes(writer);
    assert_true(packed.size_bytes + 4 <= sizeof(bytes));
    memcpy(bytes, packed.data, packed.size_bytes);
    memcpy(bytes + packed.size_bytes, wrong, 2);
    bytes[packed.size_bytes + 2] = TDM__EXT_REFERENCE;
    bytes[packed.size_bytes + 3] = '\x07';
    packed = (struct tdm_bytes){bytes, packed.size_bytes + 4};
    TRY(tdm_document_parse(packed, &document));
    assert_int_equal(tdm__holds_of_document(scene->runtime, document, &holds), TDM_E_PROTOCOL);
    assert_int_equal(holds.count, 0);
    assert_int_equal(tdm__holds_of_packed(scene->runtime, packed, &holds), TDM_E_PROTOCOL);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_document_destroy(document);
    tdm_writer_destroy(writer);
    tdm_ref_release(ref);
}

static tdm_status pack(tdm_runtime *runtime, tdm_writer *writer, struct tdm__holds *holds,
                       const char *format, ...)
{
    tdm_status status;
    va_list args;

    va_start(args, format);
    status = tdm__links_pack(runtime, writer, format, args, holds);
    va_end(args);
    return status;
}

static void what_is_packed_is_held_or_refused(void **state)
{
    struct object_scene *scene = *state;
    struct tdm__holds holds = {0};
    struct tdm_bytes inner;
    tdm_writer *writers[2];
    tdm_ref *ref;

    TRY(tdm_put(scene->runtime, &ref, "i", (int64_t)7));
    for (int i = 0; i < 2; i++) {
        TRY(tdm_writer_create(&writers[i]));
    }
    assert_int_equal(pack(NULL, writers[0], &holds, "R", ref), TDM_E_STATE);
    tdm_writer_clear(writers[0]);
    assert_int_equal(pack(scene->runtime, writers[0], &holds, "Rr", ref, ref), TDM_E_INVAL);
    assert_int_equal(atomic_load(&ref->holders_count), 1);
    tdm_writer_clear(writers[0]);
    TRY(pack(scene->runtime, writers[0], &holds, "iR", (int64_t)1, ref));
    assert_int_equal(holds.count, 1);
    inner = tdm_writer_bytes(writers[0]);
    TRY(pack(scene->runtime, writers[1], &holds, "p", &inner)); /* inside what others packed */
    assert_int_equal(holds.count, 2);
    assert_int_equal(atomic_load(&ref->holders_count), 3);
    tdm__holds_release(&holds);
    for (int i = 0; i < 2; i++) {
        tdm_writer_destroy(writers[i]);
    }
    tdm_ref_release(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OBJECT_SCENE_TEST(the_same_reference_is_held_as_often_as_it_was_added),
        OBJECT_SCENE_TEST(of_nothing_it_is_told_at_once),
        OBJECT_SCENE_TEST(it_is_told_once_with_the_last_answer),
        OBJECT_SCENE_TEST(several_are_told_in_the_order_in_which_they_asked),
        OBJECT_SCENE_TEST(an_owner_that_is_gone_has_nothing_to_settle),
        OBJECT_SCENE_TEST(at_the_end_all_are_told_settled_or_not),
        OBJECT_SCENE_TEST(of_a_wrong_document_nothing_is_held),
        OBJECT_SCENE_TEST(what_is_packed_is_held_or_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
