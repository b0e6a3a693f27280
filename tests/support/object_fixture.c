/* object_fixture.c - a runtime whose references others borrow, and who borrows theirs. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/object_fixture.h"

#include "actors/objects/objects.h"
#include "actors/objects/owned_refs.h"
#include "actors/objects/ref_table.h"
#include "actors/runtime_create.h"
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

static void serve(void *arg, struct tdm__incoming_call *incoming)
{
    struct object_fixture *scene = arg;

    if (!tdm__objects_serve(scene->runtime, incoming)) {
        assert_null(scene->last);
        scene->last = incoming;
    }
}

int object_fixture_open(void **state)
{
    struct object_fixture *scene = calloc(1, sizeof(*scene));
    struct tdm__peer_identity self = pair_identity("this");

    assert_non_null(scene);
    (void)snprintf(scene->directory, sizeof(scene->directory), "/tmp/tandem-test-XXXXXX");
    assert_non_null(mkdtemp(scene->directory));
    TRY(tdm__id_generate(&self.id));
    TRY(tdm__id_generate(&self.node));
    TRY(tdm__runtime_create(&self, pair_token, &scene->runtime));
    (void)snprintf(scene->runtime->directory, sizeof(scene->runtime->directory), "%s",
                   scene->directory);
    tdm__runtime_set_current(scene->runtime);
    tdm__rpc_set_call_handler(scene->runtime->rpc, serve, scene);
    scene->objects = scene->runtime->objects;
    *state = scene;
    return 0;
}

int object_fixture_close(void **state)
{
    struct object_fixture *scene = *state;
    struct tdm__ref_table_counts count;

    assert_null(scene->last);
    object_fixture_settle(scene);
    count = object_fixture_count(scene);
    assert_int_equal(count.owned + count.borrower_pins + count.borrowed + count.reply_pins, 0);
    tdm__runtime_destroy(scene->runtime);
    (void)rmdir(scene->directory);
    free(scene);
    return 0;
}

void object_fixture_borrower(struct object_fixture *scene, struct remote_peer *borrower)
{
    TRY(tdm__ref_table_listen(scene->objects));
    remote_peer_open(borrower, scene->runtime->loop, TDM__PEER_WORKER, "borrower");
    remote_peer_connect(borrower, scene->objects->address.unix_address);
}

static void owner_address(const struct object_fixture *scene, const struct remote_peer *owner,
                          char address[TDM__ADDRESS_BYTES])
{
    char id[TDM__ID_TEXT_BYTES];

    (void)snprintf(address, TDM__ADDRESS_BYTES, "unix:%s/" TDM__OWNER_SOCKET, scene->directory,
                   tdm__id_text(&owner->self.id, id));
}

void object_fixture_owner(struct object_fixture *scene, enum tdm__peer_kind kind,
                          struct remote_peer *owner)
{
    char address[TDM__ADDRESS_BYTES];

    remote_peer_open(owner, scene->runtime->loop, kind, "owner");
    owner->self.node = scene->runtime->self.node;
    tdm__rpc_set_identity(owner->rpc, &owner->self);
    owner_address(scene, owner, address);
    remote_peer_listen(owner, address, NULL, 0);
}

/* Packs a reference to an object of `owner` as a process of this node does. */
static void pack_reference(const struct object_fixture *scene, const struct remote_peer *owner,
                           const struct tdm__id *object, tdm_writer *writer)
{
    const struct tdm__peer_identity *self = &owner->self;
    char address[TDM__ADDRESS_BYTES];

    owner_address(scene, owner, address);
    TRY(tdm_pack(writer, "bibbsss", (const void *)object->bytes, sizeof(object->bytes),
                 (int64_t)self->kind, (const void *)self->id.bytes, sizeof(self->id.bytes),
                 (const void *)self->node.bytes, sizeof(self->node.bytes), address, "",
                 "actor maker"));
}

tdm_status object_fixture_open_reference(struct object_fixture *scene,
                                         const struct remote_peer *owner,
                                         const struct tdm__id *object, tdm_ref **ref_out)
{
    tdm_writer *writer;
    tdm_status status;

    TRY(tdm_writer_create(&writer));
    pack_reference(scene, owner, object, writer);
    status = tdm__reference_open(scene->runtime, tdm_writer_bytes(writer), ref_out);
    tdm_writer_destroy(writer);
    return status;
}

void object_fixture_write_reference(const struct object_fixture *scene,
                                    const struct remote_peer *owner, const struct tdm__id *object,
                                    tdm_writer *writer)
{
    tdm_writer *bytes;

    TRY(tdm_writer_create(&bytes));
    pack_reference(scene, owner, object, bytes);
    tdm__write_ext(writer, TDM__EXT_REFERENCE, tdm_writer_bytes(bytes));
    TRY(tdm_writer_status(writer));
    tdm_writer_destroy(bytes);
}

struct tdm__incoming_call *object_fixture_expect(struct remote_peer *end, const char *method)
{
    remote_peer_hold(end, 1);
    assert_string_equal(tdm__incoming_method(end->held[0]), method);
    return remote_peer_take(end);
}

struct tdm__ref_table_counts object_fixture_count(struct object_fixture *scene)
{
    struct tdm__ref_table_counts count;

    tdm__ref_table_counts(scene->runtime, &count);
    return count;
}

void object_fixture_settle(struct object_fixture *scene)
{
    remote_peer_settle(scene->runtime->loop);
}
