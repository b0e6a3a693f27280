/* object_scene.c - a runtime whose references others borrow, and who borrows theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_scene.h"

#include "tests/support/rpc_pair.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TRY(x) assert_int_equal((x), TDM_OK)

static void serve(void *arg, struct tdm__incoming *incoming)
{
    struct object_scene *scene = arg;

    if (!tdm__objects_serve(scene->runtime, incoming)) {
        assert_null(scene->last);
        scene->last = incoming;
    }
}

int object_scene_open(void **state)
{
    struct object_scene *scene = calloc(1, sizeof(*scene));
    struct tdm__identity self = pair_identity("this");

    assert_non_null(scene);
    (void)snprintf(scene->directory, sizeof(scene->directory), "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(scene->directory));
    TRY(tdm__id_make(&self.id));
    TRY(tdm__id_make(&self.node));
    TRY(tdm__runtime_create(&self, pair_token, &scene->runtime));
    (void)snprintf(scene->runtime->directory, sizeof(scene->runtime->directory), "%s",
                   scene->directory);
    tdm__runtime_set_current(scene->runtime);
    tdm__rpc_serve(scene->runtime->rpc, serve, scene);
    scene->objects = scene->runtime->objects;
    *state = scene;
    return 0;
}

int object_scene_close(void **state)
{
    struct object_scene *scene = *state;
    struct tdm__objects_count count;

    assert_null(scene->last);
    object_scene_settle(scene);
    count = object_scene_count(scene);
    assert_int_equal(count.owned + count.loans + count.borrowed + count.kept, 0);
    tdm__runtime_destroy(scene->runtime);
    (void)rmdir(scene->directory);
    free(scene);
    return 0;
}

void object_scene_borrower(struct object_scene *scene, struct far_end *borrower)
{
    TRY(tdm__objects_listen(scene->objects));
    far_end_open(borrower, scene->runtime->loop, TDM__PEER_WORKER, "borrower");
    far_end_connect(borrower, scene->objects->address.unix_address);
}

static void owner_address(const struct object_scene *scene, const struct far_end *owner,
                          char address[TDM__ADDRESS_BYTES])
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(address, TDM__ADDRESS_BYTES, "unix:%s/" TDM__OWNER_SOCKET, scene->directory,
                   tdm__id_text(&owner->self.id, id));
}

void object_scene_owner(struct object_scene *scene, enum tdm__peer_kind kind,
                        struct far_end *owner)
{
    char address[TDM__ADDRESS_BYTES];

    far_end_open(owner, scene->runtime->loop, kind, "owner");
    owner->self.node = scene->runtime->self.node;
    tdm__rpc_set_identity(owner->rpc, &owner->self);
    owner_address(scene, owner, address);
    far_end_listen(owner, address, NULL, 0);
}

tdm_status object_scene_open_reference(struct object_scene *scene, const struct far_end *owner,
                                       const struct tdm__id *object, tdm_ref **ref_out)
{
    const struct tdm__identity *self = &owner->self;
    char address[TDM__ADDRESS_BYTES];
    tdm_writer *writer;
    tdm_status status;

    owner_address(scene, owner, address);
    TRY(tdm_writer_create(&writer));
    TRY(tdm_pack(writer, "bibbsss", (const void *)object->bytes, sizeof(object->bytes),
                 (int64_t)self->kind, (const void *)self->id.bytes, sizeof(self->id.bytes),
                 (const void *)self->node.bytes, sizeof(self->node.bytes), address, "",
                 "actor maker"));
    status = tdm__reference_open(scene->runtime, tdm_writer_bytes(writer), ref_out);
    tdm_writer_destroy(writer);
    return status;
}

struct tdm__incoming *object_scene_expect(struct far_end *end, const char *method)
{
    far_end_hold(end, 1);
    assert_string_equal(tdm__incoming_method(end->held[0]), method);
    return far_end_take(end);
}

struct tdm__objects_count object_scene_count(struct object_scene *scene)
{
    struct tdm__objects_count count;

    tdm__objects_count(scene->runtime, &count);
    return count;
}

void object_scene_settle(struct object_scene *scene)
{
    far_end_settle(scene->runtime->loop);
}
