/* borrowed_ref.c - a reference that a runtime borrows from an owner that the test plays. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/borrowed_ref.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

void borrowed_ref_open_of(struct borrowed_ref *borrowed, struct object_fixture *scene,
                          enum tdm__peer_kind kind)
{
    borrowed->scene = scene;
    object_fixture_owner(scene, kind, &borrowed->owner);
    TRY(tdm__id_generate(&borrowed->id));
    TRY(object_fixture_open_reference(scene, &borrowed->owner, &borrowed->id, &borrowed->ref));
}

void borrowed_ref_open(struct borrowed_ref *borrowed, struct object_fixture *scene)
{
    borrowed_ref_open_of(borrowed, scene, TDM__PEER_DRIVER);
}

bool borrowed_ref_is_done(void *arg)
{
    return ((const struct borrowed_ref *)arg)->ref->done;
}

void borrowed_ref_expect_failure(struct borrowed_ref *borrowed, tdm_status status,
                                 const char *words)
{
    remote_peer_run(borrowed->scene->runtime->loop, borrowed_ref_is_done, borrowed);
    assert_int_equal(borrowed->ref->status, status);
    assert_non_null(strstr(borrowed->ref->detail, words));
}

void borrowed_ref_acknowledge(struct borrowed_ref *borrowed)
{
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed->owner, "object.pin"), "");
    object_fixture_settle(borrowed->scene);
}

void borrowed_ref_close(struct borrowed_ref *borrowed)
{
    tdm_ref_release(borrowed->ref);
    tdm__incoming_reply_pack(object_fixture_expect(&borrowed->owner, "object.unpin"), "");
    object_fixture_settle(borrowed->scene);
    assert_int_equal(borrowed->owner.held_count, 0);
    remote_peer_close(&borrowed->owner);
}
